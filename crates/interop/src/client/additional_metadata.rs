//! Metadata that goes with every call.

use fulmar::{CallHead, Interceptor, MetadataMap, Status};

/// Adds metadata to whatever call is made on the channel that it is around.
pub(super) struct AdditionalMetadata(pub(super) MetadataMap);

impl Interceptor for AdditionalMetadata {
    async fn on_call(&self, call: &mut CallHead) -> Result<(), Status> {
        call.metadata_mut().extend_from(&self.0);
        Ok(())
    }
}

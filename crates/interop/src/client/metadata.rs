//! Metadata goes there and comes back.

use fulmar::{Duplex, MetadataError, MetadataMap, Request};

use super::failure::{Outcome, expect_equal};
use super::streaming::ping;
use super::tester::{Tester, expect_zeros, zeros};
use crate::proto::grpc::testing::SimpleRequest;

const INITIAL: (&str, &str) = ("x-grpc-test-echo-initial", "test_initial_metadata_value");
const TRAILING: (&str, &[u8]) = ("x-grpc-test-echo-trailing-bin", &[0xab, 0xab, 0xab]);

/// A text comes back ahead of the reply and bytes in the trailers, of a unary call and of a stream.
pub(super) async fn custom_metadata(tester: &Tester) -> Outcome {
    let message = SimpleRequest { response_size: 1, payload: Some(zeros(1)), ..SimpleRequest::default() };
    let mut request = Request::new(message);
    add(request.metadata_mut())?;
    let response = tester.client.unary_call(request).await?;
    expect_zeros("UnaryCall", response.get_ref().payload.as_ref(), 1)?;
    expect("UnaryCall", response.metadata(), response.trailers())?;

    let mut request = Request::new(());
    add(request.metadata_mut())?;
    let Duplex { mut requests, mut replies } = tester.client.full_duplex_call(request).await?;
    requests.send(&ping(1, 1)).await?;
    requests.finish();
    let metadata = replies.metadata().await?;
    let reply = replies.message().await?.unwrap_or_default();
    expect_zeros("FullDuplexCall", reply.payload.as_ref(), 1)?;
    expect_equal("FullDuplexCall: a second reply", replies.message().await?, None)?;
    expect("FullDuplexCall", &metadata, replies.trailers())
}

fn add(metadata: &mut MetadataMap) -> Result<(), MetadataError> {
    metadata.append(INITIAL.0, INITIAL.1)?;
    metadata.append_bin(TRAILING.0, TRAILING.1)
}

fn expect(what: &str, metadata: &MetadataMap, trailers: &MetadataMap) -> Outcome {
    let initial: Vec<_> = metadata.get_all(INITIAL.0).collect();
    expect_equal(&format!("{what}: {} in the metadata", INITIAL.0), initial, vec![INITIAL.1])?;
    let trailing: Vec<_> = trailers.get_all_bin(TRAILING.0).collect();
    expect_equal(&format!("{what}: {} in the trailers", TRAILING.0), trailing, vec![TRAILING.1.to_vec()])
}

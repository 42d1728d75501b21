//! Compressing what the user of a call sends, on the user's own thread.

use std::sync::{Arc, Mutex};

use fulmar_grpc::encoding::{Choice, Contexts, Encodings, PeerAccepts};
use fulmar_grpc::{Compress, Compression, Status};

use crate::call::Outbound;
use crate::lock;
use crate::payload::{Payload, check_length};

/// What a channel, or a server on one reactor, compresses with.
#[derive(Debug)]
pub(crate) struct Press {
    encodings: Encodings,
    /// Taken out while they are used: as many are made as there are threads that compress at a time.
    contexts: Mutex<Contexts>,
}

impl Press {
    /// None where no encoding is known.
    pub(crate) fn new(encodings: &Encodings) -> Option<Arc<Self>> {
        let press = || Arc::new(Self { encodings: encodings.clone(), contexts: Mutex::default() });
        (!encodings.is_empty()).then(press)
    }
}

/// How the messages are compressed that the user of a cell sends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Packing {
    press: Option<Arc<Press>>,
    peer_accepts: PeerAccepts,
    choice: Option<Choice>,
    /// Whether the messages that say nothing themselves are compressed.
    is_off: bool,
}

impl Packing {
    pub(crate) fn new(press: Option<&Arc<Press>>, peer_accepts: PeerAccepts, choice: Option<Choice>) -> Self {
        Self { press: press.cloned(), peer_accepts, choice, is_off: false }
    }

    /// Whether messages are not compressed at all.
    #[inline]
    pub(crate) const fn is_plain(&self) -> bool {
        self.press.is_none() || self.choice.is_none()
    }

    /// The encoding of the call, and which of its messages are compressed.
    pub(crate) const fn choice(&self) -> Option<Choice> {
        self.choice
    }

    /// Has the messages of the call compressed so. Once the metadata is sent, which tells the encoding, it can only change which
    /// messages are compressed.
    ///
    /// # Errors
    /// `INTERNAL` for an encoding that is not registered (`compression.md`).
    pub(crate) fn set(&mut self, compression: &Compression, is_told: bool) -> Result<(), Status> {
        let none = Encodings::default();
        let encodings = self.press.as_ref().map_or(&none, |press| &press.encodings);
        let choice = encodings.choose(compression, self.peer_accepts).map_err(unknown)?;
        let encoding = |choice: Option<Choice>| choice.map(|choice| choice.encoding);
        self.is_off = is_told && encoding(choice) != encoding(self.choice);
        if !self.is_off {
            self.choice = choice;
        }
        Ok(())
    }

    /// Appends `message` with its prefix to `out`, compressed or not. Returns how many bytes that were.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` when the message is longer than `bytes_max` or than the prefix can say; `INTERNAL` when it did not encode
    /// to the length it had announced, or cannot be compressed. Nothing was appended.
    pub(crate) fn frame<P: Payload>(
        &self,
        message: &P,
        compress: Compress,
        bytes_max: usize,
        out: &mut Outbound,
    ) -> Result<usize, Status> {
        let compress = if self.is_off && compress == Compress::Default { Compress::No } else { compress };
        let (Some(press), Some(choice)) = (&self.press, self.choice) else {
            return out.encode(message, bytes_max);
        };
        let length = message.encoded_len();
        check_length(length, bytes_max)?;
        if !choice.tries(compress, length) {
            return out.encode(message, bytes_max);
        }
        let Some(mut context) = lock(&press.contexts).take_sender(&press.encodings, choice) else {
            return out.encode(message, bytes_max);
        };
        let framed =
            context.frame(choice, compress, length, |buffer| message.encode(buffer), out.bytes_mut());
        lock(&press.contexts).give(context);
        framed.map_err(|error| error.status())
    }
}

/// The status of a call that asks for an encoding that its end does not know.
pub(crate) fn unknown(error: fulmar_grpc::encoding::UnknownEncoding) -> Status {
    Status::internal(error.to_string())
}

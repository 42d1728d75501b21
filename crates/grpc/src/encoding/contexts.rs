//! Compressors and decompressors that are kept between messages.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use fulmar_base::{Block, Pool};

use super::{
    Choice, Compress, Compressor, Decompressor, Encoding, EncodingError, Encodings, Unfolded, panic_text,
};
use crate::code::Code;
use crate::framing::{self, PREFIX_LEN};
use crate::status::Status;

/// How many contexts are kept: of each encoding of each channel or server on a thread one is enough, since a message is compressed
/// in one go. The one that was used longest ago makes room.
const CONTEXTS_MAX: usize = 32;

/// How much memory a context keeps in each of its buffers.
const BUFFER_KEPT_BYTES_MAX: usize = 64 * 1024;

/// How much a decompressor that is kept holds on to at most: twice the window of the frames that zstd makes by default.
const DECOMPRESSOR_KEPT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Contexts that wait for their next message: at most 32.
#[derive(Debug, Default)]
pub struct Contexts {
    /// The one used last is at the end.
    pub(super) kept: Vec<Context>,
}

/// What compresses and decompresses for one encoding, with the memory that it needs. It is made when it is first needed, and serves
/// one message after the other.
pub struct Context {
    pub(super) encoding: Arc<dyn Encoding>,
    compressor: Option<Box<dyn Compressor>>,
    pub(super) decompressor: Option<Box<dyn Decompressor>>,
    /// A message before it is compressed.
    plain: Vec<u8>,
    /// The same behind its prefix, for those who have no other place for it.
    pub(crate) framed: Vec<u8>,
}

impl Contexts {
    /// A context for what is sent with an encoding of `encodings`.
    pub fn take_sender(&mut self, encodings: &Encodings, choice: Choice) -> Option<Context> {
        encodings.sender(choice.encoding).map(|encoding| self.take(encoding))
    }

    /// A context of an encoding.
    pub(crate) fn take(&mut self, encoding: &Arc<dyn Encoding>) -> Context {
        match self.kept.iter().rposition(|context| Arc::ptr_eq(&context.encoding, encoding)) {
            Some(index) => self.kept.remove(index),
            None => Context::new(encoding.clone()),
        }
    }

    /// Keeps a context for another message.
    pub fn give(&mut self, mut context: Context) {
        context.shrink();
        if self.kept.len() == CONTEXTS_MAX {
            self.kept.remove(0);
        }
        self.kept.push(context);
    }

    /// Runs `work` with a context of the thread whose memory `pool` is.
    pub(crate) fn with<R>(
        pool: &mut Pool,
        encoding: &Arc<dyn Encoding>,
        work: impl FnOnce(&mut Pool, &mut Context) -> R,
    ) -> R {
        let mut contexts = pool.take_kept::<Self>().unwrap_or_default();
        let mut context = contexts.take(encoding);
        let done = work(pool, &mut context);
        contexts.give(context);
        pool.keep(contexts);
        done
    }
}

impl Context {
    fn new(encoding: Arc<dyn Encoding>) -> Self {
        Self { encoding, compressor: None, decompressor: None, plain: Vec::new(), framed: Vec::new() }
    }

    /// Appends a message with its prefix to `out`: the `length` bytes that `encode` appends, compressed or not. Returns how many
    /// bytes were appended. A panic of `encode` leaves `out` as it was.
    ///
    /// # Errors
    ///
    /// [`FrameError`]; nothing is appended.
    pub fn frame(
        &mut self,
        choice: Choice,
        compress: Compress,
        length: usize,
        encode: impl FnOnce(&mut Vec<u8>),
        out: &mut Vec<u8>,
    ) -> Result<usize, FrameError> {
        self.plain.clear();
        encode(&mut self.plain);
        if self.plain.len() != length {
            return Err(FrameError::Misencoded { announced: length, encoded: self.plain.len() });
        }
        let always = choice.always || compress == Compress::Yes;
        let start = out.len();
        if choice.tries(compress, length) {
            out.extend_from_slice(&[0; PREFIX_LEN]);
            let compressor = self.compressor.get_or_insert_with(|| self.encoding.compressor());
            if let Err(error) = compressor.compress(&self.plain, out) {
                out.truncate(start);
                return Err(FrameError::Encoding(error));
            }
            let compressed = out.len().saturating_sub(start + PREFIX_LEN);
            if (always || compressed < length)
                && let Some(prefix) = framing::prefix(compressed, true)
            {
                out[start..start + PREFIX_LEN].copy_from_slice(&prefix);
                return Ok(PREFIX_LEN + compressed);
            }
            out.truncate(start);
        }
        let prefix = framing::prefix(length, false).ok_or(FrameError::TooLong)?;
        out.extend_from_slice(&prefix);
        out.extend_from_slice(&self.plain);
        Ok(PREFIX_LEN + length)
    }

    /// Unfolds a message to at most `bytes_max` bytes.
    pub(crate) fn unfold(
        &mut self,
        pool: &mut Pool,
        message: &[u8],
        bytes_max: usize,
    ) -> Result<Block, EncodingError> {
        let mut unfolded = Unfolded::new(pool, bytes_max);
        if message.is_empty() {
            // Some peers compress nothing to nothing.
            return unfolded.finish();
        }
        let done = catch_unwind(AssertUnwindSafe(|| {
            let decompressor = self.decompressor.get_or_insert_with(|| self.encoding.decompressor());
            decompressor.decompress(message, &mut unfolded)
        }));
        match done {
            Ok(done) => done.and_then(|()| unfolded.finish()),
            Err(panic) => {
                self.decompressor = None;
                Err(EncodingError::Failed(format!("it panicked: {}", panic_text(&*panic)).into()))
            }
        }
    }

    /// Gives memory back that a large message took.
    fn shrink(&mut self) {
        for buffer in [&mut self.plain, &mut self.framed] {
            buffer.clear();
            buffer.shrink_to(BUFFER_KEPT_BYTES_MAX);
        }
        let holds_much = |decompressor: &mut Box<dyn Decompressor>| {
            decompressor.memory_bytes() > DECOMPRESSOR_KEPT_BYTES_MAX
        };
        drop(self.decompressor.take_if(holds_much));
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("encoding", &self.encoding.name()).finish_non_exhaustive()
    }
}

/// Why a message did not get its prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FrameError {
    /// It did not encode to as many bytes as it had announced.
    Misencoded {
        /// How many were announced.
        announced: usize,
        /// How many there were.
        encoded: usize,
    },
    /// Its length does not fit into the four bytes that there are for it.
    TooLong,
    /// It could not be compressed.
    Encoding(EncodingError),
}

impl FrameError {
    /// The status of a call that ends for this reason.
    pub fn status(&self) -> Status {
        match self {
            Self::Misencoded { announced, encoded } => Status::new(
                Code::Internal,
                format!("the message encoded to {encoded} bytes, and had announced {announced}"),
            ),
            Self::TooLong => {
                Status::new(Code::ResourceExhausted, "the message to send is longer than 4 GiB - 1")
            }
            Self::Encoding(error) => {
                Status::new(Code::Internal, format!("the message could not be compressed: {error}"))
            }
        }
    }
}

//! `zstd` (RFC 8878).

use zstd::bulk;
use zstd::zstd_safe::{
    self, CParameter, DCtx, DParameter, InBuffer, OutBuffer, ResetDirective, compress_bound,
};

use super::{Compressor, Decompressor, Encoding, EncodingError, Unfolded};

/// The level that zstd takes by default.
const LEVEL_DEFAULT: i32 = 3;

/// How far back a frame may refer, as a power of two: the 8 MiB that every decoder should support (RFC 8878 §3.1.1.1.2). It is the
/// memory that a frame can ask for.
const WINDOW_LOG_MAX: u32 = 23;

/// The encoding `zstd`. A message may consist of several frames (RFC 8878 §3), and of nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zstd {
    level: i32,
}

impl Zstd {
    /// The encoding with this level of compression, from the fastest, below 0, to 22, which is smallest and slowest. What lies outside
    /// is taken for the nearest.
    pub const fn with_level(level: i32) -> Self {
        Self { level }
    }
}

impl Default for Zstd {
    /// Level 3.
    fn default() -> Self {
        Self::with_level(LEVEL_DEFAULT)
    }
}

impl Encoding for Zstd {
    fn name(&self) -> &str {
        "zstd"
    }

    fn compressor(&self) -> Box<dyn Compressor> {
        Box::new(ZstdCompressor { level: self.level, compressor: None })
    }

    fn decompressor(&self) -> Box<dyn Decompressor> {
        Box::new(ZstdDecompressor { context: None })
    }
}

/// Makes its compressor with the first message: that may fail.
struct ZstdCompressor {
    level: i32,
    compressor: Option<bulk::Compressor<'static>>,
}

impl ZstdCompressor {
    fn make(level: i32) -> std::io::Result<bulk::Compressor<'static>> {
        let range = zstd::compression_level_range();
        let mut compressor = bulk::Compressor::new(level.clamp(*range.start(), *range.end()))?;
        // Not more than every decoder reads.
        compressor.set_parameter(CParameter::ChecksumFlag(false))?;
        Ok(compressor)
    }
}

impl Compressor for ZstdCompressor {
    fn compress(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), EncodingError> {
        let failed = |error: std::io::Error| EncodingError::Failed(error.to_string().into());
        let compressor = match &mut self.compressor {
            Some(compressor) => compressor,
            None => self.compressor.insert(Self::make(self.level).map_err(failed)?),
        };
        let start = out.len();
        out.resize(start + compress_bound(message.len()), 0);
        let compressed = compressor.compress_to_buffer(message, &mut out[start..]);
        out.truncate(start + compressed.as_ref().copied().unwrap_or_default());
        compressed.map(|_| ()).map_err(failed)
    }
}

/// Makes its context with the first message: that may fail.
struct ZstdDecompressor {
    context: Option<DCtx<'static>>,
}

impl ZstdDecompressor {
    fn make() -> Result<DCtx<'static>, EncodingError> {
        let mut context = DCtx::try_create().ok_or_else(no_context)?;
        context.set_parameter(DParameter::WindowLogMax(WINDOW_LOG_MAX)).map_err(failed)?;
        Ok(context)
    }
}

impl Decompressor for ZstdDecompressor {
    fn decompress(&mut self, message: &[u8], out: &mut Unfolded<'_>) -> Result<(), EncodingError> {
        let context = match &mut self.context {
            Some(context) => context,
            None => self.context.insert(Self::make()?),
        };
        context.reset(ResetDirective::SessionOnly).map_err(failed)?;
        let mut input = InBuffer::around(message);
        loop {
            let before = input.pos();
            let mut room = OutBuffer::around(out.room()?);
            let wanted = context.decompress_stream(&mut room, &mut input);
            let filled = room.pos();
            out.fill(filled);
            let wanted =
                wanted.map_err(|code| EncodingError::Corrupt(zstd_safe::get_error_name(code).into()))?;
            let is_read = input.pos() == message.len();
            if wanted == 0 && is_read {
                return Ok(());
            }
            if filled == 0 && is_read && input.pos() == before {
                return Err(EncodingError::Corrupt("it ends in the middle".into()));
            }
        }
    }

    fn memory_bytes(&self) -> usize {
        self.context.as_ref().map_or(0, DCtx::sizeof)
    }
}

fn failed(code: zstd_safe::ErrorCode) -> EncodingError {
    EncodingError::Failed(zstd_safe::get_error_name(code).into())
}

fn no_context() -> EncodingError {
    EncodingError::Failed("zstd gets no memory for a context".into())
}

//! `deflate`: the zlib format (RFC 1950), as HTTP means the name (RFC 9110 §8.4.1.2), and gRPC with it.

use super::zlib::{Deflater, Inflater, LEVEL_DEFAULT};
use super::{Compressor, Decompressor, Encoding, EncodingError, Unfolded};

/// The encoding `deflate`: a zlib stream, and nothing behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deflate {
    level: u32,
}

impl Deflate {
    /// The encoding with this level of compression: 0 stores, 9 is smallest and slowest, and what is above is taken for 9.
    pub const fn with_level(level: u32) -> Self {
        Self { level }
    }
}

impl Default for Deflate {
    /// Level 6.
    fn default() -> Self {
        Self::with_level(LEVEL_DEFAULT)
    }
}

impl Encoding for Deflate {
    fn name(&self) -> &str {
        "deflate"
    }

    fn compressor(&self) -> Box<dyn Compressor> {
        Box::new(DeflateCompressor(Deflater::new(self.level, true)))
    }

    fn decompressor(&self) -> Box<dyn Decompressor> {
        Box::new(DeflateDecompressor(Inflater::new(true)))
    }
}

struct DeflateCompressor(Deflater);

impl Compressor for DeflateCompressor {
    fn compress(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), EncodingError> {
        self.0.compress(message, out)
    }
}

struct DeflateDecompressor(Inflater);

impl Decompressor for DeflateDecompressor {
    fn decompress(&mut self, message: &[u8], out: &mut Unfolded<'_>) -> Result<(), EncodingError> {
        let taken = self.0.decompress(message, out, |_| {})?;
        if taken < message.len() {
            return Err(EncodingError::Corrupt("something follows the end of the stream".into()));
        }
        Ok(())
    }
}

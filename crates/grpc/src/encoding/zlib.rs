//! What gzip and deflate have in common: DEFLATE streams (RFC 1951), with or without the frame of zlib (RFC 1950).

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::{EncodingError, Unfolded};

/// The level that zlib takes by default.
pub(super) const LEVEL_DEFAULT: u32 = 6;
pub(super) const LEVEL_MAX: u32 = 9;

/// A compressor for one stream after the other.
pub(super) struct Deflater(Compress);

/// A decompressor for one stream after the other.
pub(super) struct Inflater {
    inflate: Decompress,
    has_frame: bool,
}

impl Deflater {
    pub(super) fn new(level: u32, has_frame: bool) -> Self {
        Self(Compress::new(Compression::new(level.min(LEVEL_MAX)), has_frame))
    }

    /// Appends the stream of `message` to `out`.
    pub(super) fn compress(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), EncodingError> {
        self.0.reset();
        // What most messages compress to; more is had when it is needed.
        out.reserve(message.len() / 2 + 64);
        loop {
            let taken = self.0.total_in() as usize;
            let rest = message.get(taken..).unwrap_or_default();
            match self.0.compress_vec(rest, out, FlushCompress::Finish) {
                Ok(Status::StreamEnd) => return Ok(()),
                Ok(Status::Ok | Status::BufError) => out.reserve(out.capacity().max(64)),
                Err(error) => return Err(EncodingError::Failed(error.to_string().into())),
            }
        }
    }
}

impl Inflater {
    pub(super) fn new(has_frame: bool) -> Self {
        Self { inflate: Decompress::new(has_frame), has_frame }
    }

    /// Unfolds one stream at the start of `bytes`, and shows each piece of it to `see`. Returns how many bytes the stream had.
    pub(super) fn decompress(
        &mut self,
        bytes: &[u8],
        out: &mut Unfolded<'_>,
        mut see: impl FnMut(&[u8]),
    ) -> Result<usize, EncodingError> {
        self.inflate.reset(self.has_frame);
        loop {
            let taken = self.inflate.total_in() as usize;
            let rest = bytes.get(taken..).unwrap_or_default();
            let before = self.inflate.total_out();
            let room = out.room()?;
            let status = self.inflate.decompress(rest, room, FlushDecompress::None);
            let status = status.map_err(|error| EncodingError::Corrupt(error.to_string().into()))?;
            let filled = (self.inflate.total_out() - before) as usize;
            see(room.get(..filled).unwrap_or_default());
            out.fill(filled);
            let is_stuck = filled == 0 && self.inflate.total_in() as usize == taken;
            match status {
                Status::StreamEnd => return Ok(self.inflate.total_in() as usize),
                Status::Ok | Status::BufError if is_stuck => {
                    return Err(EncodingError::Corrupt("it ends in the middle".into()));
                }
                Status::Ok | Status::BufError => {}
            }
        }
    }
}

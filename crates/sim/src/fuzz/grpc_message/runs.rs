//! An encoding whose messages anybody can write and read by hand: runs of bytes, each as its length and the byte.

use fulmar_grpc::Code;
use fulmar_grpc::encoding::{Compressor, Decompressor, Encoding, EncodingError, Unfolded};

pub(super) const NAME: &str = "runs";

#[derive(Clone, Copy, Debug)]
pub(super) struct Runs;

impl Encoding for Runs {
    fn name(&self) -> &str {
        NAME
    }

    fn compressor(&self) -> Box<dyn Compressor> {
        Box::new(*self)
    }

    fn decompressor(&self) -> Box<dyn Decompressor> {
        Box::new(*self)
    }
}

impl Compressor for Runs {
    fn compress(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), EncodingError> {
        out.extend(pack(message));
        Ok(())
    }
}

impl Decompressor for Runs {
    /// Writes where it was lent room, or has bytes copied, by turns.
    fn decompress(&mut self, message: &[u8], out: &mut Unfolded<'_>) -> Result<(), EncodingError> {
        for (index, run) in message.chunks(2).enumerate() {
            let &[length @ 1..=255, byte] = run else {
                return Err(EncodingError::Corrupt("a run has a length and a byte".into()));
            };
            let length = usize::from(length);
            if index % 2 == 0 {
                out.extend_from_slice(&[byte; 255][..length])?;
                continue;
            }
            let mut left = length;
            while left > 0 {
                let room = out.room()?;
                let now = left.min(room.len());
                room[..now].fill(byte);
                out.fill(now);
                left -= now;
            }
        }
        Ok(())
    }
}

pub(super) fn pack(message: &[u8]) -> Vec<u8> {
    let runs = message.chunk_by(|a, b| a == b).flat_map(|run| run.chunks(255));
    runs.flat_map(|run| [run.len() as u8, run[0]]).collect()
}

/// What a message unfolds to, or the code of a call that ends for it.
pub(super) fn unfold(message: &[u8], bytes_max: usize) -> Result<Vec<u8>, Code> {
    let mut unfolded = Vec::new();
    for run in message.chunks(2) {
        let &[length @ 1..=255, byte] = run else { return Err(Code::Internal) };
        unfolded.resize(unfolded.len() + usize::from(length), byte);
        if unfolded.len() > bytes_max {
            return Err(Code::ResourceExhausted);
        }
    }
    Ok(unfolded)
}

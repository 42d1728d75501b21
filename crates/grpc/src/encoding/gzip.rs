//! `gzip` (RFC 1952), by members around DEFLATE streams.

use flate2::Crc;

use super::zlib::{Deflater, Inflater, LEVEL_DEFAULT};
use super::{Compressor, Decompressor, Encoding, EncodingError, Unfolded};

/// The two bytes of every member, and the one that says DEFLATE (RFC 1952 §2.3.1).
const MAGIC: [u8; 3] = [0x1f, 0x8b, 8];

/// Bytes of a header without optional fields: the magic, flags, time, extra flags, operating system.
const HEADER_LEN: usize = 10;

/// What stands in front of the streams made here: no optional fields, no time, an unknown operating system.
const HEADER: [u8; HEADER_LEN] = [MAGIC[0], MAGIC[1], MAGIC[2], 0, 0, 0, 0, 0, 0, 255];

/// Bytes behind the stream: CRC-32 and length of what it unfolds to, little endian.
const TRAILER_LEN: usize = 8;

/// The flags of a header that say which optional fields follow (RFC 1952 §2.3.1.1).
const FLAG_HEADER_CRC: u8 = 2;
const FLAG_EXTRA: u8 = 4;
const FLAG_NAME: u8 = 8;
const FLAG_COMMENT: u8 = 16;
const FLAGS_RESERVED: u8 = 0b1110_0000;

/// How many members a message may have whatever its size, and how many bytes, folded and unfolded, each further one needs on average. One
/// takes microseconds to begin and may be 20 bytes long; whoever cuts messages into members makes them of 64 KiB and more.
const MEMBERS_FREE: usize = 64;
const MEMBER_BYTES_MIN: usize = 1024;

/// The encoding `gzip`. A message may consist of several members (RFC 1952 §2.2), and of nothing else; of more than 64 only if they have
/// 1 KiB and more on average.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gzip {
    level: u32,
}

impl Gzip {
    /// The encoding with this level of compression: 0 stores, 9 is smallest and slowest, and what is above is taken for 9.
    pub const fn with_level(level: u32) -> Self {
        Self { level }
    }
}

impl Default for Gzip {
    /// Level 6.
    fn default() -> Self {
        Self::with_level(LEVEL_DEFAULT)
    }
}

impl Encoding for Gzip {
    fn name(&self) -> &str {
        "gzip"
    }

    fn compressor(&self) -> Box<dyn Compressor> {
        Box::new(GzipCompressor(Deflater::new(self.level, false)))
    }

    fn decompressor(&self) -> Box<dyn Decompressor> {
        Box::new(GzipDecompressor(Inflater::new(false)))
    }
}

struct GzipCompressor(Deflater);

impl Compressor for GzipCompressor {
    fn compress(&mut self, message: &[u8], out: &mut Vec<u8>) -> Result<(), EncodingError> {
        out.extend_from_slice(&HEADER);
        self.0.compress(message, out)?;
        let mut crc = Crc::new();
        crc.update(message);
        out.extend_from_slice(&crc.sum().to_le_bytes());
        // Modulo 2^32, as the format says.
        out.extend_from_slice(&(message.len() as u32).to_le_bytes());
        Ok(())
    }
}

struct GzipDecompressor(Inflater);

impl Decompressor for GzipDecompressor {
    fn decompress(&mut self, message: &[u8], out: &mut Unfolded<'_>) -> Result<(), EncodingError> {
        let mut rest = message;
        for members in 1.. {
            rest = self.member(rest, out)?;
            if rest.is_empty() {
                break;
            }
            let bytes = (message.len() - rest.len()).saturating_add(out.len());
            if members >= MEMBERS_FREE + bytes / MEMBER_BYTES_MIN {
                return Err(EncodingError::Corrupt("it is cut into too many small gzip members".into()));
            }
        }
        Ok(())
    }
}

impl GzipDecompressor {
    /// Unfolds one member. Returns what follows it.
    fn member<'m>(&mut self, bytes: &'m [u8], out: &mut Unfolded<'_>) -> Result<&'m [u8], EncodingError> {
        let stream = skip_header(bytes)?;
        let mut crc = Crc::new();
        let taken = self.0.decompress(stream, out, |piece| crc.update(piece))?;
        let rest = stream.get(taken..).unwrap_or_default();
        let (trailer, rest) = rest.split_first_chunk::<TRAILER_LEN>().ok_or_else(cut_short)?;
        let [a, b, c, d, e, f, g, h] = *trailer;
        if u32::from_le_bytes([a, b, c, d]) != crc.sum() || u32::from_le_bytes([e, f, g, h]) != crc.amount() {
            return Err(EncodingError::Corrupt("the checksum or the length of gzip does not agree".into()));
        }
        Ok(rest)
    }
}

/// What follows the header of a member. Its optional fields say nothing about the message.
fn skip_header(bytes: &[u8]) -> Result<&[u8], EncodingError> {
    let (header, mut rest) = bytes.split_at_checked(HEADER_LEN).ok_or_else(cut_short)?;
    let flags = header[MAGIC.len()];
    if header[..MAGIC.len()] != MAGIC || flags & FLAGS_RESERVED != 0 {
        return Err(EncodingError::Corrupt("it has no gzip header where one has to be".into()));
    }
    if flags & FLAG_EXTRA != 0 {
        let (length, behind) = rest.split_first_chunk::<2>().ok_or_else(cut_short)?;
        rest = behind.get(usize::from(u16::from_le_bytes(*length))..).ok_or_else(cut_short)?;
    }
    for flag in [FLAG_NAME, FLAG_COMMENT] {
        if flags & flag != 0 {
            let end = rest.iter().position(|&byte| byte == 0).ok_or_else(cut_short)?;
            rest = &rest[end + 1..];
        }
    }
    if flags & FLAG_HEADER_CRC != 0 {
        rest = check_header(bytes, rest)?;
    }
    Ok(rest)
}

/// Checks the CRC of a header, which is at the start of `rest`. Returns what follows it.
fn check_header<'m>(bytes: &[u8], rest: &'m [u8]) -> Result<&'m [u8], EncodingError> {
    let (sum, behind) = rest.split_first_chunk::<2>().ok_or_else(cut_short)?;
    let mut crc = Crc::new();
    crc.update(bytes.get(..bytes.len() - rest.len()).unwrap_or_default());
    // The lower half of the CRC-32.
    if u16::from_le_bytes(*sum) != crc.sum() as u16 {
        return Err(EncodingError::Corrupt("the checksum of the gzip header does not agree".into()));
    }
    Ok(behind)
}

fn cut_short() -> EncodingError {
    EncodingError::Corrupt("it ends in the middle".into())
}

use std::error::Error;
use std::fmt;

/// A header block that cannot be decoded. The dynamic table is out of step from here on: in HTTP/2 a connection error of type
/// COMPRESSION_ERROR (RFC 9113 §4.3).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct DecodeError {
    /// What is wrong.
    pub kind: DecodeErrorKind,
    /// Where in the block the field representation that is wrong begins, in bytes.
    pub offset: usize,
}

/// What can be wrong with a header block.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DecodeErrorKind {
    /// The block ends inside a field representation.
    Truncated,
    /// An integer is above 2^32 - 1 or takes more than five octets after its prefix (RFC 7541 §5.1).
    IntegerTooLarge,
    /// An index of zero (RFC 7541 §6.1), or one behind the end of the dynamic table (RFC 7541 §2.3.3).
    IndexInvalid {
        /// The index.
        index: usize,
    },
    /// A table size update above the limit that this end has set (RFC 7541 §6.3).
    SizeUpdateTooLarge {
        /// The announced size in bytes.
        size: usize,
        /// The most that is allowed, in bytes.
        limit: usize,
    },
    /// A table size update behind a field (RFC 7541 §4.2).
    SizeUpdateMisplaced,
    /// This end has lowered the limit, and the block does not begin with a size update (RFC 7541 §4.2).
    SizeUpdateMissing,
    /// The bits behind the last symbol of a Huffman string are not the first ones of EOS, or are eight or more
    /// (RFC 7541 §5.2).
    HuffmanPaddingInvalid,
    /// A Huffman string contains the EOS symbol (RFC 7541 §5.2).
    HuffmanEos,
}

impl DecodeErrorKind {
    pub(crate) const fn at(self, offset: usize) -> DecodeError {
        DecodeError { kind: self, offset }
    }
}

impl fmt::Display for DecodeErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the block ends inside a field representation"),
            Self::IntegerTooLarge => f.write_str("an integer is too large"),
            Self::IndexInvalid { index } => write!(f, "index {index} names no field of the tables"),
            Self::SizeUpdateTooLarge { size, limit } => {
                write!(f, "table size update to {size} bytes, the limit is {limit}")
            }
            Self::SizeUpdateMisplaced => f.write_str("table size update behind a field"),
            Self::SizeUpdateMissing => {
                f.write_str("no table size update at the start, although the limit was lowered")
            }
            Self::HuffmanPaddingInvalid => f.write_str("a Huffman string is padded wrongly"),
            Self::HuffmanEos => f.write_str("a Huffman string contains EOS"),
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HPACK: {}, at byte {} of the header block", self.kind, self.offset)
    }
}

impl Error for DecodeError {}

//! HPACK (RFC 7541): header compression for HTTP/2, decoder and encoder, without I/O.
//!
//! A [`Decoder`] turns the header blocks of one direction of a connection into a [`FieldList`], an arena that is reused for
//! each block; an [`Encoder`] turns [`Field`]s into a header block. Each owns the dynamic table of its direction, so blocks
//! must be given to a decoder in the order in which they arrive, and sent in the order in which they were encoded.
//!
//! After warm-up neither side allocates: a field that is in the table is one byte on the wire, found by hash in the encoder
//! and copied from the table's ring into the arena in the decoder.
//!
//! ```
//! use fulmar_hpack::{DecodeLimits, Decoder, Encoder, Field, FieldList, TABLE_BYTES_INITIAL};
//!
//! let mut encoder = Encoder::new(TABLE_BYTES_INITIAL);
//! let mut decoder = Decoder::new(TABLE_BYTES_INITIAL);
//! let mut fields = FieldList::new();
//! let mut block = Vec::new();
//! for _ in 0..2 {
//!     block.clear();
//!     encoder.encode([Field::new(b":method", b"POST"), Field::new(b"te", b"trailers")], &mut block);
//!     decoder.decode(&block, &DecodeLimits::default(), &mut fields)?;
//!     assert_eq!(fields.get(1).map(|field| field.value), Some(&b"trailers"[..]));
//! }
//! assert_eq!(block, [0x83, 0xbe]); // the second block: two indices
//! # Ok::<(), fulmar_hpack::DecodeError>(())
//! ```
#![forbid(unsafe_code)]

mod decoder;
mod dynamic_table;
mod encoder;
mod error;
mod field;
mod field_list;
mod hash;
mod huffman;
mod integer;
mod match_index;
mod packed;
mod static_table;
mod template;

#[cfg(test)]
mod tests;

pub use decoder::{DecodeLimits, Decoder};
pub use encoder::Encoder;
pub use error::{DecodeError, DecodeErrorKind};
pub use field::{Field, Indexing};
pub use field_list::{FieldList, Fields, Overflow};
pub use template::Template;

/// Bytes of the dynamic table at the start of a connection, in each direction, until a SETTINGS_HEADER_TABLE_SIZE is in force
/// (RFC 9113 §6.5.2).
pub const TABLE_BYTES_INITIAL: usize = 4096;

/// What a field counts for besides its name and value, in a dynamic table (RFC 7541 §4.1) and in a header list
/// (RFC 9113 §6.5.2).
pub const FIELD_OVERHEAD_BYTES: usize = 32;

/// The largest dynamic table, in bytes: 1 GiB. Do not advertise more.
pub const TABLE_BYTES_MAX: usize = 1 << 30;

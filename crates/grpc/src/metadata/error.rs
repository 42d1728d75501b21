//! Why metadata was refused.

use std::fmt;

use crate::base64::Base64Error;

/// Why a [`MetadataMap`](super::MetadataMap) did not take a name or a value.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum MetadataError {
    /// The name is empty or has characters besides `0-9 a-z A-Z _ - .`.
    Name(String),
    /// gRPC or HTTP uses the name itself; `reason` says what for, and what to do instead.
    Reserved {
        /// The name.
        name: String,
        /// What it is used for.
        reason: &'static str,
    },
    /// Text for a name that ends in `-bin`: use the methods for binary values.
    BinaryName(String),
    /// Bytes for a name that does not end in `-bin`.
    NotBinaryName(String),
    /// The text has a byte outside 0x20–0x7E. The text itself is not told, as it may be sensitive.
    Value {
        /// The name whose value it was to be.
        name: String,
        /// The first such byte.
        byte: u8,
        /// Its place in the text, from 0.
        at: usize,
    },
    /// A received binary value is not base64.
    Base64(Base64Error),
    /// The map would be larger than [`BYTES_MAX`](super::MetadataMap::BYTES_MAX).
    Full,
}

impl fmt::Display for MetadataError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => {
                write!(f, "{name:?} is not a metadata name: one or more of 0-9, a-z, '_', '-' and '.'")
            }
            Self::Reserved { name, reason } => write!(f, "the metadata name {name:?} is reserved: {reason}"),
            Self::BinaryName(name) => {
                write!(f, "the metadata name {name:?} is binary: use insert_bin or append_bin")
            }
            Self::NotBinaryName(name) => {
                write!(f, "the metadata name {name:?} is not binary: names of binary values end in \"-bin\"")
            }
            Self::Value { name, byte, at } => write!(
                f,
                "the value for metadata {name:?} has byte {byte:#04x} at {at}, which is not printable ASCII; \
                 use a name that ends in \"-bin\" and insert_bin"
            ),
            Self::Base64(error) => write!(f, "a binary metadata value is {error}"),
            Self::Full => {
                write!(f, "more than {} bytes of metadata", super::MetadataMap::BYTES_MAX)
            }
        }
    }
}

impl std::error::Error for MetadataError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Base64(error) => Some(error),
            _ => None,
        }
    }
}

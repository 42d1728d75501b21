//! One value of metadata.

use std::fmt;

use super::MetadataError;
use crate::base64;

/// A value of a [`MetadataMap`](super::MetadataMap): text, or bytes if its name ends in `-bin`.
///
/// A text value that was put in here is printable ASCII. One that a peer sent may have other bytes, as HTTP allows tabs
/// and everything from 0x80; gRPC asks receivers not to fail on them. [`to_str`](Self::to_str) then may be `None`, and
/// [`MetadataMap::append_value`](super::MetadataMap::append_value) echoes them all the same.
#[derive(Copy, Clone, PartialEq, Eq)]
pub struct Value<'m> {
    wire: &'m [u8],
    binary: bool,
    sensitive: bool,
}

impl<'m> Value<'m> {
    pub(super) fn new(wire: &'m [u8], binary: bool, sensitive: bool) -> Self {
        Self { wire, binary, sensitive }
    }

    /// The text; `None` for a binary value and for a received one that is not UTF-8.
    pub fn to_str(self) -> Option<&'m str> {
        if self.binary { None } else { std::str::from_utf8(self.wire).ok() }
    }

    /// The bytes of a binary value, decoded; `None` for a text value.
    pub fn to_bytes(self) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.copy_to(&mut bytes).then_some(bytes)
    }

    /// Appends the bytes of a binary value, decoded; `false`, and nothing, for a text value.
    pub fn copy_to(self, into: &mut Vec<u8>) -> bool {
        self.binary && base64::decode(self.wire, into).is_ok()
    }

    /// The value as it is on the wire: the text, or base64 without padding.
    pub const fn as_wire(self) -> &'m [u8] {
        self.wire
    }

    /// Whether the name ends in `-bin`.
    pub const fn is_binary(self) -> bool {
        self.binary
    }

    /// Whether the value is kept out of compression tables and of `Debug`.
    pub const fn is_sensitive(self) -> bool {
        self.sensitive
    }
}

impl fmt::Debug for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.sensitive {
            f.write_str("(sensitive)")
        } else if let Some(bytes) = self.to_bytes() {
            write!(f, "b\"{}\"", bytes.escape_ascii())
        } else {
            write!(f, "\"{}\"", self.wire.escape_ascii())
        }
    }
}

/// Checks a text value that a user gives.
pub(super) fn check(name: &str, text: &str) -> Result<(), MetadataError> {
    match text.bytes().enumerate().find(|(_, byte)| !matches!(byte, 0x20..=0x7e)) {
        Some((at, byte)) => Err(MetadataError::Value { name: name.to_owned(), byte, at }),
        None => Ok(()),
    }
}

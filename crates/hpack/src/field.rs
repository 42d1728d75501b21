/// A header or trailer field: name, value, and how it may be kept in compression tables.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct Field<'a> {
    /// The name, in lower case (RFC 9113 §8.2); the encoder does not check it.
    pub name: &'a [u8],
    /// The value, any bytes.
    pub value: &'a [u8],
    /// How an encoder may represent the field; from a decoder, how the peer's encoder did.
    pub indexing: Indexing,
}

impl<'a> Field<'a> {
    /// A field that enters the dynamic table: for values that repeat from block to block.
    pub const fn new(name: &'a [u8], value: &'a [u8]) -> Self {
        Self { name, value, indexing: Indexing::Incremental }
    }

    /// A field that no encoder on the way may put in a table, such as a credential (RFC 7541 §7.1.3).
    pub const fn sensitive(name: &'a [u8], value: &'a [u8]) -> Self {
        Self { name, value, indexing: Indexing::Never }
    }

    /// The same field, kept out of the dynamic table: for values that do not repeat.
    #[must_use]
    pub const fn without_indexing(self) -> Self {
        Self { indexing: Indexing::Without, ..self }
    }
}

/// How a field may be represented in a header block (RFC 7541 §6).
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub enum Indexing {
    /// As an index, or as a literal that enters the dynamic table (RFC 7541 §6.1, §6.2.1).
    Incremental,
    /// As an index if it is in a table already, else as a literal that does not enter it (RFC 7541 §6.2.2).
    Without,
    /// Always as a literal, by every hop: the value is sensitive (RFC 7541 §6.2.3, §7.1.3).
    Never,
}

//! Header sections on their way out. What repeats from section to section is encoded once: [`Known`].

use fulmar_hpack::{Encoder, FIELD_OVERHEAD_BYTES, Field, FieldList, Template};

/// Fields of a header section (RFC 9113 §8): [`Plain`] ones, [`Known`] ones, or one part behind another, as a pair.
pub trait Section {
    /// Size of the list (RFC 9113 §6.5.2).
    fn list_bytes(&mut self) -> usize;

    /// Appends the fields to the block in hand.
    fn encode(self, encoder: &mut Encoder, out: &mut Vec<u8>);

    /// Appends copies of the fields to a list.
    fn copy_to(&self, list: &mut FieldList);
}

/// Fields that are encoded each time.
#[derive(Debug)]
pub struct Plain<I>(pub I);

/// Fields that are the same each time, on the same connection: while the compression table does not change, they are encoded once.
#[derive(Debug)]
pub struct Known<'t, F> {
    /// What they became.
    pub template: &'t mut Template,
    /// What they are, for when that has to be known.
    pub fields: F,
}

impl<'f, I: IntoIterator<Item = Field<'f>> + Clone> Section for Plain<I> {
    #[inline]
    fn list_bytes(&mut self) -> usize {
        list_bytes(self.0.clone())
    }

    #[inline]
    fn encode(self, encoder: &mut Encoder, out: &mut Vec<u8>) {
        encoder.append(self.0, out);
    }

    fn copy_to(&self, list: &mut FieldList) {
        list.extend(self.0.clone());
    }
}

impl<'f, I: IntoIterator<Item = Field<'f>>, F: Fn() -> I> Section for Known<'_, F> {
    #[inline]
    fn list_bytes(&mut self) -> usize {
        self.template.list_bytes(|| list_bytes((self.fields)()))
    }

    #[inline]
    fn encode(self, encoder: &mut Encoder, out: &mut Vec<u8>) {
        encoder.append_known(self.template, self.fields, out);
    }

    fn copy_to(&self, list: &mut FieldList) {
        list.extend((self.fields)());
    }
}

impl<A: Section, B: Section> Section for (A, B) {
    #[inline]
    fn list_bytes(&mut self) -> usize {
        self.0.list_bytes() + self.1.list_bytes()
    }

    #[inline]
    fn encode(self, encoder: &mut Encoder, out: &mut Vec<u8>) {
        self.0.encode(encoder, out);
        self.1.encode(encoder, out);
    }

    fn copy_to(&self, list: &mut FieldList) {
        self.0.copy_to(list);
        self.1.copy_to(list);
    }
}

/// Size of a header list (RFC 9113 §6.5.2).
pub(crate) fn list_bytes<'f>(fields: impl IntoIterator<Item = Field<'f>>) -> usize {
    fields.into_iter().map(|field| field.name.len() + field.value.len() + FIELD_OVERHEAD_BYTES).sum()
}

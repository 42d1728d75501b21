//! Metadata: what goes along with a call besides its messages, in headers and trailers.

use std::fmt;

use crate::base64;

mod error;
mod names;
mod value;

pub use error::MetadataError;
pub use names::is_reserved;
pub use value::Value;

/// The metadata of one direction of a call: names with values, in the order they were added, several to a name.
///
/// * **Names** are lower-case (`0-9 a-z _ - .`); methods that take a name accept upper-case letters and mean the
///   lower-case ones. Names that gRPC or HTTP uses itself are refused: see [`is_reserved`].
/// * **Text values** are printable ASCII (0x20–0x7E). Spaces at either end do not survive HTTP and are dropped at once.
/// * **Binary values** are any bytes, under names that end in `-bin`. They cross the wire, and lie here, as base64.
/// * **Sensitive values** are never put into the compression tables of the connection or of a proxy (RFC 7541 §7.1.3),
///   and `Debug` does not show them.
///
/// All names and values lie in one piece of memory and [`clear`](Self::clear) keeps it, so that a map which is used
/// again allocates nothing. Lookups compare names one by one: metadata has few.
///
/// What a peer sent is kept even where gRPC would not let us send it, as long as HTTP allows it: see [`Value`].
///
/// ```
/// use fulmar_grpc::MetadataMap;
/// let mut metadata = MetadataMap::new();
/// metadata.insert("request-id", "17")?;
/// metadata.insert_bin("trace-bin", &[0xff, 0x00])?;
/// assert_eq!(metadata.get("request-id"), Some("17"));
/// assert_eq!(metadata.get_bin("trace-bin"), Some(vec![0xff, 0x00]));
/// # Ok::<(), fulmar_grpc::MetadataError>(())
/// ```
#[derive(Default)]
pub struct MetadataMap {
    /// None until something is put in. Most calls have no metadata, and maps for it in several places.
    fields: Option<Box<Fields>>,
}

/// What is in a map.
#[derive(Default)]
struct Fields {
    /// Name and value of each entry, in the order of `entries`, without gaps.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// What splitting received values has cost: see [`MetadataMap::SPLIT_BYTES_MAX`].
    split_bytes: usize,
}

/// What is in a map that nothing was put in.
static NO_FIELDS: Fields = Fields { bytes: Vec::new(), entries: Vec::new(), split_bytes: 0 };

/// What a field costs in a header list besides its text (RFC 9113 §6.5.2).
const FIELD_OVERHEAD_BYTES: usize = 32;

/// Where a name and its value, which follows it at once, lie in the bytes of the map.
#[derive(Copy, Clone)]
struct Entry {
    start: u32,
    name_len: u32,
    value_len: u32,
    sensitive: bool,
}

impl MetadataMap {
    /// Bytes that all names and values of a map may have, binary ones in base64: 16 MiB.
    ///
    /// Peers accept far less: 8 or 16 KiB are usual.
    pub const BYTES_MAX: usize = 16 * 1024 * 1024;

    /// What splitting received values at their commas may add to a map: the name again, and an entry, for each part but the first. As
    /// much as a whole header list of the default size; without a limit a list of 16 KiB, a long name and thousands of commas, would
    /// become 16 MiB.
    pub(crate) const SPLIT_BYTES_MAX: usize = 16 * 1024;

    /// No metadata, for whoever needs a reference that lives for ever.
    pub const EMPTY: &'static Self = &Self::new();

    /// No metadata and no memory.
    pub const fn new() -> Self {
        Self { fields: None }
    }

    /// No metadata, and memory for so many values with so many bytes of names and values.
    pub fn with_capacity(values: usize, bytes: usize) -> Self {
        let (bytes, entries) = (Vec::with_capacity(bytes), Vec::with_capacity(values));
        Self { fields: Some(Box::new(Fields { bytes, entries, split_bytes: 0 })) }
    }

    /// How many values there are.
    pub fn len(&self) -> usize {
        self.fields().entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.fields().entries.is_empty()
    }

    /// Drops all values and keeps the memory.
    pub fn clear(&mut self) {
        if let Some(fields) = &mut self.fields {
            fields.bytes.clear();
            fields.entries.clear();
            fields.split_bytes = 0;
        }
    }

    /// Makes a copy of another map of this one, in the memory that it has.
    pub fn copy_from(&mut self, other: &Self) {
        self.clear();
        if let Some(other) = &other.fields {
            let fields = self.fields_mut();
            fields.bytes.extend_from_slice(&other.bytes);
            fields.entries.extend_from_slice(&other.entries);
            fields.split_bytes = other.split_bytes;
        }
    }

    /// The size of the list as HTTP counts it: names, values and 32 for each field (RFC 9113 §6.5.2).
    pub fn list_bytes(&self) -> usize {
        self.fields().bytes.len() + FIELD_OVERHEAD_BYTES * self.len()
    }

    /// The memory it holds, used or not, in bytes.
    pub const fn memory_bytes(&self) -> usize {
        match &self.fields {
            None => 0,
            Some(fields) => {
                size_of::<Fields>() + fields.bytes.capacity() + fields.entries.capacity() * size_of::<Entry>()
            }
        }
    }
}

impl MetadataMap {
    /// The most that [`memory_bytes`](Self::memory_bytes) comes to in a map that was only received into, from a header list of so many
    /// bytes.
    pub(crate) fn memory_bytes_max(list_bytes: usize) -> usize {
        // The list counts more for a field than an entry takes. Memory that grows takes up to twice what it needs, and room for four
        // entries from the first one on.
        list_bytes
            .saturating_add(Self::SPLIT_BYTES_MAX)
            .saturating_mul(2)
            .saturating_add(4 * size_of::<Entry>() + size_of::<Fields>())
    }
}

/// Reading.
impl MetadataMap {
    /// The first value of this name as text.
    ///
    /// `None` also for binary names, see [`get_bin`](Self::get_bin), and for a received value that is not UTF-8, see
    /// [`get_value`](Self::get_value).
    pub fn get(&self, name: &str) -> Option<&str> {
        self.get_value(name)?.to_str()
    }

    /// All values of this name as text, in order; those that are not text are left out.
    pub fn get_all<'m>(&'m self, name: &'m str) -> impl Iterator<Item = &'m str> + Clone {
        self.get_all_values(name).filter_map(|value| value.to_str())
    }

    /// The first value of this binary name, decoded.
    pub fn get_bin(&self, name: &str) -> Option<Vec<u8>> {
        self.get_value(name)?.to_bytes()
    }

    /// All values of this binary name, decoded, in order.
    pub fn get_all_bin<'m>(&'m self, name: &'m str) -> impl Iterator<Item = Vec<u8>> + Clone {
        self.get_all_values(name).filter_map(|value| value.to_bytes())
    }

    /// The first value of this name, whatever its kind.
    pub fn get_value(&self, name: &str) -> Option<Value<'_>> {
        let fields = self.fields();
        let entry = fields.entries.iter().find(|entry| fields.is_named(entry, name))?;
        Some(fields.value(entry))
    }

    /// All values of this name, whatever their kind, in order.
    pub fn get_all_values<'m>(&'m self, name: &'m str) -> impl Iterator<Item = Value<'m>> + Clone {
        let fields = self.fields();
        let named = fields.entries.iter().filter(move |entry| fields.is_named(entry, name));
        named.map(|entry| fields.value(entry))
    }

    /// Whether there is a value of this name.
    pub fn contains_key(&self, name: &str) -> bool {
        let fields = self.fields();
        fields.entries.iter().any(|entry| fields.is_named(entry, name))
    }

    /// The names, each once, in the order they first appear.
    pub fn keys(&self) -> impl Iterator<Item = &str> + Clone {
        let is_first =
            |index: usize, name: &str| !self.iter().take(index).any(|(earlier, _)| earlier == name);
        self.iter()
            .enumerate()
            .filter(move |(index, (name, _))| is_first(*index, name))
            .map(|(_, (name, _))| name)
    }

    /// All names and values, in the order they were added.
    pub fn iter(&self) -> Iter<'_> {
        let fields = self.fields();
        Iter { fields, entries: fields.entries.iter() }
    }

    /// All fields as they go over the wire, in order: name, value (binary ones in base64 without padding), and whether
    /// the value is sensitive.
    pub fn raw_iter(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8], bool)> + Clone {
        let fields = self.fields();
        fields
            .entries
            .iter()
            .map(|entry| (fields.name_bytes(entry), fields.value_bytes(entry), entry.sensitive))
    }
}

/// Writing.
impl MetadataMap {
    /// Replaces all values of this name by this text; it goes to the end of the order.
    ///
    /// # Errors
    ///
    /// A name that is not one, is reserved or is binary; a value that is not printable ASCII; a map that is full. The map
    /// stays as it was.
    pub fn insert(&mut self, name: &str, value: &str) -> Result<(), MetadataError> {
        self.put(name, Form::Text(value), Place::Only, false)
    }

    /// Adds this text behind the values of this name that are there.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](Self::insert).
    pub fn append(&mut self, name: &str, value: &str) -> Result<(), MetadataError> {
        self.put(name, Form::Text(value), Place::Last, false)
    }

    /// Replaces all values of this binary name by these bytes.
    ///
    /// # Errors
    ///
    /// A name that is not one, is reserved or does not end in `-bin`; a map that is full. The map stays as it was.
    pub fn insert_bin(&mut self, name: &str, value: &[u8]) -> Result<(), MetadataError> {
        self.put(name, Form::Binary(value), Place::Only, false)
    }

    /// Adds these bytes behind the values of this binary name that are there.
    ///
    /// # Errors
    ///
    /// Those of [`insert_bin`](Self::insert_bin).
    pub fn append_bin(&mut self, name: &str, value: &[u8]) -> Result<(), MetadataError> {
        self.put(name, Form::Binary(value), Place::Last, false)
    }

    /// [`insert`](Self::insert) of a sensitive value, such as a password or a token.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](Self::insert).
    pub fn insert_sensitive(&mut self, name: &str, value: &str) -> Result<(), MetadataError> {
        self.put(name, Form::Text(value), Place::Only, true)
    }

    /// [`append`](Self::append) of a sensitive value.
    ///
    /// # Errors
    ///
    /// Those of [`insert`](Self::insert).
    pub fn append_sensitive(&mut self, name: &str, value: &str) -> Result<(), MetadataError> {
        self.put(name, Form::Text(value), Place::Last, true)
    }

    /// [`insert_bin`](Self::insert_bin) of a sensitive value.
    ///
    /// # Errors
    ///
    /// Those of [`insert_bin`](Self::insert_bin).
    pub fn insert_bin_sensitive(&mut self, name: &str, value: &[u8]) -> Result<(), MetadataError> {
        self.put(name, Form::Binary(value), Place::Only, true)
    }

    /// [`append_bin`](Self::append_bin) of a sensitive value.
    ///
    /// # Errors
    ///
    /// Those of [`insert_bin`](Self::insert_bin).
    pub fn append_bin_sensitive(&mut self, name: &str, value: &[u8]) -> Result<(), MetadataError> {
        self.put(name, Form::Binary(value), Place::Last, true)
    }

    /// Adds a value of another map as it is, also one that a peer sent and that is not printable ASCII, and as sensitive
    /// as it was there. This is how metadata is echoed or passed on.
    ///
    /// # Errors
    ///
    /// A name that is not one or is reserved; a binary name for a text value or the other way round; a map that is full.
    pub fn append_value(&mut self, name: &str, value: Value<'_>) -> Result<(), MetadataError> {
        let form =
            if value.is_binary() { Form::Base64(value.as_wire()) } else { Form::Received(value.as_wire()) };
        self.put(name, form, Place::Last, value.is_sensitive())
    }

    /// Adds all values of the other map, in its order.
    ///
    /// What would make this map larger than [`BYTES_MAX`](Self::BYTES_MAX) is left out.
    pub fn extend_from(&mut self, other: &Self) {
        let Some(other) = &other.fields else { return };
        let fields = self.fields_mut();
        for entry in &other.entries {
            if fields.has_room(entry.name_len as usize + entry.value_len as usize) {
                let start = fields.bytes.len() as u32;
                fields.bytes.extend_from_slice(other.name_bytes(entry));
                fields.bytes.extend_from_slice(other.value_bytes(entry));
                fields.entries.push(Entry { start, ..*entry });
            }
        }
    }

    /// Drops all values of this name and tells how many there were.
    pub fn remove(&mut self, name: &str) -> usize {
        self.remove_first(name, usize::MAX)
    }

    /// Adds a field that came off the wire: an engine's way in, which refuses no name.
    ///
    /// The name is a lower-case field name and the value a field value that HTTP allows (RFC 9113 §8.2.1); the HTTP/2
    /// engine has seen to both. A text value is kept whatever bytes it has. A binary one is split at its commas, and
    /// each part becomes a value.
    ///
    /// # Errors
    ///
    /// [`MetadataError::Base64`] for a binary value, [`MetadataError::Full`], also if binary values have so many parts that they
    /// would take 16 KiB more than they had on the wire; the map stays as it was.
    pub fn append_received(
        &mut self,
        name: &[u8],
        value: &[u8],
        sensitive: bool,
    ) -> Result<(), MetadataError> {
        if !names::is_binary(name) {
            return self.push(name, trimmed(value), sensitive);
        }
        let commas = value.iter().filter(|&&byte| byte == b',').count();
        let split_bytes =
            self.fields().split_bytes.saturating_add(commas.saturating_mul(name.len() + size_of::<Entry>()));
        if split_bytes > Self::SPLIT_BYTES_MAX {
            return Err(MetadataError::Full);
        }
        let (entries, bytes) = (self.len(), self.fields().bytes.len());
        let result = value.split(|&byte| byte == b',').try_for_each(|part| {
            let part = trimmed(part);
            base64::validate(part).map_err(MetadataError::Base64)?;
            self.push(name, base64::without_padding(part).map_err(MetadataError::Base64)?, sensitive)
        });
        let fields = self.fields_mut();
        if result.is_err() {
            fields.entries.truncate(entries);
            fields.bytes.truncate(bytes);
        } else {
            fields.split_bytes = split_bytes;
        }
        result
    }
}

/// A value in one of the shapes it is given in.
#[derive(Copy, Clone)]
enum Form<'v> {
    Text(&'v str),
    Binary(&'v [u8]),
    /// A text value of another map.
    Received(&'v [u8]),
    /// A binary value of another map.
    Base64(&'v [u8]),
}

/// Where a value goes.
#[derive(Copy, Clone, PartialEq, Eq)]
enum Place {
    /// Behind all others.
    Last,
    /// Behind all others, and those of its name go away.
    Only,
}

/// The ground floor.
impl MetadataMap {
    #[inline]
    fn fields(&self) -> &Fields {
        self.fields.as_deref().unwrap_or(&NO_FIELDS)
    }

    #[inline]
    fn fields_mut(&mut self) -> &mut Fields {
        self.fields.get_or_insert_default()
    }

    fn put(
        &mut self,
        name: &str,
        form: Form<'_>,
        place: Place,
        sensitive: bool,
    ) -> Result<(), MetadataError> {
        names::check(name)?;
        match form {
            Form::Text(_) | Form::Received(_) if names::is_binary(name.as_bytes()) => {
                return Err(MetadataError::BinaryName(name.to_owned()));
            }
            Form::Binary(_) | Form::Base64(_) if !names::is_binary(name.as_bytes()) => {
                return Err(MetadataError::NotBinaryName(name.to_owned()));
            }
            _ => {}
        }
        if let Form::Text(text) = form {
            value::check(name, text)?;
        }
        let before = self.len();
        match form {
            Form::Text(text) => self.push(name.as_bytes(), trimmed(text.as_bytes()), sensitive),
            Form::Received(wire) | Form::Base64(wire) => self.push(name.as_bytes(), wire, sensitive),
            Form::Binary(bytes) => self.push_encoded(name.as_bytes(), bytes, sensitive),
        }?;
        if place == Place::Only {
            self.remove_first(name, before);
        }
        Ok(())
    }

    /// Adds a checked name, in lower case, and a value in the form of the wire.
    fn push(&mut self, name: &[u8], wire: &[u8], sensitive: bool) -> Result<(), MetadataError> {
        self.push_with(name, wire.len(), sensitive, |bytes| bytes.extend_from_slice(wire))
    }

    fn push_encoded(&mut self, name: &[u8], value: &[u8], sensitive: bool) -> Result<(), MetadataError> {
        let encoded_len = base64::encoded_len(value.len().min(Self::BYTES_MAX));
        self.push_with(name, encoded_len, sensitive, |bytes| base64::encode(value, bytes))
    }

    fn push_with(
        &mut self,
        name: &[u8],
        value_len: usize,
        sensitive: bool,
        write_value: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), MetadataError> {
        let fields = self.fields_mut();
        if !fields.has_room(name.len().saturating_add(value_len)) {
            return Err(MetadataError::Full);
        }
        let start = fields.bytes.len();
        fields.bytes.extend_from_slice(name);
        fields.bytes[start..].make_ascii_lowercase();
        write_value(&mut fields.bytes);
        // `BYTES_MAX` keeps all of these far below 2^32.
        let (start, name_len, value_len) = (start as u32, name.len() as u32, value_len as u32);
        fields.entries.push(Entry { start, name_len, value_len, sensitive });
        Ok(())
    }

    /// Drops those of the first `count` entries that have this name, closes the gaps, and tells how many they were.
    fn remove_first(&mut self, name: &str, count: usize) -> usize {
        let before = self.len();
        let mut index = 0;
        let mut unseen = count.min(before);
        while unseen > 0 {
            unseen -= 1;
            if self.fields().is_named(&self.fields().entries[index], name) {
                self.remove_at(index);
            } else {
                index += 1;
            }
        }
        before - self.len()
    }

    fn remove_at(&mut self, index: usize) {
        let fields = self.fields_mut();
        let entry = fields.entries.remove(index);
        fields.bytes.drain(entry.range());
        for later in &mut fields.entries[index..] {
            later.start -= entry.name_len + entry.value_len;
        }
    }
}

impl Fields {
    fn has_room(&self, more: usize) -> bool {
        more <= MetadataMap::BYTES_MAX - self.bytes.len()
    }

    fn is_named(&self, entry: &Entry, name: &str) -> bool {
        entry.name_len as usize == name.len() && self.name_bytes(entry).eq_ignore_ascii_case(name.as_bytes())
    }

    fn name_bytes(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.range()][..entry.name_len as usize]
    }

    fn value_bytes(&self, entry: &Entry) -> &[u8] {
        &self.bytes[entry.range()][entry.name_len as usize..]
    }

    fn value(&self, entry: &Entry) -> Value<'_> {
        Value::new(self.value_bytes(entry), names::is_binary(self.name_bytes(entry)), entry.sensitive)
    }
}

impl Entry {
    /// Where name and value lie in the bytes of the map.
    fn range(&self) -> std::ops::Range<usize> {
        let start = self.start as usize;
        start..start + self.name_len as usize + self.value_len as usize
    }
}

/// `value` without the spaces and tabs at its ends, which are no part of a field value (RFC 9110 §5.5).
fn trimmed(value: &[u8]) -> &[u8] {
    let is_inner = |&byte: &u8| byte != b' ' && byte != b'\t';
    let start = value.iter().position(is_inner).unwrap_or(value.len());
    let end = value.iter().rposition(is_inner).map_or(start, |last| last + 1);
    &value[start..end]
}

/// The names and values of a [`MetadataMap`], in the order they were added.
#[derive(Clone)]
pub struct Iter<'m> {
    fields: &'m Fields,
    entries: std::slice::Iter<'m, Entry>,
}

impl<'m> Iterator for Iter<'m> {
    type Item = (&'m str, Value<'m>);

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.entries.next()?;
        // Field names are ASCII on every way in; one that is not, which only a careless engine could add, reads as empty.
        let name = std::str::from_utf8(self.fields.name_bytes(entry)).unwrap_or_default();
        Some((name, self.fields.value(entry)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl ExactSizeIterator for Iter<'_> {}

impl<'m> IntoIterator for &'m MetadataMap {
    type Item = (&'m str, Value<'m>);
    type IntoIter = Iter<'m>;

    fn into_iter(self) -> Iter<'m> {
        self.iter()
    }
}

impl Clone for MetadataMap {
    fn clone(&self) -> Self {
        let Some(fields) = &self.fields else { return Self::new() };
        let mut clone = Self::with_capacity(fields.entries.len(), fields.bytes.len());
        clone.copy_from(self);
        clone
    }

    /// Copies into the memory that is there.
    fn clone_from(&mut self, source: &Self) {
        self.copy_from(source);
    }
}

/// The same names and values in the same order; how sensitive they are does not count.
impl PartialEq for MetadataMap {
    fn eq(&self, other: &Self) -> bool {
        let fields = |map| Self::raw_iter(map).map(|(name, value, _)| (name, value));
        self.fields().bytes == other.fields().bytes && fields(self).eq(fields(other))
    }
}

impl Eq for MetadataMap {}

impl fmt::Debug for MetadataMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self).finish()
    }
}

#[cfg(test)]
mod tests;

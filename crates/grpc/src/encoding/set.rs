//! The encodings that an end knows, and the choice among them.

use std::borrow::Cow;
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::{Compress, Compression, Encoding};

/// What plain messages are called.
const IDENTITY: &str = "identity";

/// Messages shorter than this, in bytes, are compressed only when that is asked for: what an encoding puts around a message (18
/// bytes for gzip) is more than it saves.
const COMPRESSED_BYTES_MIN: usize = 128;

/// How many encodings one end knows at most: as many as a [`PeerAccepts`] has bits.
const ENCODINGS_MAX: usize = 16;

/// The encodings that an end knows, in order of preference: which it accepts, and which it sends with.
///
/// The two are independent of one another. Cloning is cheap.
///
/// ```
/// # #[cfg(feature = "gzip")] {
/// use std::sync::Arc;
/// use fulmar_grpc::encoding::{Encodings, Gzip};
///
/// let mut encodings = Encodings::default();
/// encodings.accept(Arc::new(Gzip::default()))?;
/// assert_eq!(encodings.accept_value(), "gzip,identity");
/// # }
/// # Ok::<(), fulmar_grpc::encoding::RegisterError>(())
/// ```
#[derive(Clone, Default)]
pub struct Encodings(Option<Arc<Set>>);

#[derive(Clone, Default)]
struct Set {
    entries: Vec<Entry>,
    /// What `grpc-accept-encoding` says.
    accept_value: String,
}

#[derive(Clone)]
struct Entry {
    name: Arc<str>,
    accepts: Option<Arc<dyn Encoding>>,
    sends: Option<Arc<dyn Encoding>>,
}

/// An encoding by its place in the [`Encodings`] of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EncodingId(u8);

/// Which of an end's encodings its peer accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerAccepts(u16);

/// With what the messages of a call are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The encoding.
    pub encoding: EncodingId,
    /// Every message is compressed, and not only one that gets smaller by it.
    pub always: bool,
}

impl Choice {
    /// Whether a message of `length` bytes is to be compressed.
    pub fn tries(self, compress: Compress, length: usize) -> bool {
        match compress {
            Compress::No => false,
            Compress::Yes => true,
            Compress::Default => self.always || length >= COMPRESSED_BYTES_MIN,
        }
    }
}

impl PeerAccepts {
    /// A client does not know what its server accepts, and tries.
    pub const ANYTHING: Self = Self(u16::MAX);

    /// Adds what a `grpc-accept-encoding` names.
    pub(crate) fn add(&mut self, value: &[u8], encodings: &Encodings) {
        for name in value.split(|&byte| byte == b',') {
            let name = name.trim_ascii();
            if let Some(index) = encodings.entries().iter().position(|entry| entry.name.as_bytes() == name) {
                self.0 |= 1 << index;
            }
        }
    }

    const fn has(self, index: usize) -> bool {
        self.0 & 1 << index != 0
    }
}

impl Encodings {
    /// Accepts messages in this encoding. If it is known already, by its name, this one decompresses from here on.
    ///
    /// # Errors
    ///
    /// [`RegisterError`] for a name that cannot be one, or for one encoding too many.
    pub fn accept(&mut self, encoding: Arc<dyn Encoding>) -> Result<(), RegisterError> {
        let entry = self.entry(&*encoding)?;
        entry.accepts = Some(encoding);
        self.write_accept_value();
        Ok(())
    }

    /// Sends with this encoding, where the peer accepts it and where it makes messages smaller, unless a call asks for something
    /// else. If it is known already, by its name, this one compresses from here on.
    ///
    /// # Errors
    ///
    /// As [`accept`](Self::accept).
    pub fn send(&mut self, encoding: Arc<dyn Encoding>) -> Result<(), RegisterError> {
        let entry = self.entry(&*encoding)?;
        entry.sends = Some(encoding);
        self.write_accept_value();
        Ok(())
    }

    /// Whether no encoding is known: all messages are plain.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// What `grpc-accept-encoding` says: the names of what is accepted, and `identity`.
    pub fn accept_value(&self) -> &str {
        self.0.as_ref().map_or(IDENTITY, |set| &set.accept_value)
    }

    /// Whether any encoding is accepted besides `identity`.
    pub(crate) fn accepts_any(&self) -> bool {
        self.entries().iter().any(|entry| entry.accepts.is_some())
    }

    /// The encoding of this name, if messages in it are accepted.
    pub(crate) fn accepted(&self, name: &[u8]) -> Option<EncodingId> {
        let is_it = |entry: &Entry| entry.name.as_bytes() == name && entry.accepts.is_some();
        self.entries().iter().position(is_it).map(|index| EncodingId(index as u8))
    }

    /// What a call gets that asks for `compression`, of a peer that accepts `peer`. None is plain messages.
    ///
    /// # Errors
    ///
    /// [`UnknownEncoding`] if this end knows none of the name asked for, or none at all.
    #[inline]
    pub fn choose(
        &self,
        compression: &Compression,
        peer: PeerAccepts,
    ) -> Result<Option<Choice>, UnknownEncoding> {
        let entries = self.entries();
        if entries.is_empty() && matches!(compression, Compression::Default | Compression::Off) {
            return Ok(None);
        }
        self.choose_among(entries, compression, peer)
    }

    fn choose_among(
        &self,
        entries: &[Entry],
        compression: &Compression,
        peer: PeerAccepts,
    ) -> Result<Option<Choice>, UnknownEncoding> {
        let sends = |(index, entry): &(usize, &Entry)| peer.has(*index) && entry.sends.is_some();
        let first_sent = entries.iter().enumerate().find(sends);
        let (found, always) = match compression {
            Compression::Off => (None, false),
            Compression::Default => (first_sent, false),
            Compression::On if entries.is_empty() => return Err(UnknownEncoding(None)),
            Compression::On => {
                (first_sent.or_else(|| entries.iter().enumerate().find(|&(index, _)| peer.has(index))), true)
            }
            Compression::Encoding(name) if name == IDENTITY => (None, false),
            Compression::Encoding(name) => {
                let known = entries.iter().enumerate().find(|(_, entry)| *entry.name == **name);
                let known = known.ok_or_else(|| UnknownEncoding(Some(name.clone())))?;
                (Some(known).filter(|&(index, _)| peer.has(index)), true)
            }
        };
        Ok(found.map(|(index, _)| Choice { encoding: EncodingId(index as u8), always }))
    }

    /// The name of an encoding.
    pub fn name(&self, encoding: EncodingId) -> Option<&Arc<str>> {
        self.entries().get(usize::from(encoding.0)).map(|entry| &entry.name)
    }

    /// What compresses for an encoding: the one registered for sending, or else the one registered for receiving.
    pub(crate) fn sender(&self, encoding: EncodingId) -> Option<&Arc<dyn Encoding>> {
        let entry = self.entries().get(usize::from(encoding.0))?;
        entry.sends.as_ref().or(entry.accepts.as_ref())
    }

    /// What decompresses for an encoding.
    pub(crate) fn receiver(&self, encoding: EncodingId) -> Option<&Arc<dyn Encoding>> {
        self.entries().get(usize::from(encoding.0))?.accepts.as_ref()
    }

    fn entries(&self) -> &[Entry] {
        self.0.as_ref().map_or(&[], |set| &set.entries)
    }

    fn entry(&mut self, encoding: &dyn Encoding) -> Result<&mut Entry, RegisterError> {
        let name = encoding.name();
        if !is_name(name) {
            return Err(RegisterError::Name(name.to_owned()));
        }
        let known = self.entries().iter().position(|entry| &*entry.name == name);
        if known.is_none() && self.entries().len() == ENCODINGS_MAX {
            return Err(RegisterError::TooMany(name.to_owned()));
        }
        let set = Arc::make_mut(self.0.get_or_insert_default());
        let index = known.unwrap_or_else(|| {
            set.entries.push(Entry { name: name.into(), accepts: None, sends: None });
            set.entries.len() - 1
        });
        Ok(&mut set.entries[index])
    }

    fn write_accept_value(&mut self) {
        let Some(set) = &mut self.0 else { return };
        let set = Arc::make_mut(set);
        let accepted = set.entries.iter().filter(|entry| entry.accepts.is_some());
        let names = accepted.map(|entry| &*entry.name).chain([IDENTITY]);
        set.accept_value = names.collect::<Vec<_>>().join(",");
    }
}

/// Whether an encoding may be called so: a token in lower case that does not mean plain messages.
fn is_name(name: &str) -> bool {
    let is_token_byte =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name != IDENTITY && name.bytes().all(is_token_byte)
}

impl fmt::Debug for Encodings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |entry: &Entry| entry.name.clone();
        let accepts = self.entries().iter().filter(|entry| entry.accepts.is_some()).map(name);
        let sends = self.entries().iter().filter(|entry| entry.sends.is_some()).map(name);
        f.debug_struct("Encodings")
            .field("accepts", &accepts.collect::<Vec<_>>())
            .field("sends", &sends.collect::<Vec<_>>())
            .finish()
    }
}

/// Why an encoding was not registered.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RegisterError {
    /// An encoding cannot be called so.
    Name(String),
    /// This one would be the seventeenth.
    TooMany(String),
}

impl fmt::Display for RegisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => write!(
                f,
                "an encoding cannot be called {name:?}: its name is a token in lower case, and not \"identity\""
            ),
            Self::TooMany(name) => {
                write!(f, "the encoding {name} is one too many: an end knows at most {ENCODINGS_MAX}")
            }
        }
    }
}

impl Error for RegisterError {}

/// A call asks for an encoding that its end does not know: the one of this name, or any at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownEncoding(pub Option<Cow<'static, str>>);

impl fmt::Display for UnknownEncoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(name) => write!(f, "the call asks for the encoding {name:?}, which is not registered here"),
            None => f.write_str("the call asks for compression, and no encoding is registered here"),
        }
    }
}

impl Error for UnknownEncoding {}

//! From `:path` to the method it names, without an allocation.

use std::borrow::Cow;
use std::fmt;

/// A method that a server knows: the place of its path in [`Routes`], dense from 0.
#[derive(Copy, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct MethodId(pub u32);

impl MethodId {
    /// The id as an index into tables that run parallel to [`Routes`].
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The paths of all methods that a server knows.
///
/// Filled once, before the server starts, and shared from then on. Paths are compared byte for byte, so case counts, as
/// the gRPC documents ask.
///
/// ```
/// use fulmar_grpc::Routes;
/// let mut routes = Routes::new();
/// let say_hello = routes.add("/helloworld.Greeter/SayHello")?;
/// assert_eq!(routes.get(b"/helloworld.Greeter/SayHello"), Some(say_hello));
/// assert_eq!(routes.get(b"/helloworld.Greeter/sayhello"), None);
/// # Ok::<(), fulmar_grpc::RouteError>(())
/// ```
#[derive(Clone, Default)]
pub struct Routes {
    paths: Vec<Cow<'static, str>>,
    /// Open addressing: an index into `paths`, or [`VACANT`]. The length is a power of two and at least twice that of
    /// `paths`.
    ///
    /// The hash has no secret. A peer can only look up, never insert: the worst it can choose is the longest run of
    /// occupied slots that the server's own paths make, and the hash is not even computed for a path longer than all
    /// of them.
    slots: Vec<u32>,
    longest_path_bytes: usize,
    fallback: Option<MethodId>,
}

/// An empty slot.
const VACANT: u32 = u32::MAX;

/// Slots of the smallest table.
const SLOTS_MIN: usize = 16;

impl Routes {
    /// No routes.
    pub const fn new() -> Self {
        Self { paths: Vec::new(), slots: Vec::new(), longest_path_bytes: 0, fallback: None }
    }

    /// Adds the method with this path, which has the form `/package.Service/Method`.
    ///
    /// # Errors
    ///
    /// [`RouteError::Malformed`] for a path of another form, [`RouteError::Duplicate`] for one that is there already.
    pub fn add(&mut self, path: impl Into<Cow<'static, str>>) -> Result<MethodId, RouteError> {
        let path = path.into();
        if !is_well_formed(&path) {
            return Err(RouteError::Malformed(path));
        }
        if self.get(path.as_bytes()).is_some() {
            return Err(RouteError::Duplicate(path));
        }
        let id = self.paths.len() as u32;
        self.longest_path_bytes = self.longest_path_bytes.max(path.len());
        self.paths.push(path);
        if self.slots.len() < 2 * self.paths.len() {
            self.rebuild();
        } else {
            self.occupy(id);
        }
        Ok(MethodId(id))
    }

    /// Adds the method that all paths lead to which were not added, as long as they have the form of one. In these routes it has an
    /// empty path; that of a call is [`Server::path`](crate::Server::path).
    ///
    /// # Errors
    ///
    /// [`RouteError::SecondFallback`] if there is one already.
    pub fn add_fallback(&mut self) -> Result<MethodId, RouteError> {
        if self.fallback.is_some() {
            return Err(RouteError::SecondFallback);
        }
        let id = MethodId(self.paths.len() as u32);
        self.paths.push(Cow::Borrowed(""));
        self.fallback = Some(id);
        Ok(id)
    }

    /// The method for a request to `path`: the one that was added with it, or else the one for all others.
    pub fn resolve(&self, path: &[u8]) -> Option<MethodId> {
        let known = self.get(path);
        known.or_else(|| self.fallback.filter(|_| str::from_utf8(path).is_ok_and(is_well_formed)))
    }

    /// The method that was added with `path`, the value of `:path`. No allocation.
    pub fn get(&self, path: &[u8]) -> Option<MethodId> {
        if self.slots.is_empty() || path.len() > self.longest_path_bytes {
            return None;
        }
        let mask = self.slots.len() - 1;
        let mut slot = hash(path) as usize & mask;
        loop {
            let id = self.slots[slot];
            let known = self.paths.get(id as usize)?;
            if known.as_bytes() == path {
                return Some(MethodId(id));
            }
            slot = (slot + 1) & mask;
        }
    }

    /// The path of a method; empty for an id that is not of these routes, and for the method of all other paths.
    pub fn path(&self, method: MethodId) -> &str {
        self.paths.get(method.index()).map_or("", |path| path)
    }

    /// How many methods there are.
    pub fn len(&self) -> usize {
        self.paths.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.paths.is_empty()
    }

    /// All methods with their paths, in the order they were added.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (MethodId, &str)> {
        self.paths.iter().enumerate().map(|(index, path)| (MethodId(index as u32), path.as_ref()))
    }

    fn rebuild(&mut self) {
        let slots = (4 * self.paths.len()).next_power_of_two().max(SLOTS_MIN);
        self.slots.clear();
        self.slots.resize(slots, VACANT);
        for id in 0..self.paths.len() as u32 {
            if self.fallback != Some(MethodId(id)) {
                self.occupy(id);
            }
        }
    }

    fn occupy(&mut self, id: u32) {
        let mask = self.slots.len() - 1;
        let mut slot = hash(self.paths[id as usize].as_bytes()) as usize & mask;
        while self.slots[slot] != VACANT {
            slot = (slot + 1) & mask;
        }
        self.slots[slot] = id;
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(method, path)| (path, method.0))).finish()
    }
}

/// `/Service/Method` in visible ASCII, neither part empty.
fn is_well_formed(path: &str) -> bool {
    let parts = path.strip_prefix('/').and_then(|rest| rest.rsplit_once('/'));
    parts.is_some_and(|(service, method)| !service.is_empty() && !method.is_empty())
        && path.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Eight bytes a step; the length goes in first, so that zero bytes behind a path change the hash.
fn hash(path: &[u8]) -> u64 {
    /// The odd number nearest to 2^64 divided by the golden ratio: its multiples spread over all bits.
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    let mix = |hash: u64, word: u64| (hash.rotate_left(23) ^ word).wrapping_mul(GOLDEN);
    let (words, tail) = path.as_chunks::<8>();
    let mut hash = words.iter().fold(path.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
    if !tail.is_empty() {
        let mut word = [0; 8];
        word[..tail.len()].copy_from_slice(tail);
        hash = mix(hash, u64::from_le_bytes(word));
    }
    // Multiplication only carries upwards, and the table's index is taken from the low bits.
    hash ^ hash >> 32
}

/// Why a path could not be added to [`Routes`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RouteError {
    /// The path is there already: two services of one name were added.
    Duplicate(Cow<'static, str>),
    /// The path has not the form `/package.Service/Method`.
    Malformed(Cow<'static, str>),
    /// There is a method for all other paths already.
    SecondFallback,
}

impl fmt::Display for RouteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Duplicate(path) => write!(f, "the method {path} was added before; add each service once"),
            Self::Malformed(path) => {
                write!(f, "{path:?} is not the path of a method; the form is /package.Service/Method")
            }
            Self::SecondFallback => f.write_str("a method for all unknown paths was added before; add one"),
        }
    }
}

impl std::error::Error for RouteError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn every_added_path_is_found_and_nothing_else() {
        let mut routes = Routes::new();
        for number in 0..2_000 {
            let path = format!("/package{}.Service{}/Method{number}", number % 7, number % 31);
            assert_eq!(routes.add(path), Ok(MethodId(number)));
        }
        assert_eq!(routes.len(), 2_000);
        for (method, path) in routes.iter() {
            assert_eq!(routes.get(path.as_bytes()), Some(method));
            assert_eq!(routes.path(method), path);
            assert_eq!(routes.get(path.to_ascii_lowercase().as_bytes()), None, "case counts");
            assert_eq!(routes.get(&path.as_bytes()[1..]), None);
            assert_eq!(routes.get(&[path.as_bytes(), b"\0"].concat()), None);
        }
    }

    #[test]
    fn unknown_and_malformed_paths_find_nothing() {
        let mut routes = Routes::new();
        assert_eq!(routes.get(b"/a/b"), None, "no routes at all");
        routes.add("/a.B/C").expect("well formed");
        let strange: [&[u8]; 9] = [
            b"",
            b"/",
            b"//",
            b"*",
            b"a.B/C",
            b"/a.B/C/",
            b"/a.B/C?x=1",
            b"/a.B",
            b"\xff\xff\xff\xff\xff\xff",
        ];
        for path in strange {
            assert_eq!(routes.get(path), None);
        }
        assert_eq!(routes.get(&vec![b'/'; 1 << 20]), None);
        assert_eq!(routes.path(MethodId(1)), "");
    }

    #[test]
    fn a_duplicate_is_an_error_and_changes_nothing() {
        let mut routes = Routes::new();
        let first = routes.add("/a.B/C").expect("the first");
        assert_eq!(routes.add(String::from("/a.B/C")), Err(RouteError::Duplicate("/a.B/C".into())));
        assert_eq!(routes.len(), 1);
        assert_eq!(routes.get(b"/a.B/C"), Some(first));
    }

    #[test]
    fn unknown_paths_lead_to_the_fallback_if_there_is_one() {
        let mut routes = Routes::new();
        assert_eq!(routes.resolve(b"/a.B/C"), None);
        let fallback = routes.add_fallback().expect("the first");
        assert_eq!(routes.add_fallback(), Err(RouteError::SecondFallback));
        let known: Vec<MethodId> =
            (0..100).map(|number| routes.add(format!("/a.B/C{number}")).expect("all differ")).collect();
        for (number, &method) in known.iter().enumerate() {
            let path = format!("/a.B/C{number}");
            assert_eq!(routes.resolve(path.as_bytes()), Some(method));
            assert_eq!(routes.path(method), path);
        }
        assert_eq!(routes.resolve(b"/a.B/C100"), Some(fallback));
        assert_eq!((routes.get(b"/a.B/C100"), routes.path(fallback)), (None, ""));
        for malformed in [&b""[..], b"/", b"//", b"*", b"a.B/C", b"/a.B/", b"/\xff/C"] {
            assert_eq!(routes.resolve(malformed), None, "{malformed:?}");
            assert_eq!(routes.get(malformed), None);
        }
    }

    #[test]
    fn only_paths_of_methods_are_taken() {
        let mut routes = Routes::new();
        for path in ["", "/", "//", "a/b", "/a", "/a/", "//b", "/a b/c", "/a/\n", "/é/b"] {
            assert_eq!(routes.add(path), Err(RouteError::Malformed(path.into())), "{path:?}");
        }
        assert!(routes.is_empty());
        routes.add("/nested/service/Method").expect("names of services may hold slashes");
    }

    #[test]
    fn lookups_agree_with_a_sorted_map() {
        let mut random = Random::new(4);
        let mut routes = Routes::new();
        let mut model = std::collections::BTreeMap::new();
        for _ in 0..3_000 {
            let path = format!("/{}/{}", random.below(40), "m".repeat(1 + random.below(20) as usize));
            let found = routes.get(path.as_bytes());
            assert_eq!(found, model.get(&path).copied());
            if found.is_none() && random.below(2) == 0 {
                let method = routes.add(path.clone()).expect("it was not there");
                model.insert(path, method);
            }
        }
        assert_eq!(routes.len(), model.len());
    }

    /// The run of occupied slots is what a peer can make us walk: generated names of the usual shape stay short.
    #[test]
    fn runs_of_occupied_slots_stay_short() {
        let mut routes = Routes::new();
        for number in 0..4_096 {
            routes
                .add(format!("/company.product.v1.Service{}/Do{}", number / 16, number % 16))
                .expect("all differ");
        }
        let doubled: Vec<u32> = routes.slots.iter().chain(&routes.slots).copied().collect();
        let longest = doubled.split(|&slot| slot == VACANT).map(<[u32]>::len).max().unwrap_or(0);
        assert!(longest < 40, "a run of {longest}");
    }
}

//! The parts of requests that repeat: what begins those of one method, and what is the same in all.

use fulmar_http2::Template;

/// How many methods' requests are kept encoded. A client that calls more of them by turns encodes some anew.
const METHODS_MAX: usize = 16;

/// Longer paths are encoded each time.
const PATH_BYTES_MAX: usize = 256;

/// The requests for one method.
#[derive(Debug)]
struct Kept {
    path: String,
    /// What begins them.
    head: Template,
    /// All of those that say nothing of one call.
    whole: Template,
}

impl Kept {
    fn new(path: &str) -> Self {
        Self { path: path.to_owned(), head: Template::new(), whole: Template::new() }
    }
}

/// The encoded parts of requests.
#[derive(Debug, Default)]
pub(crate) struct Templates {
    methods: Vec<Kept>,
    /// The one to be replaced next when all are in use.
    next: usize,
    /// For a path that is not kept.
    other: Template,
    /// What stands behind the timeout.
    pub(crate) rest: Template,
}

impl Templates {
    /// Whether requests for this path are kept: it was found to be one then.
    pub(crate) fn find(&self, path: &str) -> Option<usize> {
        self.methods.iter().position(|known| known.path == path)
    }

    /// Makes a place for requests for this path. `None` for one that is not to be kept.
    pub(crate) fn add(&mut self, path: &str) -> Option<usize> {
        if path.len() > PATH_BYTES_MAX {
            return None;
        }
        if self.methods.len() < METHODS_MAX {
            self.methods.push(Kept::new(path));
            return Some(self.methods.len() - 1);
        }
        self.next = (self.next + 1) % METHODS_MAX;
        let Kept { path: known, head, whole } = &mut self.methods[self.next];
        known.clear();
        known.push_str(path);
        (*head, *whole) = (Template::new(), Template::new());
        Some(self.next)
    }

    /// The templates of what begins a request, and of its rest.
    pub(crate) fn of(&mut self, method: Option<usize>) -> (&mut Template, &mut Template) {
        let Self { methods, other, rest, .. } = self;
        let head = match method.and_then(|method| methods.get_mut(method)) {
            Some(kept) => &mut kept.head,
            None => {
                *other = Template::new();
                other
            }
        };
        (head, rest)
    }

    /// The template of a whole request, for a method that is kept.
    pub(crate) fn whole(&mut self, method: Option<usize>) -> Option<&mut Template> {
        self.methods.get_mut(method?).map(|kept| &mut kept.whole)
    }

    /// Forgets what was encoded: the next requests are for another connection.
    pub(crate) fn forget(&mut self) {
        let methods = self.methods.iter_mut().flat_map(|kept| [&mut kept.head, &mut kept.whole]);
        methods.chain([&mut self.other, &mut self.rest]).for_each(Template::forget);
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        let of = |kept: &Kept| kept.path.capacity() + kept.head.memory_bytes() + kept.whole.memory_bytes();
        let methods = self.methods.iter().map(of);
        self.methods.capacity() * size_of::<Kept>()
            + methods.sum::<usize>()
            + self.other.memory_bytes()
            + self.rest.memory_bytes()
    }

    /// The most that [`memory_bytes`](Self::memory_bytes) comes to.
    pub(crate) fn memory_bytes_max() -> usize {
        let each = size_of::<Kept>() + PATH_BYTES_MAX + 2 * Template::MEMORY_BYTES_MAX;
        2 * (METHODS_MAX + 1) * each + Template::MEMORY_BYTES_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_methods_are_kept_and_none_with_a_long_path() {
        let mut templates = Templates::default();
        let path = |number: usize| format!("/a.B/{number}");
        for number in 0..=METHODS_MAX {
            assert!(templates.add(&path(number)).is_some());
        }
        let kept = (0..=METHODS_MAX).filter(|&number| templates.find(&path(number)).is_some());
        assert_eq!((kept.count(), templates.methods.len()), (METHODS_MAX, METHODS_MAX));
        assert_eq!(templates.add(&"x".repeat(PATH_BYTES_MAX + 1)), None);
        assert!(templates.add(&"x".repeat(PATH_BYTES_MAX)).is_some());
    }
}

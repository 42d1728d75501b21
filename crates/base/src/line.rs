use std::collections::VecDeque;

/// A queue that is mostly empty, or has one element: that one lies in the queue itself, and comes and goes with a comparison or two.
///
/// ```
/// use fulmar_base::Line;
///
/// let mut line = Line::new();
/// line.push_back(1);
/// line.push_back(2);
/// assert!(line.take_back(&2) && !line.take_back(&2));
/// assert_eq!((line.pop_front(), line.pop_front()), (Some(1), None));
/// ```
#[derive(Debug)]
pub struct Line<T> {
    /// All but the last.
    front: VecDeque<T>,
    last: Option<T>,
}

impl<T: PartialEq> Line<T> {
    /// An empty queue, without memory.
    pub const fn new() -> Self {
        Self { front: VecDeque::new(), last: None }
    }

    /// Whether nothing is in it.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        // What is in front of the last goes first.
        self.last.is_none()
    }

    /// Puts an element at the end.
    #[inline]
    pub fn push_back(&mut self, element: T) {
        if let Some(before) = self.last.replace(element) {
            self.front.push_back(before);
        }
    }

    /// Takes the first element out.
    #[inline]
    pub fn pop_front(&mut self) -> Option<T> {
        if self.front.is_empty() { self.last.take() } else { self.front.pop_front() }
    }

    /// Takes the last element out, if it is this one; whether it was.
    #[inline]
    pub fn take_back(&mut self, element: &T) -> bool {
        if self.last.as_ref() != Some(element) {
            return false;
        }
        self.last = if self.front.is_empty() { None } else { self.front.pop_back() };
        true
    }

    /// Drops all elements, and keeps the memory.
    pub fn clear(&mut self) {
        self.front.clear();
        self.last = None;
    }

    /// Bytes of memory held besides the queue's own.
    pub fn memory_bytes(&self) -> usize {
        self.front.capacity() * size_of::<T>()
    }
}

impl<T: PartialEq> Default for Line<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn it_does_what_a_deque_does() {
        let (mut line, mut deque) = (Line::new(), VecDeque::new());
        let mut random = Random::new(7);
        for step in 0..10_000_u32 {
            match random.below(4) {
                0 | 1 => {
                    line.push_back(step);
                    deque.push_back(step);
                }
                2 => assert_eq!(line.pop_front(), deque.pop_front()),
                _ => {
                    let back = deque.back().copied();
                    assert!(!line.take_back(&u32::MAX));
                    if let Some(back) = back {
                        assert!(line.take_back(&back));
                        deque.pop_back();
                    }
                }
            }
            assert_eq!(line.is_empty(), deque.is_empty());
        }
        line.clear();
        assert_eq!((line.is_empty(), line.pop_front()), (true, None));
    }

    #[test]
    fn one_element_takes_no_memory() {
        let mut line = Line::new();
        for n in 0..100 {
            line.push_back(n);
            assert_eq!(line.pop_front(), Some(n));
        }
        assert_eq!(line.memory_bytes(), 0);
    }
}

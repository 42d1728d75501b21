//! Values that travel with a call on this side of the wire.

use std::any::{Any, TypeId};
use std::sync::Arc;

use crate::panics::contained;

/// Values of any types, one of each type, that belong to a call and never leave this process: what an interceptor found out, for the
/// handler; what a caller knows, for its interceptors.
///
/// It costs nothing while it is empty. Clones share the values that are there and go separate ways from then on. A value that
/// panics when it is dropped with the call harms nothing else.
///
/// ```
/// use fulmar::Request;
///
/// #[derive(Debug, PartialEq)]
/// struct User(&'static str);
///
/// let mut request = Request::new("message");
/// request.extensions_mut().insert(User("ada"));
/// assert_eq!(request.extensions().get::<User>(), Some(&User("ada")));
/// ```
#[derive(Clone, Default)]
pub struct Extensions {
    /// None until something is put in.
    values: Option<Arc<Vec<Extension>>>,
}

type Extension = (TypeId, Arc<dyn Any + Send + Sync>);

impl Extensions {
    /// No values.
    pub(crate) const NONE: Self = Self { values: None };

    /// Puts in a value, in place of one of the same type.
    pub fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        let values = Arc::make_mut(self.values.get_or_insert_default());
        let value: Extension = (TypeId::of::<T>(), Arc::new(value));
        match values.iter_mut().find(|(id, _)| *id == value.0) {
            Some(place) => *place = value,
            None => values.push(value),
        }
    }

    /// The value of type `T`.
    pub fn get<T: Send + Sync + 'static>(&self) -> Option<&T> {
        let (_, value) = self.values.as_ref()?.iter().find(|(id, _)| *id == TypeId::of::<T>())?;
        value.downcast_ref()
    }

    /// Takes the value of type `T` out. Clones may still share it.
    pub fn remove<T: Send + Sync + 'static>(&mut self) -> Option<Arc<T>> {
        let values = self.values.as_mut()?;
        let index = values.iter().position(|(id, _)| *id == TypeId::of::<T>())?;
        let (_, value) = Arc::make_mut(values).swap_remove(index);
        value.downcast().ok()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.values.as_ref().is_none_or(|values| values.is_empty())
    }
}

/// The last one is often dropped by a reactor, with a call that is over.
impl Drop for Extensions {
    fn drop(&mut self) {
        if let Some(values) = self.values.take() {
            contained(|| drop(values));
        }
    }
}

impl std::fmt::Debug for Extensions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.values.as_ref().map_or(0, |values| values.len());
        f.debug_struct("Extensions").field("values", &count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_one_value_of_a_type() {
        let mut extensions = Extensions::default();
        assert!(extensions.is_empty() && extensions.get::<u32>().is_none());
        extensions.insert(7_u32);
        extensions.insert("seven");
        extensions.insert(8_u32);
        assert_eq!((extensions.get::<u32>(), extensions.get::<&str>()), (Some(&8), Some(&"seven")));
        assert_eq!(extensions.remove::<u32>().as_deref(), Some(&8));
        assert_eq!(extensions.get::<u32>(), None);
        assert_eq!(extensions.remove::<u32>(), None);
        assert!(!extensions.is_empty());
    }

    #[test]
    fn clones_share_what_was_there_and_nothing_that_comes_later() {
        let mut first = Extensions::default();
        first.insert(String::from("shared"));
        let mut second = first.clone();
        assert!(std::ptr::eq(first.get::<String>().unwrap(), second.get::<String>().unwrap()));
        second.insert(1_u8);
        first.remove::<String>();
        assert_eq!((first.get::<u8>(), second.get::<String>().map(String::as_str)), (None, Some("shared")));
    }
}

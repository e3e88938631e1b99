//! Finding a field by its name among those of a bucket.
//!
//! Documents of one kind have their fields in one order mostly: a guess is tried first. Where it is wrong and there are
//! more than some fields, an index is built, because a bucket may have millions of them.

use std::cell::OnceCell;
use std::collections::HashMap;

/// Fields that are looked through without an index.
const SCANNED_MAX: usize = 16;

/// The places of names in a list that only grows.
#[derive(Clone, Debug, Default)]
pub(super) struct NamePlaces {
    index: OnceCell<HashMap<Box<[u8]>, usize>>,
}

impl NamePlaces {
    /// The first place in `list` of what is called `name`; `near` is the guess.
    pub(super) fn find<T>(&self, list: &[T], name_of: fn(&T) -> &[u8], name: &[u8], near: usize) -> Option<usize> {
        let is_it = |item: &T| name_of(item) == name;
        if list.get(near).is_some_and(is_it) {
            return Some(near);
        }
        if list.len() <= SCANNED_MAX {
            return list.iter().position(is_it);
        }
        let index = self.index.get_or_init(|| {
            // From behind: of equal names the first counts.
            let places = list.iter().enumerate().rev();
            places.map(|(place, item)| (name_of(item).into(), place)).collect()
        });
        index.get(name).copied()
    }

    /// A name that the list did not have comes to its end.
    pub(super) fn pushed(&mut self, name: &[u8], place: usize) {
        if let Some(index) = self.index.get_mut() {
            index.insert(name.into(), place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_names_are_found_by_an_index() {
        let name_of: fn(&Vec<u8>) -> &[u8] = |name| name;
        let (mut list, mut places) = (Vec::new(), NamePlaces::default());
        for n in 0..1000_u32 {
            let name = (n * 7 % 1000).to_string().into_bytes();
            assert_eq!(places.find(&list, name_of, &name, 3), None);
            places.pushed(&name, list.len());
            list.push(name);
        }
        assert_eq!(places.index.get().map(HashMap::len), Some(1000));
        for (place, name) in list.iter().enumerate() {
            assert_eq!(places.find(&list, name_of, name, place), Some(place));
            assert_eq!(places.find(&list, name_of, name, 0), Some(place));
        }
        let few = &list[..SCANNED_MAX];
        let places = NamePlaces::default();
        assert_eq!(places.find(few, name_of, &list[5], 0), Some(5));
        assert!(places.index.get().is_none());
    }

    #[test]
    fn of_equal_names_the_first_counts() {
        let list: Vec<Vec<u8>> = (0..40_u8).map(|n| vec![b'a' + n % 20]).collect();
        for near in [4, 100] {
            assert_eq!(NamePlaces::default().find(&list, |name| name, b"e", near), Some(4));
        }
    }
}

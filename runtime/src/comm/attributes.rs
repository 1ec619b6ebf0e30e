//! What libraries keep with a communicator: one value of each type. Found without a lock, as it is looked for in every call.

use std::any::Any;
use std::sync::OnceLock;

/// Values are added and stay: a chain, of few links, each set once.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    first: OnceLock<Box<Kept>>,
}

#[derive(Debug)]
struct Kept {
    value: Box<dyn Any + Send + Sync>,
    next: OnceLock<Box<Kept>>,
}

impl Attributes {
    /// The value of this type, made now if there is none. Of two that are made at once the first that is done stays.
    pub(super) fn get_or_make<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> &T {
        let mut make = Some(make);
        let mut made: Option<Box<Kept>> = None;
        let mut link = &self.first;
        loop {
            let kept = match link.get() {
                Some(kept) => kept,
                // Made before the link is taken: `make` may come here for another type.
                None => match (make.take(), made.take()) {
                    (Some(make), _) => {
                        made = Some(Box::new(Kept { value: Box::new(make()), next: OnceLock::new() }));
                        continue;
                    }
                    (None, Some(new)) => {
                        made = link.set(new).err();
                        continue;
                    }
                    (None, None) => unreachable!("what was made is in the chain, and found before its end"),
                },
            };
            if let Some(value) = kept.value.downcast_ref() {
                return value;
            }
            link = &kept.next;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn each_type_has_one_value_made_when_it_is_asked_for_first() {
        let attributes = Attributes::default();
        assert_eq!(*attributes.get_or_make(|| 1_u8), 1);
        assert_eq!(*attributes.get_or_make(|| 2_u16), 2);
        assert_eq!(*attributes.get_or_make(|| -> u8 { unreachable!("there is one") }), 1);
        assert_eq!(*attributes.get_or_make(|| -> u16 { unreachable!("there is one") }), 2);
    }

    #[test]
    fn making_one_may_ask_for_another() {
        let attributes = Attributes::default();
        let value = attributes.get_or_make(|| u64::from(*attributes.get_or_make(|| 7_u8)) + 1);
        assert_eq!((*value, *attributes.get_or_make(|| 0_u8)), (8, 7));
    }

    #[test]
    fn threads_that_ask_at_once_get_the_same_value() {
        for _ in 0..200 {
            let (attributes, next) = (Attributes::default(), AtomicUsize::new(0));
            let ask = || std::ptr::from_ref(attributes.get_or_make(|| next.fetch_add(1, Ordering::Relaxed))) as usize;
            let seen: Vec<usize> = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            assert!(seen.iter().all(|place| *place == seen[0]));
        }
    }
}

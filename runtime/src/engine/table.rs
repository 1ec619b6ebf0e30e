//! Operations by name, found without hashing: the lower part of a name is the slot, the upper part counts operations, so
//! that a name is good for one operation only.
//!
//! It knows nothing of what an operation is.

use super::operation::OperationId;

/// Bits of a name that say which slot. The others count 2^36 operations before a name comes again.
const SLOT_BITS: u32 = 28;
const SLOT: OperationId = (1 << SLOT_BITS) - 1;
/// The name of no operation: there is no slot that it could mean.
const FREE: OperationId = OperationId::MAX;
/// Room for this many operations is kept when all are gone.
const KEPT: usize = 1024;

#[derive(Debug)]
pub(crate) struct Table<T> {
    /// Each with its name, or [`FREE`].
    slots: Vec<(OperationId, T)>,
    free: Vec<u32>,
    made: u64,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Table { slots: Vec::new(), free: Vec::new(), made: 0 }
    }
}

/// The slot of a name, whether or not it is taken.
fn slot(id: OperationId) -> usize {
    crate::memory::index(id & SLOT)
}

impl<T: Default> Table<T> {
    /// Makes room for an operation: its name, and a value that is the default one or what [`Table::free`] has left. Values
    /// are large, and stay where they are: moving one that has just been written waits until it is in the cache.
    #[inline]
    pub(crate) fn insert(&mut self) -> (OperationId, &mut T) {
        self.made += 1;
        let free = self.free.pop().map_or(self.slots.len(), |free| free as usize);
        if free == self.slots.len() {
            assert!((free as u64) < SLOT, "fewer than 268 million receives are under way");
            self.slots.push((FREE, T::default()));
        }
        let slot = &mut self.slots[free];
        slot.0 = self.made << SLOT_BITS | free as u64;
        (slot.0, &mut slot.1)
    }

    #[inline]
    pub(crate) fn get(&self, id: OperationId) -> Option<&T> {
        self.slots.get(slot(id)).filter(|(name, _)| *name == id).map(|(_, value)| value)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, id: OperationId) -> Option<&mut T> {
        self.slots.get_mut(slot(id)).filter(|(name, _)| *name == id).map(|(_, value)| value)
    }

    pub(crate) fn remove(&mut self, id: OperationId) -> Option<T> {
        let removed = self.get_mut(id).map(std::mem::take);
        self.free(id);
        removed
    }

    /// Removes an operation without moving it: the next one in its place finds it as it is now.
    #[inline]
    pub(crate) fn free(&mut self, id: OperationId) {
        let Some((name, _)) = self.slots.get_mut(slot(id)).filter(|(name, _)| *name == id) else { return };
        *name = FREE;
        self.free.push(u32::try_from(slot(id)).unwrap_or(u32::MAX));
        if self.slots.len() > KEPT && self.free.len() == self.slots.len() {
            (self.slots, self.free) = (Vec::new(), Vec::new());
        }
    }

    /// All of them, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (OperationId, &T)> {
        self.slots.iter().filter(|(id, _)| *id != FREE).map(|(id, value)| (*id, value))
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    proptest! {
        #[test]
        fn a_name_finds_its_own_operation_only_and_is_never_given_twice(
            steps in proptest::collection::vec((any::<bool>(), any::<usize>()), 0..3000),
        ) {
            let (mut table, mut known, mut gone) = (Table::default(), HashMap::new(), Vec::new());
            for (number, (inserts, which)) in steps.into_iter().enumerate() {
                if inserts || known.is_empty() {
                    let (id, value) = table.insert();
                    *value = number;
                    prop_assert!(id != FREE && !gone.contains(&id));
                    prop_assert!(known.insert(id, number).is_none());
                } else {
                    let id = *known.keys().nth(which % known.len()).unwrap();
                    if which % 2 == 0 {
                        prop_assert_eq!(table.remove(id), known.remove(&id));
                    } else {
                        prop_assert_eq!(table.get(id).copied(), known.remove(&id));
                        table.free(id);
                    }
                    gone.push(id);
                }
            }
            for id in gone.into_iter().chain([0, FREE]) {
                prop_assert!(table.get(id).is_none() && table.get_mut(id).is_none() && table.remove(id).is_none());
            }
            prop_assert_eq!(table.len(), known.len());
            prop_assert_eq!(table.iter().map(|(id, number)| (id, *number)).collect::<HashMap<_, _>>(), known);
        }
    }

    #[test]
    fn many_operations_at_once_leave_no_memory_behind() {
        let mut table = Table::<u32>::default();
        let ids: Vec<_> = (0..100_000).map(|_| table.insert().0).collect();
        for id in ids {
            assert!(table.remove(id).is_some());
        }
        assert_eq!((table.slots.capacity(), table.len()), (0, 0));
    }
}

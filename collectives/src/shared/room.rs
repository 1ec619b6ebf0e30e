//! The memory that ranks of a host share, as the protocols of the shared forms want it: the one place where elements in it
//! are slices. Everything else is generic over it.

use super::memory::RoomMemory;
use spmd::comm::Room;
use spmd::element::Element;
use std::sync::atomic::Ordering;

impl RoomMemory for Room {
    #[inline]
    fn load(&self, rank: usize, line: usize, index: usize, order: Ordering) -> u64 {
        self.word(rank, line, index).load(order)
    }

    #[inline]
    fn store(&self, rank: usize, line: usize, index: usize, value: u64, order: Ordering) {
        self.word(rank, line, index).store(value, order);
    }

    fn increment(&self, rank: usize, line: usize, index: usize, order: Ordering) -> u64 {
        self.word(rank, line, index).fetch_add(1, order)
    }

    fn read<T: Element, R>(&self, rank: usize, offset: usize, length: usize, use_them: impl FnOnce(&[T]) -> R) -> R {
        // SAFETY: nobody writes there meanwhile, by the order of signals: see the protocols, which loom checks.
        use_them(unsafe { self.elements(rank, offset, length) })
    }

    fn write<T: Element, R>(&self, offset: usize, length: usize, use_them: impl FnOnce(&mut [T]) -> R) -> R {
        // SAFETY: nobody else accesses them meanwhile, by the order of signals; within this rank the call holds the lock of
        // its communicator.
        use_them(unsafe { self.own_elements(offset, length) })
    }

    fn shares_processors(&self) -> bool {
        Room::shares_processors(self)
    }
}

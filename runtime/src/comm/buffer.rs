//! Buffers as the engine sees them: bytes, lent for the time of a call or owned.

use crate::{
    element::{self, Element},
    engine::operation::{Buffers, Lent, OwnedBuffer},
};
use std::any::Any;

/// What a blocking call lends: one slice to send and one to receive into.
pub(super) struct LentPair<'a> {
    pub(super) call: u64,
    pub(super) source: &'a [u8],
    pub(super) destination: &'a mut [u8],
}

impl Buffers for LentPair<'_> {
    fn source(&self, lent: Lent) -> Option<&[u8]> {
        (lent.call == self.call).then_some(self.source)
    }

    fn destination(&mut self, lent: Lent) -> Option<&mut [u8]> {
        (lent.call == self.call).then_some(&mut *self.destination)
    }
}

/// A vector that the engine owns while an operation is under way.
#[derive(Debug)]
pub(super) struct Growing<T>(pub(super) Vec<T>);

impl<T> Default for Growing<T> {
    fn default() -> Self {
        Growing(Vec::new())
    }
}

impl<T: Element> OwnedBuffer for Growing<T> {
    fn bytes(&self) -> &[u8] {
        element::as_bytes(&self.0)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        element::as_bytes_mut(&mut self.0)
    }

    fn resize(&mut self, bytes: usize) -> bool {
        let size = size_of::<T>();
        if size == 0 || !bytes.is_multiple_of(size) {
            return bytes == 0;
        }
        self.0.resize(bytes / size, bytemuck::Zeroable::zeroed());
        true
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

//! Buffers as the engine sees them: bytes, lent for the time of a call or owned.

use crate::{
    element::{self, Element},
    engine::operation::{Awaited, Buffers, Lent, OwnedBuffer},
};
use std::{any::Any, borrow::Cow};

/// What a blocking call lends: one slice to send and one to receive into.
pub(super) struct LentPair<'a> {
    pub(super) call: u64,
    pub(super) source: &'a [u8],
    pub(super) destination: &'a mut [u8],
    /// The receive into `destination`, while it is in no table.
    pub(super) awaited: Option<Awaited>,
}

impl Buffers for LentPair<'_> {
    fn source(&self, lent: Lent) -> Option<&[u8]> {
        (lent.call == self.call).then_some(self.source)
    }

    fn destination(&mut self, lent: Lent) -> Option<&mut [u8]> {
        (lent.call == self.call).then_some(&mut *self.destination)
    }

    fn awaited(&mut self) -> Option<(&mut Awaited, &mut [u8])> {
        self.awaited.as_mut().map(|awaited| (awaited, &mut *self.destination))
    }
}

/// Bytes of an element on the wire: elements of size zero count as one byte each, so that a message tells how many it has.
pub(super) const fn width<T>() -> usize {
    if size_of::<T>() == 0 { 1 } else { size_of::<T>() }
}

/// The bytes of a slice as they are sent.
pub(super) fn lend<T: Element>(data: &[T]) -> Cow<'_, [u8]> {
    if size_of::<T>() == 0 { Cow::Owned(vec![0; data.len()]) } else { Cow::Borrowed(element::as_bytes(data)) }
}

/// The bytes of a slice as they are received; `marks` stand for elements without any.
pub(super) fn lend_mut<'a, T: Element>(buffer: &'a mut [T], marks: &'a mut Vec<u8>) -> &'a mut [u8] {
    if size_of::<T>() > 0 {
        return element::as_bytes_mut(buffer);
    }
    marks.resize(buffer.len(), 0);
    marks
}

/// A vector that the engine owns while an operation is under way.
#[derive(Debug)]
pub(super) struct Growing<T> {
    pub(super) elements: Vec<T>,
    /// One byte for each element, if these have none.
    marks: Vec<u8>,
}

impl<T> Growing<T> {
    pub(super) fn new(elements: Vec<T>) -> Self {
        let marks = if size_of::<T>() == 0 { vec![0; elements.len()] } else { Vec::new() };
        Growing { elements, marks }
    }
}

impl<T> Default for Growing<T> {
    fn default() -> Self {
        Growing::new(Vec::new())
    }
}

impl<T: Element> OwnedBuffer for Growing<T> {
    fn bytes(&self) -> &[u8] {
        if size_of::<T>() == 0 { &self.marks } else { element::as_bytes(&self.elements) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        if size_of::<T>() == 0 { &mut self.marks } else { element::as_bytes_mut(&mut self.elements) }
    }

    fn resize(&mut self, bytes: usize) -> bool {
        if !bytes.is_multiple_of(width::<T>()) {
            return false;
        }
        self.elements.resize(bytes / width::<T>(), bytemuck::Zeroable::zeroed());
        if size_of::<T>() == 0 {
            self.marks.resize(bytes, 0);
        }
        true
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

//! Buffers as the engine sees them: bytes, lent for the time of a call.

use crate::{
    element::{self, Element},
    engine::operation::{Awaited, Buffers, Lent},
};
use std::borrow::Cow;

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

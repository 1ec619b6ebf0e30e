//! Messages out of and into buffers of a symmetric heap.

use super::{Communicator, Source, Status, Tag, check_tag, expected, narrow_rank};
use crate::{
    element::Element,
    engine::operation::{Landing, NoBuffers, Source as From_},
    error::Result,
    heap::HeapBuffer,
    memory::Activity,
};

/// Up to this many bytes a message is copied and sent as any other: announcing it would take longer.
const COPIED: usize = 8 << 10;

impl Communicator {
    /// Sends this rank's elements of a heap buffer, as [`Communicator::send`] does. A large message to a rank that has the
    /// heap's memory mapped is copied once, by the receiver, straight out of it. The buffer must not be changed meanwhile.
    ///
    /// # Errors
    /// As for [`Communicator::send`].
    pub fn send_buffer<T: Element>(&self, buffer: &HeapBuffer<T>, dest: usize, tag: i32) -> Result<()> {
        buffer.check("send_buffer")?;
        let peer = self.peer(dest, "send_buffer")?;
        if buffer.bytes() <= COPIED || !buffer.is_mapped_at(peer) {
            return self.send(&buffer.to_vec(), dest, tag);
        }
        let header = self.header::<T>(buffer.len(), check_tag(tag, "send_buffer")?);
        let runtime = self.runtime();
        let id = runtime.lock().start_send(peer, header, self.inner.hint.of_message(), From_::Heap(buffer.place()))?;
        let to = Activity::Send { to: narrow_rank(peer), tag: tag.unsigned_abs() };
        let sent = runtime.wait(to, &mut NoBuffers, |engine, _| engine.take_send(id).map(|result| result.map(drop)));
        if sent.is_err() {
            runtime.lock().abandon_send(id);
        }
        sent
    }

    /// Receives a message into the front of this rank's elements of a heap buffer, as [`Communicator::recv`] does.
    ///
    /// # Errors
    /// As for [`Communicator::recv`].
    pub fn recv_buffer<T: Element>(
        &self,
        buffer: &HeapBuffer<T>,
        source: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Status> {
        buffer.check("recv_buffer")?;
        let pattern = self.pattern(source.into(), tag.into(), "recv_buffer")?;
        let landing = Landing::Heap(Box::new(buffer.place()));
        let expected = expected::<T>(buffer.bytes(), false);
        let runtime = self.runtime();
        let id = runtime.lock().start_receive(self.inner.context, pattern, expected, landing, &mut NoBuffers)?;
        let (from, tag) = Self::shown(pattern);
        let activity = Activity::Receive { from, tag };
        match runtime.wait(activity, &mut NoBuffers, |engine, none| engine.take_receive(id, none)) {
            Ok((envelope, _)) => Ok(self.status(&envelope)),
            Err(error) => {
                runtime.lock().abandon_receive(id);
                Err(error)
            }
        }
    }
}

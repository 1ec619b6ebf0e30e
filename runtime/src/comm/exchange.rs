//! Several sends and receives at once out of borrowed buffers: what a collective operation is made of.

use super::Communicator;
use crate::{
    element::Signature,
    engine::Span,
    engine::operation::{self, Expected, Landing, Lent, OperationId, Source as From_},
    error::Result,
    matching::Pattern,
    memory::{Activity, Operation},
    trace::What,
    transport::record::{Header, Kind},
};

/// The buffers of an exchange, by the numbers that the caller gave its operations.
///
/// They are asked for whenever bytes can move, in any order and several times: the answer must be the same slice as long
/// as the operation is under way.
pub trait Buffers {
    /// The bytes that operation `op` sends.
    fn source(&self, op: u32) -> &[u8];
    /// The room that operation `op` receives into.
    fn destination(&mut self, op: u32) -> &mut [u8];
}

/// A collective operation under way on one rank. Messages of different exchanges never mix.
///
/// Dropping it gives up what is not complete: receives are withdrawn and sends are not made, so that an error on one
/// rank ends in errors, not in other ranks' memory.
#[derive(Debug)]
pub struct Exchange<'a> {
    communicator: &'a Communicator,
    /// The number of the exchange in its communicator, in the upper half of every tag.
    number: u64,
    operation: Operation,
    /// The size hint that its messages go by.
    hint: usize,
    call: u64,
    pending: Vec<Pending>,
    completed: Vec<u32>,
    /// Recorded from begin to end.
    _span: Span<'a>,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    op: u32,
    id: OperationId,
    sends: bool,
}

/// Lends the caller's buffers to the engine under the name of this exchange.
struct Adapter<'a, B: Buffers + ?Sized> {
    call: u64,
    buffers: &'a mut B,
}

impl<B: Buffers + ?Sized> operation::Buffers for Adapter<'_, B> {
    fn source(&self, lent: Lent) -> Option<&[u8]> {
        (lent.call == self.call).then(|| self.buffers.source(lent.number))
    }

    fn destination(&mut self, lent: Lent) -> Option<&mut [u8]> {
        (lent.call == self.call).then(|| self.buffers.destination(lent.number))
    }
}

impl<'a> Exchange<'a> {
    pub(super) fn new(communicator: &'a Communicator, operation: Operation, number: u64, hint: usize) -> Self {
        let call = communicator.runtime().lock().new_call();
        let activity = Activity::Collective { operation, number: counted(number) };
        let _span = communicator.runtime().span(What::Call(activity));
        Exchange { communicator, number, operation, hint, call, pending: Vec::new(), completed: Vec::new(), _span }
    }

    fn context(&self) -> u64 {
        self.communicator.inner.context | 1
    }

    fn tag(&self, label: u32) -> u64 {
        self.number << 32 | u64::from(label)
    }

    /// Begins to send `bytes` bytes of elements with this signature to `peer`. `op` names the operation to the caller,
    /// `label` tells messages between the same two ranks apart.
    ///
    /// # Errors
    /// When the peer does not exist, is lost, or has dropped its world.
    pub fn send(&mut self, op: u32, peer: usize, label: u32, signature: Signature, bytes: usize) -> Result<()> {
        let peer = self.communicator.peer(peer, "a collective")?;
        let header = Header {
            context: self.context(),
            tag: self.tag(label),
            total: bytes as u64,
            signature: signature.0,
            ..Header::new(Kind::Eager)
        };
        let lent = From_::Lent(Lent { call: self.call, number: op });
        let id = self.communicator.runtime().lock().start_send(peer, header, self.hint, lent)?;
        self.pending.push(Pending { op, id, sends: true });
        Ok(())
    }

    /// Begins to receive exactly `bytes` bytes of elements with this signature from `peer`.
    ///
    /// # Errors
    /// When the peer does not exist, is lost, or has dropped its world.
    pub fn receive<B: Buffers + ?Sized>(
        &mut self,
        op: u32,
        peer: usize,
        label: u32,
        signature: Signature,
        bytes: usize,
        buffers: &mut B,
    ) -> Result<()> {
        let peer = self.communicator.peer(peer, "a collective")?;
        let pattern = Pattern { source: Some(peer), tag: Some(self.tag(label)) };
        let expected = Expected { signature, element: None, room: bytes, exact: true };
        let landing = Landing::Lent(Lent { call: self.call, number: op });
        let mut adapter = Adapter { call: self.call, buffers };
        let id = self.communicator.runtime().lock().start_receive(
            self.context(),
            pattern,
            expected,
            landing,
            &mut adapter,
        )?;
        self.pending.push(Pending { op, id, sends: false });
        Ok(())
    }

    /// Waits until at least one operation has completed and returns the numbers of those that have. Returns nothing when
    /// nothing is under way.
    ///
    /// # Errors
    /// The first error of any operation: a peer that is lost, or that called the collective with another length or type.
    pub fn advance<B: Buffers + ?Sized>(&mut self, buffers: &mut B) -> Result<&[u32]> {
        self.completed.clear();
        if self.pending.is_empty() {
            return Ok(&self.completed);
        }
        let (pending, completed) = (&mut self.pending, &mut self.completed);
        let mut adapter = Adapter { call: self.call, buffers };
        let activity = Activity::Collective { operation: self.operation, number: counted(self.number) };
        self.communicator.runtime().wait(activity, &mut adapter, |engine, adapter| {
            let mut failed = None;
            pending.retain(|operation| {
                let done = if operation.sends {
                    engine.take_send(operation.id).map(|result| result.map(drop))
                } else {
                    engine.take_receive(operation.id, adapter).map(|result| result.map(drop))
                };
                match done {
                    None => return true,
                    Some(Ok(())) => completed.push(operation.op),
                    Some(Err(error)) => failed = failed.take().or(Some(error)),
                }
                false
            });
            match failed {
                Some(error) => Some(Err(error)),
                None => (!completed.is_empty()).then_some(Ok(())),
            }
        })?;
        Ok(&self.completed)
    }
}

/// The number of an exchange as people count.
fn counted(number: u64) -> u32 {
    u32::try_from(number.saturating_add(1)).unwrap_or(u32::MAX)
}

impl Drop for Exchange<'_> {
    fn drop(&mut self) {
        if self.pending.is_empty() {
            return;
        }
        let mut engine = self.communicator.runtime().lock();
        for operation in &self.pending {
            if operation.sends {
                engine.abandon_send(operation.id);
            } else {
                engine.abandon_receive(operation.id);
            }
        }
    }
}

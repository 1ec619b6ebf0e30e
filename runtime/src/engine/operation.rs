//! Sends and receives in progress: where their bytes are and how far they have come.

use super::{
    coverage::Coverage,
    direct::{HeapPlace, Offer},
    vector::AnyVec,
};
use crate::{
    element::Signature,
    error::{Error, Result},
    matching::{Pattern, Place, Ticket},
    protocol::Path,
    transport::record::{Header, Payload},
};

/// Names an operation within one rank. Never reused.
pub(crate) type OperationId = u64;

/// Names a buffer that a blocked call lends to the engine while it makes progress: the call and a number of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lent {
    pub(crate) call: u64,
    pub(crate) number: u32,
}

/// The buffers of the call that is making progress. Another thread's call may progress meanwhile, without them: then
/// bytes are kept aside, and sends wait.
pub(crate) trait Buffers {
    /// The bytes of a send of this call.
    fn source(&self, lent: Lent) -> Option<&[u8]>;
    /// The room of a receive of this call.
    fn destination(&mut self, lent: Lent) -> Option<&mut [u8]>;
    /// The receive of this call that is in no table, and its room.
    fn awaited(&mut self) -> Option<(&mut Awaited, &mut [u8])> {
        None
    }
}

/// A blocking receive that is in no table: while its call makes progress it takes a small message straight from the
/// transport. Whatever else happens, the call puts it into the table, where all other receives are.
#[derive(Debug)]
pub(crate) struct Awaited {
    pub(crate) context: u64,
    pub(crate) pattern: Pattern,
    pub(crate) expected: Expected,
    pub(crate) done: Option<Result<Envelope>>,
}

/// A call that lends nothing.
pub(crate) struct NoBuffers;

impl Buffers for NoBuffers {
    fn source(&self, _: Lent) -> Option<&[u8]> {
        None
    }

    fn destination(&mut self, _: Lent) -> Option<&mut [u8]> {
        None
    }
}

/// Where a send's bytes are.
pub(crate) enum Source {
    Lent(Lent),
    Owned(AnyVec),
    /// In this rank's part of a symmetric heap, which the receiver has mapped.
    Heap(HeapPlace),
}

/// Where a receive's bytes go.
#[derive(Default)]
pub(crate) enum Landing {
    Lent(Lent),
    /// Into this buffer, which holds what the receive has room for.
    Owned(AnyVec),
    /// Into this buffer, which is made as long as the message.
    Growing(AnyVec),
    /// Into this rank's part of a symmetric heap.
    Heap(Box<HeapPlace>),
    /// Nowhere: nobody wants them any more.
    #[default]
    Nowhere,
}

/// How far the first record of a send is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The peer's credit does not allow it yet.
    Held,
    /// It counts as sent, and waits for room in the transport.
    Queued,
    /// It has been announced.
    Gone,
}

pub(crate) struct Sending {
    pub(crate) peer: usize,
    /// As it goes out first; eager or announced is decided when it goes.
    pub(crate) header: Header,
    /// The way it takes when the receiver keeps up; without credit even a small message is announced.
    pub(crate) path: Path,
    pub(crate) stage: Stage,
    pub(crate) source: Source,
    /// Bytes of a large message handed to the transport so far.
    pub(crate) sent: usize,
    /// The receiver's name for a large message, once it is ready.
    pub(crate) receiver: Option<OperationId>,
    pub(crate) done: Option<Result<()>>,
    /// Nobody will ask: forget it when it is done.
    pub(crate) detached: bool,
}

impl Sending {
    /// Bytes of the whole message.
    pub(crate) fn total(&self) -> usize {
        usize::try_from(self.header.total).expect("it is the length of a slice")
    }
}

/// What a receive accepts and what it reports when it does not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Expected {
    pub(crate) signature: Signature,
    /// The element type's name for messages, where it is known.
    pub(crate) element: Option<&'static str>,
    /// The largest message in bytes.
    pub(crate) room: usize,
    /// The message must have exactly `room` bytes.
    pub(crate) exact: bool,
}

/// A message as the receiver sees it. The source is a rank of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Envelope {
    pub(crate) source: usize,
    pub(crate) tag: u64,
    pub(crate) bytes: usize,
}

/// What became of a receive. The error is rare, and larger than all the rest.
pub(crate) type Outcome = std::result::Result<Envelope, Box<Error>>;

#[derive(Default)]
pub(crate) struct Receiving {
    pub(crate) context: u64,
    /// Finds it among the receives that wait for a message.
    pub(crate) posted: Option<Ticket>,
    pub(crate) expected: Expected,
    pub(crate) landing: Landing,
    /// Bytes that came while the landing was not lent, each with the offset where they belong.
    pub(crate) aside: Vec<(usize, Vec<u8>)>,
    /// The type of the message that it has met, and the message's place, should it have to wait again.
    pub(crate) met: Option<(Signature, Place)>,
    /// The large message that is arriving.
    pub(crate) arriving: Option<Box<Arriving>>,
    pub(crate) done: Option<Outcome>,
    pub(crate) detached: bool,
    /// It was given up while its message was arriving: who gets that message.
    pub(crate) orphan: Option<Orphan>,
}

/// A large message on its way into a receive.
#[derive(Debug)]
pub(crate) struct Arriving {
    pub(crate) envelope: Envelope,
    /// What of it has come.
    pub(crate) coverage: Coverage,
    /// It arrives in another receive, which was given up.
    pub(crate) from: Option<OperationId>,
}

impl Arriving {
    /// Whether its pieces come from this peer to this very receive.
    pub(crate) fn is_asked_of(&self, peer: usize) -> bool {
        self.from.is_none() && self.envelope.source == peer
    }
}

/// Who gets a message whose receive was given up.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Orphan {
    /// Nobody yet: it waits among those that came before their receive.
    Waits(Ticket),
    /// Whoever has found it by a matched probe.
    Found,
    /// This receive.
    Heir(OperationId),
}

impl Receiving {
    /// Begins anew. Field by field: what is built elsewhere would have to be moved here.
    #[inline]
    pub(crate) fn begin(&mut self, context: u64, expected: Expected, landing: Landing) {
        self.context = context;
        self.posted = None;
        self.expected = expected;
        self.landing = landing;
        self.aside.clear();
        self.met = None;
        self.arriving = None;
        self.done = None;
        self.detached = false;
        self.orphan = None;
    }

    /// The front of the buffer that it owns.
    pub(crate) fn landed(&self, bytes: usize) -> Vec<u8> {
        match &self.landing {
            Landing::Owned(buffer) | Landing::Growing(buffer) => buffer.bytes()[..bytes].to_vec(),
            Landing::Lent(_) | Landing::Heap(_) | Landing::Nowhere => {
                unreachable!("what does not own its buffer has no heir")
            }
        }
    }

    /// Puts the bytes that are kept aside where they belong, if that is lent now.
    #[inline]
    pub(crate) fn settle(&mut self, buffers: &mut dyn Buffers) {
        if !self.aside.is_empty() {
            self.settle_what_is_aside(buffers);
        }
    }

    fn settle_what_is_aside(&mut self, buffers: &mut dyn Buffers) {
        if let Landing::Lent(lent) = self.landing
            && let Some(room) = buffers.destination(lent)
        {
            for (at, bytes) in self.aside.drain(..) {
                room[at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
    }

    /// Keeps what is there of a piece until its landing is lent. Returns how much.
    pub(crate) fn keep_aside(&mut self, at: usize, payload: &mut dyn Payload) -> usize {
        let length = payload.len();
        // Pieces that follow each other share one allocation.
        let kept = match self.aside.last_mut() {
            Some((start, bytes)) if *start + bytes.len() == at => bytes,
            _ => {
                self.aside.push((at, Vec::new()));
                &mut self.aside.last_mut().expect("just pushed").1
            }
        };
        let old = kept.len();
        kept.resize(old + length, 0);
        let copied = payload.copy_to(&mut kept[old..]);
        kept.truncate(old + copied);
        copied
    }

    /// Whether a message from `peer` is arriving.
    pub(crate) fn is_arriving_from(&self, peer: usize) -> bool {
        self.arriving.as_ref().is_some_and(|arriving| arriving.envelope.source == peer)
    }
}

/// A message that came before its receive.
#[derive(Debug)]
pub(crate) struct Early {
    pub(crate) signature: Signature,
    pub(crate) total: usize,
    pub(crate) body: EarlyBody,
}

#[derive(Debug)]
pub(crate) enum EarlyBody {
    /// The whole message, sent unasked.
    Here(Vec<u8>),
    /// The whole message, which was asked for by a receive that was given up.
    Whole(Vec<u8>),
    /// It is arriving in this receive, which was given up.
    Arriving(OperationId),
    /// It waits at the sender under this id.
    AtSender(OperationId, Option<Offer>),
}

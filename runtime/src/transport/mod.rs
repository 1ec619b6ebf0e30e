//! Transports carry records between ranks: within a process, over the segment of a host, over RDMA, or over TCP.
//!
//! A transport keeps one order of the records of a pair of ranks, whatever channel they take, and loses none; only pieces
//! of large messages ([`Kind::Data`](record::Kind::Data)), which say where they belong, may come in any order among
//! themselves and with the others. It knows nothing of messages, matching or communicators. Nothing above asks which
//! transport it talks to: what it can do is data ([`Capabilities`]).

pub(crate) mod choice;
pub(crate) mod faulty;
pub(crate) mod loopback;
pub(crate) mod record;
pub(crate) mod shm;
pub(crate) mod tcp;
pub(crate) mod verbs;

use crate::{
    error::{LinkError, Result},
    explain::PortUsed,
    memory::heap::HeapMemory,
    protocol::{Capabilities, Tier},
    statistics::DeviceStatistics,
    verbs::Remote,
};
use record::{Header, Payload};
use std::sync::Arc;

/// Takes what a transport has received.
pub(crate) trait Sink {
    /// A record from `peer`, in order. The payload must be copied before this returns.
    fn record(&mut self, peer: usize, header: &Header, payload: &mut dyn Payload) -> Result<()>;
    /// A whole message ([`record::Kind::Eager`]) of which only the beginning is here. When a receive waits for it, its
    /// name: the message is then delivered as pieces for that. `None`: it must be delivered whole.
    fn begin(&mut self, peer: usize, header: &Header) -> Result<Option<u64>>;
    /// Whether the call that makes progress has what it waits for: what has come after that may stay where it is.
    fn is_served(&mut self) -> bool {
        false
    }
    /// Nothing more will come from `peer` and nothing more reaches it.
    fn departed(&mut self, peer: usize, departure: Departure);
}

/// Why a peer is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Departure {
    /// It has dropped its `World` in order.
    Finished,
    /// The connection to it broke or cannot be made.
    Lost(String),
    /// A network device gave the connection up.
    Broken(Arc<LinkError>),
}

/// What has become of a one-sided operation that a transport was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direct<T> {
    /// It is under way, or done.
    Done(T),
    /// Not now: to be asked again after `poll`.
    Busy,
    /// This transport cannot, for this peer.
    Impossible,
}

/// Bytes that one request fetches from a peer's memory at most.
pub(crate) const MOST_FETCHED: usize = 64 << 10;

/// Names a symmetric heap: the context of its communicator and its number there.
pub(crate) type HeapKey = (u64, u64);

/// One way to move records between ranks. Ranks are those of the world.
pub(crate) trait Transport: Send {
    /// What it can do: the same from the time it is made on.
    fn capabilities(&self) -> Capabilities;

    /// Hands one record over; `false` when there is no room now (try again after `poll`). `tier`: the channel to take,
    /// where there are two. `later`: it need not leave before the next `poll`, so that several may leave together.
    fn push(&mut self, peer: usize, header: &Header, payload: &[u8], tier: Tier, later: bool) -> Result<bool>;

    /// Delivers what has arrived, a bounded amount; `true` when anything moved in either direction.
    fn poll(&mut self, sink: &mut dyn Sink) -> Result<bool>;

    /// Tells what it has counted: names and numbers of its own.
    fn counters(&self, _tell: &mut dyn FnMut(&'static str, u64)) {}

    /// Tells what it has counted for one peer.
    fn link_counters(&self, _peer: usize, _tell: &mut dyn FnMut(&'static str, u64)) {}

    /// What its network device has counted since this rank opened it.
    fn device(&self) -> Option<DeviceStatistics> {
        None
    }

    /// The port that its connections use, where it has one.
    fn port(&self) -> Option<PortUsed> {
        None
    }

    /// Why TCP takes its place for this peer, where it does.
    fn fallen_back(&self, _peer: usize) -> Option<&str> {
        None
    }

    /// Before the rank sleeps on its descriptors: from now on, everything that makes `poll` worth calling wakes it.
    /// The caller polls once more before it sleeps.
    fn arm(&mut self);

    /// The rank is awake again.
    fn disarm(&mut self);

    /// Fills `out` from this address of the peer's memory; `false` when that is not possible.
    fn read_memory(&mut self, _peer: usize, _address: u64, _out: &mut [u8]) -> bool {
        false
    }

    /// How often this rank has let go of memory that peers may have been reading.
    fn withdrawals(&self) -> u64 {
        0
    }

    /// How often the peer has.
    fn withdrawals_of(&self, _peer: usize) -> u64 {
        0
    }

    /// This rank is about to let go of memory that peers may be reading.
    fn withdraw(&mut self) {}

    /// Makes this rank's part of a heap accessible to peers without this rank's help: what they must know for that. `None`:
    /// it cannot, and says why itself where that is news.
    fn expose(&mut self, _heap: HeapKey, _memory: &Arc<HeapMemory>) -> Option<Remote> {
        None
    }

    /// The heap is being dropped.
    fn conceal(&mut self, _heap: HeapKey) {}

    /// Puts the front of `bytes` into memory that the peer has exposed: how many. Whoever sees a record of kind `Update` or
    /// `Get` that is pushed later sees them, too.
    fn put(&mut self, _peer: usize, _there: Remote, _bytes: &[u8]) -> Result<Direct<usize>> {
        Ok(Direct::Impossible)
    }

    /// The same with bytes of this rank's own part of a heap that it has exposed, from offset `at`, which must not change
    /// until [`Transport::take`] says that the request of this number is done.
    fn put_own(
        &mut self,
        _peer: usize,
        _there: Remote,
        _heap: HeapKey,
        _at: usize,
        _bytes: usize,
    ) -> Result<Direct<u64>> {
        Ok(Direct::Impossible)
    }

    /// Begins to fetch bytes from memory that the peer has exposed, at most [`MOST_FETCHED`]: the number of the request.
    fn get(&mut self, _peer: usize, _there: Remote, _bytes: usize) -> Result<Direct<u64>> {
        Ok(Direct::Impossible)
    }

    /// Whether a request is done; fills `out` with what it has fetched.
    fn take(&mut self, _peer: usize, _request: u64, _out: &mut [u8]) -> bool {
        false
    }

    /// Memory that this peer shares with us has changed: wakes it if it sleeps. Where no memory is shared there is nothing
    /// to do.
    fn nudge(&mut self, _peer: usize) -> Result<()> {
        Ok(())
    }

    /// The launcher says that this peer has dropped its world. Once nothing more can come from it, a later `poll` says that
    /// it has departed. A transport that learns of that by itself need not do anything.
    fn peer_finished(&mut self, _peer: usize) {}

    /// The loss or the farewell of this peer has been reported: nothing more is taken from it or brought to it.
    fn forget(&mut self, _peer: usize) {}

    /// Breaks one of its connections as the network might, if it has any: which one follows from `choice`. For tests.
    fn sever(&mut self, _choice: u64) {}

    /// The world is being dropped and every record has been pushed: tells the peers; `true` when all bytes have left
    /// this process for good and it may exit.
    fn finish(&mut self) -> Result<bool>;
}

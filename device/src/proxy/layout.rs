//! What kernels and the proxy share: the ring, what the host publishes, and the words of a descriptor. The same structures
//! as in `include/spmd_proxy.cuh`; a test has the C++ compiler compare the two.
//!
//! Knows layouts only: neither who writes nor how a descriptor is carried out.

use super::ring::LAP;
use bytemuck::{Pod, Zeroable};
use spmd::SignalOp;

/// Bytes from one descriptor to the next: a cache line.
pub const STRIDE: usize = 64;
/// Words of a descriptor; the rest of its line is not used. All are written every time.
pub(crate) const WORDS: usize = 6;

/// The producers' side of a ring (`ring_t`), in memory of the device. Head, `seen` and `failed` are the kernel's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct RingHandle {
    /// Address of the descriptors, in memory of the host.
    pub entries: u64,
    /// Address of the [`Published`].
    pub published: u64,
    /// How many descriptors there is room for: a power of two.
    pub capacity: u64,
    /// 0.
    pub unused: [u64; 5],
    /// The next position that a producer takes.
    pub head: u64,
    /// 1 while a producer looks at what the host says.
    pub looking: u64,
    /// How many descriptors the host had taken when a producer last looked.
    pub seen: u64,
    /// 1 once a producer has given up: the ring has a hole and is finished.
    pub failed: u64,
    /// 0.
    pub unused_2: [u64; 4],
}

/// What the host tells producers (`published_t`), in its own memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Published {
    /// So many descriptors have been taken: their places are free, and their sources may be changed.
    pub taken: u64,
    /// So many are complete: what gets asked for is there, what was put before a quiet is visible.
    pub completed: u64,
    /// The position of the descriptor that could not be carried out, plus 1; 0: none. Nothing is taken any more.
    pub error: u64,
    /// 0.
    pub unused: [u64; 5],
}

const PUT: u64 = 1;
const SIGNAL: u64 = 2;
const PUT_SIGNAL: u64 = 3;
const GET: u64 = 4;
const QUIET: u64 = 5;
const SET: u64 = 1;
const ADD: u64 = 2;
/// In the first word: the highest bit of the value, whose own word has no room for it.
const VALUE_TOP: u64 = 1 << 62;

/// One thing that a kernel asks for. Offsets are those of the symmetric heap, addresses those of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Bytes into the memory of `peer`.
    Put {
        /// The bytes.
        block: Block,
    },
    /// A signal to `peer`, after all puts to it that are before it in the ring.
    Signal {
        /// The signal.
        signal: Signal,
        /// The rank.
        peer: u32,
    },
    /// Both, in this order.
    PutSignal {
        /// The bytes.
        block: Block,
        /// The signal, to the same rank.
        signal: Signal,
    },
    /// Bytes out of the memory of `peer`.
    Get {
        /// The bytes.
        block: Block,
    },
    /// Complete once everything before it is visible.
    Quiet,
}

/// Bytes that move between this device and a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// Where they are, or go to, on this device.
    pub address: u64,
    /// Where they go to, or are, in the heap of the peer.
    pub offset: u64,
    /// How many.
    pub bytes: u64,
    /// The rank.
    pub peer: u32,
}

/// A signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Signal {
    /// Its word in the heap of the peer.
    pub offset: u64,
    /// What is done with it.
    pub op: SignalOp,
}

impl Request {
    /// The words of its descriptor, without the parity of a lap.
    ///
    /// # Panics
    /// When an address, offset or length is 2^63 or more.
    pub(crate) fn encode(&self) -> [u64; WORDS] {
        let (code, block, signal, peer) = match *self {
            Request::Put { block } => (PUT, Some(block), None, block.peer),
            Request::Signal { signal, peer } => (SIGNAL, None, Some(signal), peer),
            Request::PutSignal { block, signal } => (PUT_SIGNAL, Some(block), Some(signal), block.peer),
            Request::Get { block } => (GET, Some(block), None, block.peer),
            Request::Quiet => (QUIET, None, None, 0),
        };
        let block = block.unwrap_or(Block { address: 0, offset: 0, bytes: 0, peer });
        let (offset, op, value) = match signal {
            None => (0, 0, 0),
            Some(Signal { offset, op: SignalOp::Set(value) }) => (offset, SET, value),
            Some(Signal { offset, op: SignalOp::Add(value) }) => (offset, ADD, value),
        };
        let top = if value & LAP == 0 { 0 } else { VALUE_TOP };
        let first = code | op << 8 | u64::from(peer) << 16 | top;
        let words = [first, block.address, block.offset, block.bytes, offset, value & !LAP];
        assert!(words.iter().all(|word| word & LAP == 0), "an address, offset or length beyond 2^63: {self:?}");
        words
    }

    /// What the words of a descriptor say, without the parity of a lap.
    ///
    /// # Errors
    /// What no producer writes.
    pub(crate) fn decode(words: &[u64; WORDS]) -> Result<Self, &'static str> {
        let [first, address, offset, bytes, signal_offset, value] = *words;
        let peer = u32::try_from(first >> 16 & u64::from(u32::MAX)).map_err(|_| "a rank that is none")?;
        if first & !(VALUE_TOP | 0xffff_ffff_ffff) != 0 {
            return Err("bits that mean nothing");
        }
        let value = value | (first & VALUE_TOP) << 1;
        let op = match first >> 8 & 0xff {
            0 => None,
            SET => Some(SignalOp::Set(value)),
            ADD => Some(SignalOp::Add(value)),
            _ => return Err("a signal that is neither set nor added"),
        };
        let block = Block { address, offset, bytes, peer };
        let signal = op.map(|op| Signal { offset: signal_offset, op });
        match (first & 0xff, signal) {
            (PUT, None) => Ok(Request::Put { block }),
            (SIGNAL, Some(signal)) => Ok(Request::Signal { signal, peer }),
            (PUT_SIGNAL, Some(signal)) => Ok(Request::PutSignal { block, signal }),
            (GET, None) => Ok(Request::Get { block }),
            (QUIET, None) => Ok(Request::Quiet),
            (PUT..=QUIET, _) => Err("a signal where there is none, or none where there is one"),
            _ => Err("an operation of no known kind"),
        }
    }
}

/// Structures and numbers as the header must have them: expressions of C++ and what they must be.
#[cfg(test)]
pub(crate) fn expectations() -> Vec<(String, u64)> {
    use std::mem::offset_of;
    let mut all: Vec<(String, u64)> = Vec::new();
    let mut say = |expression: &str, value: usize| all.push((expression.into(), value as u64));
    say("sizeof(spmd::proxy::ring_t)", size_of::<RingHandle>());
    say("offsetof(spmd::proxy::ring_t, entries)", offset_of!(RingHandle, entries));
    say("offsetof(spmd::proxy::ring_t, published)", offset_of!(RingHandle, published));
    say("offsetof(spmd::proxy::ring_t, capacity)", offset_of!(RingHandle, capacity));
    say("offsetof(spmd::proxy::ring_t, head)", offset_of!(RingHandle, head));
    say("offsetof(spmd::proxy::ring_t, looking)", offset_of!(RingHandle, looking));
    say("offsetof(spmd::proxy::ring_t, seen)", offset_of!(RingHandle, seen));
    say("offsetof(spmd::proxy::ring_t, failed)", offset_of!(RingHandle, failed));
    say("sizeof(spmd::proxy::published_t)", size_of::<Published>());
    say("offsetof(spmd::proxy::published_t, taken)", offset_of!(Published, taken));
    say("offsetof(spmd::proxy::published_t, completed)", offset_of!(Published, completed));
    say("offsetof(spmd::proxy::published_t, error)", offset_of!(Published, error));
    say("spmd::proxy::STRIDE_WORDS", STRIDE / 8);
    say("spmd::proxy::DESCRIPTOR_WORDS", WORDS);
    for (name, value) in [("PUT", PUT), ("SIGNAL", SIGNAL), ("PUT_SIGNAL", PUT_SIGNAL), ("GET", GET), ("QUIET", QUIET)]
    {
        all.push((format!("spmd::proxy::OP_{name}"), value));
    }
    for (name, value) in [("SET", SET), ("ADD", ADD)] {
        all.push((format!("spmd::SIGNAL_{name}"), value));
    }
    all.push(("spmd::proxy::LAP".into(), LAP));
    all.push(("spmd::proxy::VALUE_TOP".into(), VALUE_TOP));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Request> {
        let block = Block { address: u64::MAX >> 1, offset: 1 << 40, bytes: 3, peer: u32::MAX };
        let signals = [SignalOp::Set(u64::MAX), SignalOp::Add(0), SignalOp::Add(1 << 63), SignalOp::Set(u64::MAX >> 1)];
        let mut all = vec![Request::Put { block }, Request::Get { block }, Request::Quiet];
        for op in signals {
            let signal = Signal { offset: 8, op };
            all.push(Request::Signal { signal, peer: 7 });
            all.push(Request::PutSignal { block, signal });
        }
        all
    }

    #[test]
    fn every_request_survives_its_descriptor() {
        for request in all() {
            let words = request.encode();
            assert!(words.iter().all(|word| word & LAP == 0), "{request:?}");
            assert_eq!(Request::decode(&words), Ok(request));
        }
    }

    #[test]
    fn words_that_no_producer_writes_are_refused() {
        for request in all() {
            let words = request.encode();
            let broken =
                |change: u64| Request::decode(&[words[0] ^ change, words[1], words[2], words[3], words[4], words[5]]);
            assert!(broken(1 << 50).is_err());
            assert!(broken(0x80).is_err());
            assert!(broken(0x8000).is_err());
        }
        assert!(Request::decode(&[0; WORDS]).is_err());
        assert!(Request::decode(&[PUT | SET << 8, 0, 0, 0, 0, 0]).is_err());
        assert!(Request::decode(&[PUT_SIGNAL, 0, 0, 0, 0, 0]).is_err());
    }
}

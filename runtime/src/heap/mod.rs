//! Symmetric memory: one allocation a rank with the same layout everywhere, and one-sided operations on it.
//!
//! A buffer has the same offset on every rank, so that a rank can name a place in the memory of another: it puts bytes
//! there, gets them, changes words atomically and raises signals without a receive on the other side (the model of
//! OpenSHMEM 1.5). Knows how each rank is reached, and leaves the moving to `memory::heap` and `engine::one_sided`.

mod atomic;
mod buffer;
mod direct;
pub mod layout;
mod offsets;

pub use atomic::{Atomic, Compare, SignalOp};
pub use buffer::{HeapBuffer, part};
pub use offsets::Pending;

use crate::{
    comm::Communicator,
    element::Element,
    engine::{
        Engine,
        operation::{NoBuffers, OperationId},
    },
    error::{Context, Error, Result},
    memory::{
        Activity, Operation,
        heap::{HeapMemory, PAGE, reserved_bytes},
    },
    statistics::MemoryCounters,
    transport::HeapKey,
    verbs::Remote,
};
use layout::Layout;
use std::{
    ops::Range,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering, fence},
    },
};

/// One memory a rank of a communicator, of the same size and with the same layout on all of them.
///
/// Creating it, [`alloc`](Self::alloc) and [`free`](Self::free) are collective: all ranks call them in the same order with
/// the same numbers, which is checked. Everything else is one-sided. Clones are the same heap; buffers hold it, too. The
/// memory goes when the last of them is dropped, which must be after the last access by any rank: after a barrier.
///
/// # Order
/// A rank's puts to one target may become visible there in any order, until
/// - [`fence`](Self::fence): puts, signals and atomic operations after it become visible after those before it, at each
///   target;
/// - [`quiet`](Self::quiet): when it returns, everything this rank has put, signalled or changed is visible to all;
/// - a signal ([`HeapBuffer::put_signal`], [`HeapBuffer::signal`]): whoever has seen it sees everything that this rank had
///   put to the same target before (a strong signal);
/// - an atomic operation that returns a value is complete when it returns.
///
/// A get is complete when it returns. Nothing is promised of puts by different ranks, or of puts and gets of the same bytes
/// at the same time: the result is a mixture of bytes.
///
/// # How ranks are reached
/// Ranks of the same host that may use shared memory have each other's memory mapped: an operation is a copy or an atomic
/// instruction, and the target takes no part. To ranks that RDMA reaches, puts and gets are made by the network device,
/// and the target takes no part either; signals and atomic operations are records that come after them. A record is
/// carried out when the target enters the library: what is changed on a rank that computes for long is visible only when
/// that rank next waits, sends or receives. Other ranks are reached by records alone. What may wait for a rank is bounded;
/// whoever puts, signals or changes more waits for it.
///
/// Over RDMA a heap must not be dropped while others still access it: their connections to this rank would break.
#[derive(Clone, Debug)]
pub struct SymmetricHeap {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    communicator: Communicator,
    key: HeapKey,
    memory: Arc<HeapMemory>,
    /// For every rank of the communicator how it is reached.
    reach: Vec<Reach>,
    layout: Mutex<Layout>,
    /// For every rank: where its part is for this rank's network device, if that reaches it.
    exposed: Vec<Option<Remote>>,
    /// For every rank: records were sent there that [`SymmetricHeap::quiet`] has to wait for.
    pending: Vec<AtomicBool>,
    /// For every rank: bytes were put there past its engine, which `quiet` has to wait for, or its memory, which is mapped
    /// here, was changed.
    written: Vec<AtomicBool>,
    /// For every rank: what is put there next must come after the records that are pending.
    fenced: Vec<AtomicBool>,
}

/// How a rank's memory is reached.
#[derive(Clone, Copy, Debug)]
enum Reach {
    /// It is part `part` of what is mapped here.
    Mapped { part: usize },
    /// By records that its engine carries out, and past it where a device can.
    Records,
}

impl SymmetricHeap {
    /// Makes a heap of `bytes` bytes on every rank, rounded up to whole pages. Collective.
    ///
    /// # Errors
    /// When ranks ask for different sizes, for nothing, or for more than there is; when a rank is lost.
    pub fn new(communicator: &Communicator, bytes: usize) -> Result<Self> {
        let operation = "SymmetricHeap::new";
        let refuse = |reason: String| Error::Heap { operation, reason };
        let (rank, size) = (communicator.rank(), communicator.size());
        let reach = reach(communicator);
        let own = part_of(reach[rank]).unwrap_or(0);
        let parts = reach.iter().filter(|reach| part_of(**reach).is_some()).count();
        let near = communicator.near().filter(|_| parts > 1);
        // The first rank of the host takes the memory, and the others learn from it where.
        let first = reach.iter().position(|reach| part_of(*reach).is_some()).unwrap_or(rank);
        let part = bytes.checked_next_multiple_of(PAGE).filter(|part| (1..=isize::MAX as usize).contains(part));
        let offset = match (near, part.and_then(|part| reserved_bytes(part, parts))) {
            (Some(near), Some(bytes)) if first == rank => near.segment.reserve(bytes).unwrap_or(NOWHERE),
            _ => NOWHERE,
        };
        let said = communicator.gather_words(Operation::Heap, [NEW, bytes as u64, offset])?;
        agree(&said, rank, |[step, theirs, _]| [step, theirs])
            .map_err(|other| refuse(differ(rank, [NEW, bytes as u64], other)))?;
        let part = part.ok_or_else(|| refuse(format!("{bytes} bytes a rank: ask for 1 to 2^63 - 1")))?;
        let memory = match near {
            None => HeapMemory::private(part),
            Some(near) => HeapMemory::shared(near.segment.clone(), said[first][2], part, parts, own),
        };
        let memory = memory.map(Arc::new).context(format!("making a symmetric heap of {bytes} bytes a rank"));
        let key = (communicator.context(), communicator.next_heap());
        let mut exposed = None;
        if let Ok(memory) = &memory {
            // Before others may begin to use it.
            let mut engine = communicator.runtime().lock();
            engine.add_heap(key, memory.clone());
            if reach.iter().any(|reach| matches!(reach, Reach::Records)) {
                exposed = engine.expose(key, memory);
            }
        }
        let [step, made, address] = say_made(memory.is_ok(), exposed);
        let made = communicator.gather_words(Operation::Heap, [step, made, address]);
        let exposed = match &made {
            Ok(made) => (0..size).map(|rank| heard_exposed(made[rank], reach[rank])).collect(),
            Err(_) => vec![None; size],
        };
        let flags = || (0..size).map(|_| AtomicBool::new(false)).collect::<Vec<_>>();
        let heap = memory.map(|memory| SymmetricHeap {
            inner: Arc::new(Inner {
                communicator: communicator.clone(),
                key,
                layout: Mutex::new(Layout::new(memory.part())),
                memory,
                reach,
                exposed,
                pending: flags(),
                written: flags(),
                fenced: flags(),
            }),
        })?;
        match made?.iter().position(|[_, made, _]| made & 1 == 0) {
            Some(other) => Err(refuse(format!("rank {other} could not make its {bytes} bytes"))),
            None => Ok(heap),
        }
    }

    /// Takes a buffer of `length` elements out of the heap, at the same offset on every rank, all bytes zero. Collective.
    ///
    /// Dropping the buffer does not give it back: [`SymmetricHeap::free`] does, which is collective as well.
    ///
    /// # Errors
    /// When ranks ask for different lengths or types, or when the heap is too full; nothing is taken then.
    pub fn alloc<T: Element>(&self, length: usize) -> Result<HeapBuffer<T>> {
        let operation = "SymmetricHeap::alloc";
        let bytes = length.checked_mul(size_of::<T>());
        let mut layout = self.inner.layout();
        let taken = bytes.and_then(|bytes| layout.take(bytes));
        if let Some((offset, used)) = taken {
            self.inner.clear(offset..offset + used);
        }
        let call = [ALLOC << 32 | u64::from(T::signature().0), bytes.map_or(u64::MAX, |bytes| bytes as u64)];
        let offset = taken.map_or(NOWHERE, |(offset, _)| offset as u64);
        let communicator = &self.inner.communicator;
        let agreed = communicator.gather_words(Operation::Heap, [call[0], call[1], offset]).and_then(|said| {
            agree(&said, communicator.rank(), |words| words)
                .map_err(|other| Error::Heap { operation, reason: differ(communicator.rank(), call, other) })
        });
        match (taken, agreed) {
            (Some((offset, _)), Ok(())) => Ok(HeapBuffer::new(self.inner.clone(), offset, length)),
            (None, Ok(())) => Err(Error::Heap {
                operation,
                reason: format!(
                    "{length} elements of {} bytes do not fit: {} of {} bytes are left, not necessarily in one piece",
                    size_of::<T>(),
                    layout.left(),
                    self.inner.memory.part()
                ),
            }),
            (taken, Err(error)) => {
                if let Some((offset, _)) = taken {
                    layout.give_back(offset);
                }
                Err(error)
            }
        }
    }

    /// Gives a buffer back. Collective; returns when every rank has called it and everything that they had put is visible
    /// (each waits as in [`quiet`](Self::quiet)), so that nobody accesses the buffer any more.
    ///
    /// # Errors
    /// When a rank is lost; when `buffer` is a part of a buffer, has been given back, or is not of this heap; when ranks give back different
    /// ones.
    pub fn free<T: Element>(&self, buffer: HeapBuffer<T>) -> Result<()> {
        let operation = "SymmetricHeap::free";
        // A put still under way would change what the next buffer at this place holds.
        self.quiet()?;
        let (offset, bytes) = (buffer.offset(), buffer.bytes());
        let mut layout = self.inner.layout();
        let is_ours = Arc::ptr_eq(&self.inner, buffer.heap()) && layout.is_taken(offset, bytes) && !buffer.is_freed();
        let call = [FREE << 32 | u64::from(T::signature().0), bytes as u64];
        let words = [call[0], call[1], if is_ours { offset as u64 } else { NOWHERE }];
        let communicator = &self.inner.communicator;
        let said = communicator.gather_words(Operation::Heap, words)?;
        agree(&said, communicator.rank(), |words| words)
            .map_err(|other| Error::Heap { operation, reason: differ(communicator.rank(), call, other) })?;
        if !is_ours {
            let reason = "the buffer is part of one, has been given back, or is of another heap".into();
            return Err(Error::Heap { operation, reason });
        }
        buffer.set_freed();
        layout.give_back(offset);
        Ok(())
    }

    /// Puts, signals and atomic operations of this rank that come after it become visible at each target after those that
    /// came before it.
    pub fn fence(&self) {
        // Mapped memory: stores are ordered by this. Records of one pair of ranks are carried out in order anyway.
        fence(Ordering::SeqCst);
        self.inner.note_fence();
    }

    /// Waits until everything that this rank has put, signalled and changed is visible to all ranks.
    ///
    /// # Errors
    /// When a rank is lost that something was sent to.
    pub fn quiet(&self) -> Result<()> {
        fence(Ordering::SeqCst);
        self.inner.quiet_at(&(0..self.inner.pending.len()).collect::<Vec<_>>())
    }

    /// Bytes of each rank's memory.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.inner.memory.part()
    }

    /// The ranks whose memory it is.
    #[must_use]
    pub fn communicator(&self) -> &Communicator {
        &self.inner.communicator
    }
}

/// What the first word of a gathered row says: the step, so that ranks that call different ones find out.
const NEW: u64 = 1;
const ALLOC: u64 = 2;
const FREE: u64 = 3;
/// An offset that is none.
const NOWHERE: u64 = u64::MAX;

/// What a rank says of the heap that it was to make: whether it has, and how devices reach it.
fn say_made(made: bool, exposed: Option<Remote>) -> [u64; 3] {
    let Remote { address, key } = exposed.unwrap_or_default();
    [NEW, u64::from(made) | u64::from(exposed.is_some()) << 1 | u64::from(key) << 32, address]
}

/// How devices reach the part of a rank that has said so.
fn heard_exposed([_, said, address]: [u64; 3], reach: Reach) -> Option<Remote> {
    let is_exposed = said & 2 != 0 && matches!(reach, Reach::Records);
    is_exposed.then(|| Remote { address, key: u32::try_from(said >> 32).expect("the upper half") })
}

/// For every rank how it is reached.
fn reach(communicator: &Communicator) -> Vec<Reach> {
    let mut parts = 0;
    let mut of = |rank: usize| {
        let is_near = rank == communicator.rank()
            || communicator.near().is_some_and(|near| near.place(communicator.world_rank(rank)).is_some());
        if !is_near {
            return Reach::Records;
        }
        parts += 1;
        Reach::Mapped { part: parts - 1 }
    };
    (0..communicator.size()).map(&mut of).collect()
}

fn part_of(reach: Reach) -> Option<usize> {
    match reach {
        Reach::Mapped { part } => Some(part),
        Reach::Records => None,
    }
}

/// Whether every rank says the same as this one, as far as `what` looks; else the first that does not, and its words.
fn agree<const N: usize>(
    said: &[[u64; 3]],
    rank: usize,
    what: impl Fn([u64; 3]) -> [u64; N],
) -> std::result::Result<(), (usize, [u64; 3])> {
    match said.iter().enumerate().find(|(_, words)| what(**words) != what(said[rank])) {
        Some((other, words)) => Err((other, *words)),
        None => Ok(()),
    }
}

/// Two ranks that call different things, for an error.
fn differ(rank: usize, call: [u64; 2], (other, theirs): (usize, [u64; 3])) -> String {
    let show = |step: u64, bytes: u64| {
        let name = match if step > u64::from(u32::MAX) { step >> 32 } else { step } {
            NEW => "makes a heap",
            ALLOC => "takes a buffer",
            FREE => "gives back a buffer",
            _ => "calls something else",
        };
        format!("{name} of {bytes} bytes (element type {:08x})", step & u64::from(u32::MAX))
    };
    format!(
        "rank {rank} {}, rank {other} {}: every rank must call the same, in the same order",
        show(call[0], call[1]),
        show(theirs[0], theirs[1])
    )
}

impl Inner {
    fn layout(&self) -> MutexGuard<'_, Layout> {
        self.layout.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes bytes of this rank's memory zero.
    fn clear(&self, mut range: Range<usize>) {
        const ZERO: [u8; 4096] = [0; 4096];
        while !range.is_empty() {
            let now = range.len().min(ZERO.len());
            self.memory.write(self.memory.own(), range.start, &ZERO[..now]);
            range.start += now;
        }
    }

    /// How a rank of the communicator is reached, if it is still there.
    fn reach(&self, rank: usize, operation: &'static str) -> Result<Reach> {
        let last = self.reach.len() - 1;
        let reach = self.reach.get(rank).copied().ok_or(Error::NoSuchRank { operation, rank, last })?;
        if let Reach::Mapped { .. } = reach {
            self.communicator.runtime().check(self.communicator.world_rank(rank), operation)?;
        }
        Ok(reach)
    }

    /// What is counted.
    fn counters(&self) -> &MemoryCounters {
        &self.communicator.runtime().counters
    }

    /// The memory of a rank that is mapped here has been changed: [`SymmetricHeap::quiet`] tells if the rank is lost.
    fn has_changed(&self, rank: usize) {
        self.written[rank].store(true, Ordering::Relaxed);
    }

    /// Makes progress until `done` gives a result.
    fn wait<R>(&self, mut done: impl FnMut(&mut Engine) -> Option<Result<R>>) -> Result<R> {
        self.communicator.runtime().wait(Activity::Request, &mut NoBuffers, |engine, _| done(engine))
    }

    /// Waits for the answer to a request.
    fn answer(&self, request: OperationId) -> Result<Vec<u8>> {
        let answer = self.wait(|engine| engine.take_answer(request));
        if answer.is_err() {
            self.communicator.runtime().lock().abandon_request(request);
        }
        answer
    }

    /// Puts bytes to `offset` in the memory of a rank that is reached by records. Returns when all are on their way.
    fn put_records(&self, bytes: &[u8], offset: usize, rank: usize) -> Result<()> {
        let peer = self.communicator.world_rank(rank);
        self.pending[rank].store(true, Ordering::Relaxed);
        let mut done = 0;
        self.wait(|engine| {
            while done < bytes.len() {
                match engine.put(peer, self.key, offset + done, &bytes[done..]) {
                    Ok(0) => return None,
                    Ok(more) => done += more,
                    Err(error) => return Some(Err(error)),
                }
            }
            Some(Ok(()))
        })
    }

    /// A word of a mapped rank has changed: wakes whoever waits for it.
    fn wake(&self, rank: usize) -> Result<()> {
        let runtime = self.communicator.runtime();
        if rank == self.communicator.rank() {
            runtime.lock().announce();
            return Ok(());
        }
        let peer = self.communicator.world_rank(rank);
        match self.communicator.near().and_then(|near| near.place(peer).map(|place| (near, place))) {
            Some((near, place)) if near.segment.looks().sleeps(place) => runtime.lock().nudge(peer),
            _ => Ok(()),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.communicator.runtime().lock().remove_heap(self.key);
    }
}

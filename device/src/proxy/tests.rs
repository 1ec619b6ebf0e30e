//! The ring and its thread with producers on the CPU: those of this crate, and those of the CUDA header compiled for the
//! host.

#![expect(unsafe_code, reason = "functions of C++, and memory that other ranks write to")]

use super::{layout::expectations, ring::Consumer, *};
use crate::{
    context::{ErrorRecord, KernelContext},
    host_compiler::{self, Compiled},
};
use spmd::{Compare, Placement, SignalOp, SymmetricHeap, local::Cluster, prelude::*};
use std::{
    ffi::c_void,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// Nothing here takes that long, on any machine.
const LONG: Duration = Duration::from_secs(120);
const SOURCE: &str = include_str!("../../tests/host/proxy.cpp");

/// A kernel's view of a ring, for producers of the header.
struct Kernel {
    context: KernelContext,
    error: Box<ErrorRecord>,
    compiled: Arc<Compiled>,
}

impl Kernel {
    fn new(compiled: &Arc<Compiled>, ring: &Ring, limit: Duration) -> Self {
        let error = Box::new(ErrorRecord::default());
        let context = KernelContext {
            version: crate::context::CONTEXT_VERSION,
            size: u32::MAX,
            ring: ring.host_handle().as_ptr().addr() as u64,
            error: std::ptr::from_ref(&*error).addr() as u64,
            cycle_limit: u64::try_from(limit.as_nanos()).unwrap(),
            ..KernelContext::default()
        };
        Kernel { context, error, compiled: compiled.clone() }
    }

    fn signals(&self, producer: u32, count: u64, peer: u32) -> bool {
        type Function = unsafe extern "C" fn(*const KernelContext, u32, u64, u32) -> bool;
        // SAFETY: as tests/host/proxy.cpp declares it; the context outlives the call.
        unsafe { self.compiled.function::<Function>("proxy_signals")(&raw const self.context, producer, count, peer) }
    }

    fn request(&self, request: &Request) -> bool {
        type Put = unsafe extern "C" fn(*const KernelContext, u64, *const c_void, u64, u32) -> bool;
        type PutSignal =
            unsafe extern "C" fn(*const KernelContext, u64, *const c_void, u64, u64, u64, u32, u32) -> bool;
        type Get = unsafe extern "C" fn(*const KernelContext, *mut c_void, u64, u64, u32) -> bool;
        type Quiet = unsafe extern "C" fn(*const KernelContext) -> bool;
        let context = &raw const self.context;
        let address = |block: Block| std::ptr::with_exposed_provenance(usize::try_from(block.address).unwrap());
        // SAFETY: as tests/host/proxy.cpp declares them; the context outlives the calls, and addresses are only passed on.
        unsafe {
            match *request {
                Request::Put { block } => {
                    let put = self.compiled.function::<Put>("proxy_put");
                    put(context, block.offset, address(block), block.bytes, block.peer)
                }
                Request::PutSignal { block, signal } => {
                    let put = self.compiled.function::<PutSignal>("proxy_put_signal");
                    let (op, value) = match signal.op {
                        SignalOp::Set(value) => (1, value),
                        SignalOp::Add(value) => (2, value),
                    };
                    put(context, block.offset, address(block), block.bytes, signal.offset, value, op, block.peer)
                }
                Request::Get { block } => {
                    let get = self.compiled.function::<Get>("proxy_get");
                    get(context, address(block).cast_mut(), block.offset, block.bytes, block.peer)
                }
                Request::Quiet => self.compiled.function::<Quiet>("proxy_quiet")(context),
                Request::Signal { .. } => panic!("see `signals`"),
            }
        }
    }
}

/// Where requests come from.
enum Maker {
    Rust(Producer),
    Header(Kernel),
}

impl Maker {
    /// All there are for a ring.
    fn all(compiled: Option<&Arc<Compiled>>, ring: &Arc<Ring>, limit: Duration) -> Vec<Self> {
        let header = compiled.map(|compiled| Maker::Header(Kernel::new(compiled, ring, limit)));
        std::iter::once(Maker::Rust(Producer::new(ring.clone(), limit))).chain(header).collect()
    }

    /// Makes a request; a get or quiet returns when it is complete.
    fn request(&self, request: &Request) -> bool {
        match self {
            Maker::Header(kernel) => kernel.request(request),
            Maker::Rust(producer) => {
                let Ok(position) = producer.push(request) else { return false };
                let waits = matches!(request, Request::Get { .. } | Request::Quiet);
                !waits || producer.wait_completed(position).is_ok()
            }
        }
    }
}

fn compiled() -> Option<Arc<Compiled>> {
    host_compiler::library(SOURCE).map(Arc::new)
}

#[test]
fn the_header_has_the_layout_of_the_structures_here() {
    host_compiler::assert_equal("spmd_proxy.cuh", &expectations());
}

#[test]
fn many_producers_with_pauses_of_any_length_lose_nothing_and_keep_their_order() {
    const PRODUCERS: u32 = 5;
    const EACH: u64 = 10_000;
    let Some(compiled) = compiled() else { return };
    for entries in [1, 2, 64] {
        let ring = Arc::new(Ring::new(entries).unwrap());
        let kernel = Kernel::new(&compiled, &ring, LONG);
        let each = if entries < 64 { EACH / 20 } else { EACH };
        std::thread::scope(|scope| {
            for producer in 0..PRODUCERS {
                let kernel = &kernel;
                scope.spawn(move || assert!(kernel.signals(producer, each, 9)));
            }
            let mut consumer = Consumer::new(ring.clone(), 0);
            let mut next = [0; PRODUCERS as usize];
            let mut words = [0; layout::WORDS];
            while consumer.next() < u64::from(PRODUCERS) * each {
                if !consumer.take(&mut words) {
                    std::thread::yield_now();
                    continue;
                }
                let Ok(Request::Signal { signal, peer: 9 }) = Request::decode(&words) else { panic!("{words:x?}") };
                let SignalOp::Add(value) = signal.op else { panic!("{signal:?}") };
                let producer = usize::try_from(value >> 32).unwrap();
                assert_eq!((signal.offset, value & 0xffff_ffff), (8 * producer as u64, next[producer]));
                next[producer] += 1;
                // Not after each: producers must live with less room than there is.
                if consumer.next().is_multiple_of(3) || entries < 64 {
                    consumer.publish();
                }
            }
        });
        assert_eq!(kernel.error.code, 0);
    }
}

/// Runs a body on ranks that reach each other in every way, each with a proxy.
fn on_every_transport(ranks: usize, body: impl Fn(&World, &SymmetricHeap, &Proxy) -> spmd::Result<()> + Sync) {
    let clusters = [
        ("shm", Cluster::new(ranks)),
        ("tcp", Cluster::new(ranks).set("transport.allow", "tcp")),
        ("two hosts", Cluster::new(ranks).hosts(2)),
    ];
    for (name, cluster) in clusters {
        let run = |world: &World| {
            let heap = SymmetricHeap::new(&world.communicator(), 4 << 20)?;
            let carrier = Carrier::on_host(heap.clone());
            let proxy = Proxy::start(carrier, 64, world.placement())?;
            body(world, &heap, &proxy)?;
            meet(world)?;
            proxy.stop()?;
            meet(world)
        };
        for (rank, result) in cluster.run(run).expect(name).into_iter().enumerate() {
            result.unwrap_or_else(|error| panic!("{name}, rank {rank}: {error}"));
        }
    }
}

/// Returns when all ranks have come here.
fn meet(world: &World) -> spmd::Result<()> {
    let comm = world.communicator();
    let requests: Vec<_> = (0..comm.size()).map(|to| comm.isend(vec![0_u8], to, 77)).collect::<spmd::Result<_>>()?;
    (0..comm.size()).try_for_each(|from| comm.recv(&mut [0_u8], from, 77).map(drop))?;
    requests.into_iter().try_for_each(|request| request.wait().map(drop))
}

fn address(heap: &SymmetricHeap, offset: usize) -> u64 {
    (heap.memory().cast::<u8>().as_ptr().addr() + offset) as u64
}

#[test]
fn who_sees_a_signal_sees_every_put_before_it_over_every_transport() {
    const ROUNDS: u64 = 40;
    const WORDS: usize = 700;
    let compiled = compiled();
    on_every_transport(3, |world, heap, proxy| {
        let comm = world.communicator();
        let (rank, size) = (comm.rank(), comm.size());
        let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
        let makers = Maker::all(compiled.as_ref(), proxy.ring(), LONG);
        // A block of its own for each producer, in two turns; words of the signals: what came, and what may come.
        let sources = heap.alloc::<u64>(makers.len() * WORDS)?;
        let blocks = heap.alloc::<u64>(makers.len() * WORDS)?;
        let signals = heap.alloc::<u64>(2 * makers.len())?;
        meet(world)?;
        std::thread::scope(|scope| {
            for (number, maker) in makers.iter().enumerate() {
                let (sources, signals) = (&sources, &signals);
                let (own, block) =
                    (sources.slice(number * WORDS..(number + 1) * WORDS), blocks.slice(number * WORDS..));
                scope.spawn(move || {
                    for round in 1..=ROUNDS {
                        let ready = Compare::AtLeast(round - 1);
                        signals.wait_signal(2 * number + 1, ready, Some(LONG)).unwrap();
                        own.write(&[round * 1000 + rank as u64; WORDS]).unwrap();
                        let half = 8 * (WORDS as u64 / 2);
                        let peer = u32::try_from(right).unwrap();
                        let whole = Block {
                            address: address(heap, own.offset()),
                            offset: block.offset() as u64,
                            bytes: 8 * WORDS as u64,
                            peer,
                        };
                        let first = Block { bytes: half, ..whole };
                        let second = Block {
                            address: whole.address + half,
                            offset: whole.offset + half,
                            bytes: whole.bytes - half,
                            peer,
                        };
                        let op = if round % 2 == 0 { SignalOp::Add(1) } else { SignalOp::Set(round) };
                        let signal = Signal { offset: (signals.offset() + 16 * number) as u64, op };
                        assert!(maker.request(&Request::Put { block: first }));
                        assert!(maker.request(&Request::PutSignal { block: second, signal }));
                        // The source is written again in the next round, after the peer has said that it has the block.
                    }
                    assert!(maker.request(&Request::Quiet));
                });
            }
            for round in 1..=ROUNDS {
                for number in 0..makers.len() {
                    signals.wait_signal(2 * number, Compare::AtLeast(round), Some(LONG))?;
                    let found = blocks.slice(number * WORDS..(number + 1) * WORDS).to_vec();
                    assert!(found.iter().all(|word| *word == round * 1000 + left as u64), "round {round}: {found:?}");
                    signals.signal(2 * number + 1, SignalOp::Set(round), left)?;
                }
            }
            spmd::Result::Ok(())
        })
    });
}

#[test]
fn what_is_put_before_quiet_is_there_for_a_get_over_every_transport() {
    let compiled = compiled();
    on_every_transport(2, |world, heap, proxy| {
        let comm = world.communicator();
        let other = 1 - comm.rank();
        for maker in Maker::all(compiled.as_ref(), proxy.ring(), LONG) {
            let [from, there, back] =
                [heap.alloc::<u8>(300_000)?, heap.alloc::<u8>(300_000)?, heap.alloc::<u8>(300_000)?];
            for length in [0, 1, 7, 4096, 299_998_u64] {
                let bytes: Vec<u8> =
                    (0..length).map(|i| u8::try_from((i * 7 + length + comm.rank() as u64) % 251).unwrap()).collect();
                from.slice(1..).write(&bytes)?;
                let peer = u32::try_from(other).unwrap();
                let block = |own: &spmd::HeapBuffer<u8>| Block {
                    address: address(heap, own.offset() + 1),
                    offset: there.offset() as u64 + 1,
                    bytes: length,
                    peer,
                };
                assert!(maker.request(&Request::Put { block: block(&from) }));
                assert!(maker.request(&Request::Quiet));
                assert!(maker.request(&Request::Get { block: block(&back) }));
                let found = back.to_vec();
                assert!(found[1..=bytes.len()] == bytes[..], "{length} bytes");
                assert_eq!((found[0], found[bytes.len() + 1]), (0, 0), "the neighbours of {length} bytes");
                meet(world)?;
                for buffer in [&from, &there, &back] {
                    buffer.write(&vec![0; 300_000])?;
                }
                meet(world)?;
            }
            for buffer in [back, there, from] {
                heap.free(buffer)?;
            }
        }
        Ok(())
    });
}

/// One rank with a proxy over a heap of one page.
fn alone(body: impl Fn(&World, &SymmetricHeap, Proxy) + Sync) {
    spmd::local::run(1, |world| {
        let heap = SymmetricHeap::new(&world.communicator(), 4096).unwrap();
        let proxy = Proxy::start(Carrier::on_host(heap.clone()), 8, &Placement::default()).unwrap();
        body(world, &heap, proxy);
    });
}

#[test]
fn a_request_that_cannot_be_carried_out_ends_every_producer_and_is_named() {
    let compiled = compiled();
    let own = |heap: &SymmetricHeap| address(heap, 0);
    type Wrong = (&'static str, fn(u64) -> Block);
    let wrong: [Wrong; 4] = [
        ("8 bytes from byte 4089 on", |address| Block { address, offset: 4089, bytes: 8, peer: 0 }),
        ("rank 1 is not in this communicator", |address| Block { address, offset: 0, bytes: 8, peer: 1 }),
        ("outside the heap", |_| Block { address: 0, offset: 0, bytes: 8, peer: 0 }),
        ("outside the heap", |address| Block { address, offset: 0, bytes: 1 << 62, peer: 0 }),
    ];
    for (text, block) in wrong {
        alone(|_, heap, proxy| {
            for maker in Maker::all(compiled.as_ref(), proxy.ring(), LONG) {
                // Some of these are only seen to have failed by the next one.
                maker.request(&Request::Put { block: block(own(heap)) });
                assert!(!maker.request(&Request::Quiet));
                if let Maker::Header(kernel) = &maker {
                    let record = kernel.error.as_ref();
                    assert_eq!((record.code, record.detail, record.complete), (8, 0, 1), "ERROR_PROXY, request 0");
                }
            }
            let failure = proxy.failure().map(str::to_owned);
            let error = proxy.stop().unwrap_err().to_string();
            assert!(error.contains(text), "{error}");
            assert_eq!(failure, Some(error), "before it ends, too");
        });
    }
}

#[test]
fn a_ring_that_nobody_serves_ends_its_producers_after_their_limit() {
    let limit = Duration::from_millis(20);
    let compiled = compiled();
    for which in 0..Maker::all(compiled.as_ref(), &Arc::new(Ring::new(1).unwrap()), limit).len() {
        let ring = Arc::new(Ring::new(2).unwrap());
        let maker = Maker::all(compiled.as_ref(), &ring, limit).swap_remove(which);
        let block = Block { address: 0, offset: 0, bytes: 0, peer: 0 };
        assert!(maker.request(&Request::Put { block }) && maker.request(&Request::Put { block }));
        assert!(!maker.request(&Request::Put { block }), "the ring is full");
        match &maker {
            Maker::Header(kernel) => assert_eq!(kernel.error.code, 5, "ERROR_RING_STALLED"),
            Maker::Rust(producer) => {
                let error = producer.push(&Request::Quiet).unwrap_err();
                assert_eq!(error, ProducerError::Finished, "a ring with a hole takes nothing more");
            }
        }
    }
}

#[test]
fn a_kernel_that_the_host_asks_to_end_waits_no_longer() {
    let Some(compiled) = compiled() else { return };
    let ring = Ring::new(1).unwrap();
    let mut kernel = Kernel::new(&compiled, &ring, Duration::ZERO);
    kernel.error.stop = 1;
    assert!(!kernel.request(&Request::Quiet));
    assert_eq!(kernel.error.code, 7, "ERROR_STOPPED");
}

#[test]
fn what_lies_elsewhere_on_the_device_is_fetched() {
    spmd::local::run(1, |world| {
        let heap = SymmetricHeap::new(&world.communicator(), 1 << 20).unwrap();
        let fetch: Fetch = Box::new(|address, bytes| {
            if address >= 1 << 40 {
                return Err("no such memory".into());
            }
            bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = ((address + at as u64) % 251) as u8);
            Ok(())
        });
        let carrier = Carrier::on_host(heap.clone()).fetch(fetch);
        let proxy = Proxy::start(carrier, 8, &Placement::default()).unwrap();
        let buffer = heap.alloc::<u8>(600_000).unwrap();
        let producer = Producer::new(proxy.ring().clone(), LONG);
        let block = Block { address: 77, offset: buffer.offset() as u64, bytes: 600_000, peer: 0 };
        let position = producer.push(&Request::Put { block }).unwrap();
        producer.wait_taken(position).unwrap();
        let expected: Vec<u8> = (77..600_077_u64).map(|at| (at % 251) as u8).collect();
        assert!(buffer.to_vec() == expected);
        producer.push(&Request::Put { block: Block { address: 1 << 40, ..block } }).unwrap();
        let error = proxy.stop().unwrap_err().to_string();
        assert!(error.contains("no such memory"), "{error}");
    });
}

#[test]
fn what_is_in_the_ring_when_the_proxy_stops_is_done_first() {
    alone(|_, heap, proxy| {
        let producer = Producer::new(proxy.ring().clone(), LONG);
        for _ in 0..1000 {
            let signal = Signal { offset: 8, op: SignalOp::Add(3) };
            producer.push(&Request::Signal { signal, peer: 0 }).unwrap();
        }
        let counters = proxy.stop().unwrap();
        assert_eq!(counters.descriptors, 1000);
        assert!(counters.batches <= 1000);
        let words = heap.alloc::<u64>(512).unwrap();
        // A buffer that is taken from a fresh heap is not cleared: nothing was there before.
        assert_eq!(words.fetch(1, 0).unwrap(), 3000);
    });
}

#[test]
fn a_proxy_gets_the_last_processor_of_a_rank_that_has_several() {
    let placement = |cpus: &[u32]| Placement { cpus: cpus.to_vec(), ..Placement::default() };
    for (cpus, expected) in [(&[][..], None), (&[0][..], None), (&[0, 1][..], Some(1))] {
        spmd::local::run(1, |world| {
            let heap = SymmetricHeap::new(&world.communicator(), 4096).unwrap();
            let proxy = Proxy::start(Carrier::on_host(heap), 8, &placement(cpus)).unwrap();
            assert_eq!(proxy.processor(), expected);
        });
    }
}

#[test]
fn memory_that_is_read_by_a_producer_is_read_after_it_was_completed() {
    // A kernel reads what it got without any other call: the completion alone orders it.
    alone(|_, heap, proxy| {
        let words = heap.alloc::<u64>(2).unwrap();
        let producer = Producer::new(proxy.ring().clone(), LONG);
        // SAFETY: mapped as long as the heap is, aligned, and only accessed as an atomic or copied.
        let word = unsafe { heap.memory().cast::<u8>().add(words.offset() + 8).cast::<AtomicU64>().as_ref() };
        for round in 1..1000 {
            words.set(0, round, 0).unwrap();
            let block =
                Block { address: address(heap, words.offset() + 8), offset: words.offset() as u64, bytes: 8, peer: 0 };
            let position = producer.push(&Request::Get { block }).unwrap();
            producer.wait_completed(position).unwrap();
            assert_eq!(word.load(Ordering::Relaxed), round);
        }
        proxy.stop().unwrap();
    });
}

//! The header's posting, compiled for the host, against the software NIC.

#![expect(unsafe_code, reason = "functions of C++, and memory that a NIC writes to")]

use super::*;
use crate::{
    context::{CONTEXT_VERSION, ErrorRecord, KernelContext, PeerEntry, Way},
    host_compiler::{self, Compiled},
    nic::{Access, Fault, Memory, Nic, Regions},
};
use std::{
    ffi::c_void,
    mem::offset_of,
    process::{Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const SOURCE: &str = include_str!("../../tests/host/mlx5.cpp");
const LONG: Duration = Duration::from_secs(120);
const NUMBER: u32 = 0x00ab_cdef;
/// Bytes of a heap.
const HEAP: usize = 1 << 16;
/// Where the NICs believe the heaps to be: nowhere near where they are.
const LOCAL: u64 = 0x7100_0000_0000;
const REMOTE: u64 = 0x6200_0000_0000;
/// Where it believes results to go.
const RESULT: u64 = 0x5300_0000_0000;

/// A rank, its peer and the NIC between them.
struct Bench {
    compiled: Compiled,
    own: Memory,
    peer: Memory,
    results: Memory,
    /// What the kernel shares with its device: counters change.
    handle: Box<[std::sync::atomic::AtomicU64; 32]>,
    context: KernelContext,
    error: Box<ErrorRecord>,
    nic: Mutex<Nic>,
}

impl Bench {
    /// `None` without a C++ compiler.
    fn new(block_count: usize, inline_bytes: u32) -> Option<Self> {
        Self::with(block_count, inline_bytes, LONG, |_| {})
    }

    fn with(
        block_count: usize,
        inline_bytes: u32,
        limit: Duration,
        change: impl FnOnce(&mut QueueHandle),
    ) -> Option<Self> {
        let compiled = host_compiler::library(SOURCE)?;
        let (own, peer) = (Memory::zeroed(HEAP), Memory::zeroed(HEAP));
        let (here, there) = (Arc::new(Regions::default()), Arc::new(Regions::default()));
        // Another registration first: keys differ between the sides.
        there.register(0, Memory::zeroed(1), Access::Local);
        let local = Heap { base: LOCAL, key: here.register(LOCAL, own.clone(), Access::Remote) };
        let remote = Heap { base: REMOTE, key: there.register(REMOTE, peer.clone(), Access::Remote) };
        let queue = SoftwareQueue::new(NUMBER, block_count);
        let base = queue.memory().start().addr().get() as u64;
        let results = Memory::zeroed(8);
        let result = Heap { base: RESULT, key: here.register(RESULT, results.clone(), Access::Local) };
        let mut handle = queue.handle_at(base, local, remote, result, inline_bytes);
        let mut nic = Nic::default();
        nic.add(queue.queue(here, there));
        change(&mut handle);
        let words: [u64; 32] = bytemuck::cast(handle);
        let error = Box::new(ErrorRecord::default());
        let context = KernelContext {
            version: CONTEXT_VERSION,
            size: 2,
            heap: own.start().addr().get() as u64,
            heap_bytes: HEAP as u64,
            error: std::ptr::from_ref(&*error).addr() as u64,
            cycle_limit: u64::try_from(limit.as_nanos()).unwrap(),
            ..KernelContext::default()
        };
        let handle = Box::new(words.map(Into::into));
        Some(Bench { compiled, own, peer, results, handle, context, error, nic: Mutex::new(nic) })
    }

    fn entry(&self) -> PeerEntry {
        let queue = self.handle.as_ptr().addr() as u64;
        PeerEntry { queue, way: Way::Mlx5 as u32, ..PeerEntry::default() }
    }

    /// Runs `body` while the NIC is polled.
    fn run<R>(&self, body: impl FnOnce() -> R) -> R {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    if !self.nic.lock().unwrap().poll() {
                        std::thread::yield_now();
                    }
                }
            });
            // Also when it panics, or the scope would wait for ever.
            struct Stop<'a>(&'a AtomicBool);
            impl Drop for Stop<'_> {
                fn drop(&mut self) {
                    self.0.store(true, Ordering::Release);
                }
            }
            let _stop = Stop(&stop);
            body()
        })
    }

    fn put(&self, offset: u64, source: *const c_void, bytes: u64) -> bool {
        type Put = unsafe extern "C" fn(*const KernelContext, *const PeerEntry, u64, *const c_void, u64) -> bool;
        // SAFETY: as tests/host/mlx5.cpp declares it; `source` has that many bytes.
        unsafe {
            self.compiled.function::<Put>("mlx5_put")(&raw const self.context, &self.entry(), offset, source, bytes)
        }
    }

    fn put_signal(&self, offset: u64, source: *const c_void, bytes: u64, signal: u64, value: u64, op: u32) -> bool {
        type Put = unsafe extern "C" fn(
            *const KernelContext,
            *const PeerEntry,
            u64,
            *const c_void,
            u64,
            u64,
            u64,
            u32,
        ) -> bool;
        let put = |context, entry: &PeerEntry| {
            // SAFETY: as tests/host/mlx5.cpp declares it; `source` has that many bytes.
            unsafe {
                let put = self.compiled.function::<Put>("mlx5_put_signal");
                put(context, entry, offset, source, bytes, signal, value, op)
            }
        };
        put(&raw const self.context, &self.entry())
    }

    fn signal(&self, signal: u64, value: u64, op: u32) -> bool {
        type Signal = unsafe extern "C" fn(*const KernelContext, *const PeerEntry, u64, u64, u32) -> bool;
        // SAFETY: as tests/host/mlx5.cpp declares it.
        unsafe {
            self.compiled.function::<Signal>("mlx5_signal")(&raw const self.context, &self.entry(), signal, value, op)
        }
    }

    fn quiet(&self) -> bool {
        type Quiet = unsafe extern "C" fn(*const KernelContext, *const PeerEntry) -> bool;
        // SAFETY: as tests/host/mlx5.cpp declares it.
        unsafe { self.compiled.function::<Quiet>("mlx5_quiet")(&raw const self.context, &self.entry()) }
    }

    fn stream(&self, thread: u32, count: u64, offset: u64, bytes: u64, signal: u64) -> bool {
        type Stream = unsafe extern "C" fn(*const KernelContext, *const PeerEntry, u32, u64, u64, u64, u64) -> bool;
        // SAFETY: as tests/host/mlx5.cpp declares it; the range of the own heap is this thread's.
        unsafe {
            let stream = self.compiled.function::<Stream>("mlx5_stream");
            stream(&raw const self.context, &self.entry(), thread, count, offset, bytes, signal)
        }
    }

    fn at(&self, offset: usize) -> *const c_void {
        self.own.start().as_ptr().wrapping_add(offset).cast()
    }

    /// A counter of the kernel.
    fn counter(&self, offset: usize) -> u64 {
        self.handle[offset / 8].load(Ordering::Acquire)
    }

    fn assert_good(&self) {
        let found: Vec<String> = self.nic.lock().unwrap().found().iter().map(ToString::to_string).collect();
        assert!(found.is_empty(), "{found:?}");
        assert_eq!(self.error.code, 0);
    }
}

fn read(memory: &Memory, at: usize, bytes: usize) -> Vec<u8> {
    let mut found = vec![0; bytes];
    memory.read(at, &mut found);
    found
}

#[test]
fn the_header_has_the_layout_of_the_handle_here() {
    let fields = [
        ("blocks", offset_of!(QueueHandle, blocks)),
        ("block_count", offset_of!(QueueHandle, block_count)),
        ("send_record", offset_of!(QueueHandle, send_record)),
        ("doorbell", offset_of!(QueueHandle, doorbell)),
        ("completions", offset_of!(QueueHandle, completions)),
        ("completion_count", offset_of!(QueueHandle, completion_count)),
        ("consumer_record", offset_of!(QueueHandle, consumer_record)),
        ("local_base", offset_of!(QueueHandle, local_base)),
        ("remote_base", offset_of!(QueueHandle, remote_base)),
        ("result", offset_of!(QueueHandle, result)),
        ("number", offset_of!(QueueHandle, number)),
        ("local_key", offset_of!(QueueHandle, local_key)),
        ("remote_key", offset_of!(QueueHandle, remote_key)),
        ("inline_bytes", offset_of!(QueueHandle, inline_bytes)),
        ("result_key", offset_of!(QueueHandle, result_key)),
        ("reserved", offset_of!(QueueHandle, reserved)),
        ("ready", offset_of!(QueueHandle, ready)),
        ("rung", offset_of!(QueueHandle, rung)),
        ("ring_lock", offset_of!(QueueHandle, ring_lock)),
        ("completed", offset_of!(QueueHandle, completed)),
        ("taken", offset_of!(QueueHandle, taken)),
        ("poll_lock", offset_of!(QueueHandle, poll_lock)),
        ("failed", offset_of!(QueueHandle, failed)),
    ];
    let mut expectations: Vec<(String, u64)> = fields
        .iter()
        .map(|(field, offset)| (format!("offsetof(spmd::mlx5::queue_t, {field})"), *offset as u64))
        .collect();
    expectations.push(("sizeof(spmd::mlx5::queue_t)".into(), size_of::<QueueHandle>() as u64));
    host_compiler::assert_equal("spmd_mlx5.cuh", &expectations);
}

#[test]
fn the_segments_of_the_header_are_those_that_rdma_core_publishes() {
    let exists = Command::new("c++")
        .args(["-x", "c++", "-fsyntax-only", "-include", "infiniband/mlx5dv.h", "/dev/null"])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !exists.is_ok_and(|status| status.success()) {
        eprintln!("no C++ compiler or no infiniband/mlx5dv.h (cargo xtask setup): segments were NOT compared");
        return;
    }
    let pairs = [
        (
            "control_t",
            "mlx5_wqe_ctrl_seg",
            &[
                ("operation_index", "opmod_idx_opcode"),
                ("number_segments", "qpn_ds"),
                ("signature", "signature"),
                ("stream", "dci_stream_channel_id"),
                ("flags", "fm_ce_se"),
                ("immediate", "imm"),
            ][..],
        ),
        ("remote_t", "mlx5_wqe_raddr_seg", &[("address", "raddr"), ("key", "rkey"), ("reserved", "reserved")]),
        ("data_t", "mlx5_wqe_data_seg", &[("bytes", "byte_count"), ("key", "lkey"), ("address", "addr")]),
        ("atomic_t", "mlx5_wqe_atomic_seg", &[("add", "swap_add"), ("compare", "compare")]),
        (
            "completion_t",
            "mlx5_cqe64",
            &[
                ("operation_number", "sop_drop_qpn"),
                ("index", "wqe_counter"),
                ("signature", "signature"),
                ("operation_owner", "op_own"),
            ],
        ),
        (
            "completion_t",
            "mlx5_err_cqe",
            &[
                ("vendor_syndrome", "vendor_err_synd"),
                ("syndrome", "syndrome"),
                ("operation_number", "s_wqe_opcode_qpn"),
                ("index", "wqe_counter"),
                ("operation_owner", "op_own"),
            ],
        ),
    ];
    let mut text = String::from("#include <cstddef>\n#include <infiniband/mlx5dv.h>\n#include \"spmd_mlx5.cuh\"\n");
    for (ours, theirs, fields) in pairs {
        text += &format!("static_assert(sizeof(spmd::mlx5::{ours}) == sizeof({theirs}), \"{ours}\");\n");
        for (field, other) in fields {
            text += &format!(
                "static_assert(offsetof(spmd::mlx5::{ours}, {field}) == offsetof({theirs}, {other}), \"{ours}.{field}\");\n"
            );
        }
    }
    for (ours, theirs) in [
        ("BLOCK_BYTES", "MLX5_SEND_WQE_BB"),
        ("OPERATION_WRITE", "MLX5_OPCODE_RDMA_WRITE"),
        ("OPERATION_FETCH_ADD", "MLX5_OPCODE_ATOMIC_FA"),
        ("FLAG_COMPLETE", "MLX5_WQE_CTRL_CQ_UPDATE"),
        ("INLINE", "MLX5_INLINE_SEG"),
        ("COMPLETION_REQUESTER_ERROR", "MLX5_CQE_REQ_ERR"),
        ("COMPLETION_RESPONDER_ERROR", "MLX5_CQE_RESP_ERR"),
        ("COMPLETION_INVALID", "MLX5_CQE_INVALID"),
    ] {
        text += &format!("static_assert((unsigned)spmd::mlx5::{ours} == (unsigned){theirs}, \"{ours}\");\n");
    }
    drop(host_compiler::library(&text));
}

#[test]
fn every_length_at_every_offset_arrives_and_nothing_around_it_changes() {
    // Everything by the NIC's own reading, everything within entries of one block, of two.
    for inline_bytes in [0, 28, 92] {
        let Some(bench) = Bench::new(16, inline_bytes.max(8)) else { return };
        bench.run(|| {
            let mut value = 0;
            for length in 0..=257_u64 {
                for (from, to) in [(0, 0), (1, 0), (0, 1), (3, 7), (15, 16), (8, 31)] {
                    let bytes: Vec<u8> =
                        (0..length).map(|i| u8::try_from((i * 7 + length + from) % 251 + 1).unwrap()).collect();
                    bench.own.write(usize::try_from(from).unwrap() + 64, &bytes);
                    bench.peer.write(0, &[0xee; 512]);
                    value += 1;
                    let source = bench.at(usize::try_from(from).unwrap() + 64);
                    assert!(bench.put_signal(to + 32, source, length, 4096, value, 1));
                    // Whoever sees the signal sees the bytes.
                    while bench.peer.word(4096).load(Ordering::Acquire) != value {
                        std::thread::yield_now();
                    }
                    let found = read(&bench.peer, 0, 512);
                    let start = usize::try_from(to).unwrap() + 32;
                    let end = start + bytes.len();
                    assert!(found[start..end] == bytes[..], "{length} bytes from {from} to {to}");
                    assert!(
                        found[..start].iter().chain(&found[end..]).all(|byte| *byte == 0xee),
                        "{length} bytes, around"
                    );
                    assert!(bench.quiet());
                }
            }
        });
        bench.assert_good();
    }
}

#[test]
fn what_is_not_in_the_heap_travels_within_entries() {
    let Some(bench) = Bench::new(8, 28) else { return };
    let elsewhere: Vec<u8> = (0..1000_u32).map(|i| u8::try_from(i % 253).unwrap()).collect();
    bench.run(|| {
        assert!(bench.put(100, elsewhere.as_ptr().cast(), 1000));
        assert!(bench.quiet());
    });
    bench.assert_good();
    assert!(read(&bench.peer, 100, 1000) == elsewhere);
    assert!(bench.nic.lock().unwrap().counters().entries >= 1000 / 28);
}

#[test]
fn signals_set_and_add() {
    let Some(bench) = Bench::new(4, 28) else { return };
    bench.run(|| {
        assert!(bench.signal(8, u64::MAX - 5, 1));
        assert!(bench.signal(8, 9, 2));
        assert!(bench.signal(16, 1 << 63, 2));
        assert!(bench.quiet());
    });
    bench.assert_good();
    assert_eq!(bench.peer.word(8).load(Ordering::Relaxed), 3, "an addition wraps around");
    assert_eq!(bench.peer.word(16).load(Ordering::Relaxed), 1 << 63);
    assert_eq!(bench.results.word(0).load(Ordering::Relaxed), 0, "what was there before the last addition");
}

/// Threads that share the queue, each with a range and a signal of its own; a reader checks that a signal covers its put.
fn streams(block_count: usize, threads: u32, count: u64, bytes: u64, inline_bytes: u32) -> Option<Bench> {
    let bench = Bench::new(block_count, inline_bytes)?;
    let range = |thread: u32| u64::from(thread) * bytes.next_multiple_of(64);
    let signal = |thread: u32| 32768 + 8 * u64::from(thread);
    bench.run(|| {
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let bench = &bench;
                scope.spawn(move || assert!(bench.stream(thread, count, range(thread), bytes, signal(thread))));
            }
            let mut done = 0;
            while done < threads {
                done = 0;
                for thread in 0..threads {
                    let seen = bench.peer.word(usize::try_from(signal(thread)).unwrap()).load(Ordering::Acquire);
                    for word in 0..bytes / 8 {
                        let at = usize::try_from(range(thread) + 8 * word).unwrap();
                        let found = bench.peer.word(at).load(Ordering::Acquire);
                        assert!(found >= seen, "thread {thread}: signal {seen} before word {word}, which is {found}");
                    }
                    done += u32::from(seen == count);
                }
                std::thread::yield_now();
            }
        });
    });
    bench.assert_good();
    Some(bench)
}

#[test]
fn many_threads_share_a_queue_and_a_signal_never_comes_before_its_put() {
    for (block_count, bytes, inline_bytes) in [(4, 64, 28), (16, 64, 92), (64, 256, 28)] {
        let Some(bench) = streams(block_count, 5, 400, bytes, inline_bytes) else { return };
        let counters = bench.nic.lock().unwrap().counters();
        assert_eq!(counters.entries, 2 * 5 * 400, "a put and a signal each");
        assert!(counters.doorbells <= 5 * 400 && counters.completions == 5 * 400, "{counters:?}");
        assert_eq!(bench.counter(offset_of!(QueueHandle, completed)), bench.counter(offset_of!(QueueHandle, reserved)));
    }
}

#[test]
fn indices_of_16_bits_and_laps_of_every_queue_wrap_around() {
    let Some(bench) = streams(8, 2, 20_000, 64, 28) else { return };
    let completed = bench.counter(offset_of!(QueueHandle, completed));
    assert!(completed == 2 * 2 * 20_000 && completed > 1 << 16, "{completed}");
}

#[test]
fn an_entry_that_the_nic_refuses_ends_every_wait_with_its_syndrome() {
    /// What is changed, the syndrome, and the fault that the NIC names.
    type Wrong = (fn(&mut QueueHandle), u64, fn(&Fault) -> bool);
    let wrong: [Wrong; 4] = [
        (|handle| handle.remote_key += 1, 0x13, |fault| matches!(fault, Fault::Remote { .. })),
        (|handle| handle.remote_base += 1 << 20, 0x13, |fault| matches!(fault, Fault::Remote { .. })),
        (|handle| handle.local_key += 1, 0x04, |fault| matches!(fault, Fault::Local { .. })),
        (|handle| handle.number += 1, 0x02, |fault| matches!(fault, Fault::Doorbell { .. })),
    ];
    for (change, syndrome, is_expected) in wrong {
        let Some(bench) = Bench::with(8, 8, LONG, change) else { return };
        bench.run(|| {
            // Some of these are only seen to have failed by what follows.
            bench.put(0, bench.at(0), 64);
            assert!(!bench.quiet());
            assert!(!bench.put(0, bench.at(0), 64), "the queue is finished");
        });
        // ERROR_QUEUE
        assert_eq!((bench.error.code, bench.error.detail, bench.error.complete), (6, syndrome, 1));
        let nic = bench.nic.lock().unwrap();
        assert!(is_expected(&nic.found()[0].fault), "{}", nic.found()[0]);
        assert_eq!(bench.error.expected, u64::from(nic.found()[0].fault.code()), "the vendor's syndrome");
        assert!(read(&bench.peer, 0, HEAP).iter().all(|byte| *byte == 0), "nothing was written");
    }
}

#[test]
fn a_nic_that_does_nothing_ends_a_full_queue_after_the_limit() {
    let Some(bench) = Bench::with(4, 28, Duration::from_millis(20), |_| {}) else { return };
    let mut posted = 0;
    while bench.signal(0, 1, 2) {
        posted += 1;
    }
    assert_eq!(posted, 4, "as many as there are blocks");
    assert_eq!(bench.error.code, 1, "ERROR_TIMEOUT");
    assert!(!bench.quiet());
}

//! How kernels end that wait for what never comes, and that name addresses which cannot be: the header, as it is, in threads of
//! the host.

#![expect(unsafe_code, reason = "functions of C++, and memory that they write")]

use crate::{
    context::{CONTEXT_VERSION, ErrorRecord, KernelContext, NEAR, STOP_ASKED, STOP_LOST},
    host_compiler::{self, Compiled},
};
use std::{
    mem::offset_of,
    ptr::NonNull,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

const SOURCE: &str = include_str!("../tests/host/device.cpp");
const TIMEOUT: u32 = 1;
const STOPPED: u32 = 7;
const LOST: u32 = 9;
const ALIGNMENT: u32 = 10;

/// A kernel of one thread whose heap, and that of its peer, is memory of this process.
struct Kernel {
    compiled: Compiled,
    memory: NonNull<[u128; 32]>,
    context: Box<KernelContext>,
    error: NonNull<ErrorRecord>,
}

// SAFETY: addresses, behind which everything is accessed as atomics or by one thread at a time.
unsafe impl Sync for Kernel {}

impl Kernel {
    /// None without a compiler. Two ranks, whose heap is the same memory; `limit`: nanoseconds that a wait may take.
    fn new(limit: u64) -> Option<Self> {
        let compiled = host_compiler::library(SOURCE)?;
        let memory = NonNull::from(Box::leak(Box::new([0_u128; 32])));
        let error = NonNull::from(Box::leak(Box::<ErrorRecord>::default()));
        let heap = memory.as_ptr().expose_provenance() as u64;
        let mut near = [0; NEAR];
        near[..2].fill(heap);
        let context = Box::new(KernelContext {
            version: CONTEXT_VERSION,
            size: 2,
            heap,
            heap_bytes: size_of::<[u128; 32]>() as u64,
            error: error.as_ptr().expose_provenance() as u64,
            cycle_limit: limit,
            near,
            ..KernelContext::default()
        });
        Some(Kernel { compiled, memory, context, error })
    }

    fn stop(&self, value: u32) {
        let word = self.error.as_ptr().cast::<u8>().wrapping_add(offset_of!(ErrorRecord, stop)).cast::<u32>();
        // SAFETY: within the record and aligned.
        unsafe { AtomicU32::from_ptr(word) }.store(value, Ordering::Release);
    }

    /// What the kernel has recorded; its code is 0 again then.
    fn record(&self) -> ErrorRecord {
        // SAFETY: no kernel runs.
        let record = unsafe { self.error.read_volatile() };
        // SAFETY: as above.
        unsafe { self.error.write_volatile(ErrorRecord { stop: record.stop, ..ErrorRecord::default() }) };
        record
    }

    fn at(&self, offset: usize) -> *mut u8 {
        self.memory.as_ptr().cast::<u8>().wrapping_add(offset)
    }

    fn wait(&self, offset: usize, value: u64) -> bool {
        type Wait = unsafe extern "C" fn(*const KernelContext, *const u8, u64) -> bool;
        // SAFETY: as tests/host/device.cpp declares it; what it reads lives as long as `self`.
        unsafe { self.compiled.function::<Wait>("device_wait")(&raw const *self.context, self.at(offset), value) }
    }

    fn small(&self, name: &str, offset: usize, mark: u64) -> bool {
        type Small = unsafe extern "C" fn(*const KernelContext, *mut u8, u64, u32) -> bool;
        // SAFETY: as above.
        unsafe { self.compiled.function::<Small>(name)(&raw const *self.context, self.at(offset), mark, 1) }
    }

    fn signal(&self, offset: usize) -> bool {
        type Signal = unsafe extern "C" fn(*const KernelContext, *mut u8, u32) -> bool;
        // SAFETY: as above.
        unsafe { self.compiled.function::<Signal>("device_signal")(&raw const *self.context, self.at(offset), 1) }
    }

    fn put_signal(&self, offset: usize, word: usize) -> bool {
        type PutSignal = unsafe extern "C" fn(*const KernelContext, *mut u8, *mut u8, u32) -> bool;
        let call = "device_put_signal";
        // SAFETY: as above.
        unsafe {
            self.compiled.function::<PutSignal>(call)(&raw const *self.context, self.at(offset), self.at(word), 1)
        }
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: leaked by `new`, and no kernel runs.
        unsafe { drop((Box::from_raw(self.memory.as_ptr()), Box::from_raw(self.error.as_ptr()))) };
    }
}

#[test]
fn a_loss_ends_waits_that_have_no_limit_and_says_that_it_was_one() {
    let Some(kernel) = Kernel::new(0) else { return };
    for (stop, code) in [(STOP_ASKED, STOPPED), (STOP_LOST, LOST)] {
        kernel.stop(0);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| kernel.wait(16, 41));
            std::thread::sleep(Duration::from_millis(50));
            assert!(!waits.is_finished(), "nobody has said anything");
            kernel.stop(stop);
            assert!(!waits.join().unwrap());
        });
        let record = kernel.record();
        assert_eq!((record.code, record.detail, record.expected, record.found), (code, 16, 41, 0));
        // So do later ones, and those for a message.
        assert!(!kernel.small("device_receive", 32, 3));
        assert_eq!((kernel.record().code, kernel.record().code), (code, 0));
        // What is there needs no waiting.
        assert!(kernel.wait(16, 0));
        assert_eq!(kernel.record().code, 0);
    }
}

#[test]
fn without_a_loss_a_wait_ends_at_its_limit() {
    let Some(kernel) = Kernel::new(20_000_000) else { return };
    assert!(!kernel.wait(16, 41));
    assert_eq!(kernel.record().code, TIMEOUT);
}

#[test]
fn signals_and_slots_that_are_not_aligned_are_refused_and_nothing_is_written() {
    let Some(kernel) = Kernel::new(0) else { return };
    let refused = |fine: bool, offset: usize, alignment: u64| {
        assert!(!fine, "offset {offset} is refused");
        let record = kernel.record();
        assert_eq!((record.code, record.detail, record.expected), (ALIGNMENT, offset as u64, alignment));
    };
    for offset in 128..160_usize {
        if !offset.is_multiple_of(8) {
            refused(kernel.signal(offset), offset, 8);
            refused(kernel.wait(offset, 0), offset, 8);
            // The block as little as the signal.
            refused(kernel.put_signal(64, offset), offset, 8);
        }
        if !offset.is_multiple_of(16) {
            refused(kernel.small("device_send", offset, 1), offset, 16);
            refused(kernel.small("device_receive", offset, 1), offset, 16);
        }
    }
    // SAFETY: no kernel runs.
    assert_eq!(unsafe { kernel.memory.read_volatile() }, [0; 32]);
    // Those that are aligned arrive, and a block may lie anywhere.
    assert!(kernel.signal(136) && kernel.wait(136, 1) && kernel.put_signal(67, 144) && kernel.wait(144, 1));
    assert!(kernel.small("device_send", 160, 7) && kernel.small("device_receive", 160, 7));
    assert_eq!(kernel.record().code, 0);
}

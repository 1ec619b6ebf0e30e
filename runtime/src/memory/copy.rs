//! Copies between private memory and memory that other processes or threads change: at the same time, or in turn, out of and
//! past the caches of other processors.

#![expect(unsafe_code, reason = "memory shared with other processes")]
#![cfg_attr(loom, expect(dead_code, reason = "loom's memory is no memory of several processes"))]

use crate::element::{Element, as_bytes, as_bytes_mut};
#[cfg(target_arch = "x86_64")]
use std::ptr::NonNull;

/// Copies `bytes` bytes. Others may write to or read from either range meanwhile: then the copy is some mixture of old
/// and new bytes, and nothing worse. The compiler must not reason about such accesses, hence no ordinary copy.
///
/// Everything is copied before what the caller stores afterwards becomes visible: stores that follow a string instruction
/// are not reordered with it (Intel SDM volume 3, section 9.2.4).
///
/// # Safety
/// Both ranges must be mapped for the time of the call and must not overlap; what is private of them must belong to the
/// caller.
pub(super) unsafe fn copy(from: *const u8, to: *mut u8, bytes: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's ranges; the direction flag is clear by the calling convention.
    unsafe {
        std::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    for at in 0..bytes {
        use std::sync::atomic::{AtomicU8, Ordering};
        // SAFETY: within the caller's ranges; bytes need no alignment.
        unsafe {
            let byte = AtomicU8::from_ptr(from.add(at).cast_mut()).load(Ordering::Relaxed);
            AtomicU8::from_ptr(to.add(at)).store(byte, Ordering::Relaxed);
        }
    }
}

/// Copies elements of which either place may be memory that ranks share: as `copy_from_slice` does, whose string instruction
/// (above some 2 KiB) is several times slower here. It fetches lines out of another processor's cache one after the other, and on
/// some processors crawls where both places have nearly the same offset in their pages, as large buffers of an allocator have.
///
/// Two ranks that copied 256 KiB in and out of a segment so took 77 to 114 us near each other, and 28 to 35 with this; far from each
/// other 155 to 170 and 69 to 90.
///
/// # Panics
/// When their lengths differ.
pub fn copy_elements<T: Element>(from: &[T], to: &mut [T]) {
    assert_eq!(from.len(), to.len(), "elements to be copied, and places for them");
    #[cfg(target_arch = "x86_64")]
    if size_of_val(from) > LIBRARY && is_x86_feature_detected!("avx") {
        let (from, to) = (as_bytes(from), as_bytes_mut(to));
        // Stores that no two lines share.
        let head = to.as_ptr().align_offset(32).min(to.len());
        let (from_head, from) = from.split_at(head);
        let (to_head, to) = to.split_at_mut(head);
        to_head.copy_from_slice(from_head);
        // SAFETY: both have as many bytes, and the processor has the instructions.
        return unsafe { fetch(NonNull::from(from).cast(), to) };
    }
    to.copy_from_slice(from);
}

/// As [`copy_elements`], with stores that go to memory instead of into this processor's cache, where the processor has such: see
/// [`stores`](super::stores). What is stored afterwards with `Release` comes after them.
///
/// # Panics
/// When their lengths differ.
pub fn copy_past_cache<T: Element>(from: &[T], to: &mut [T]) {
    assert_eq!(from.len(), to.len(), "elements to be copied, and places for them");
    #[cfg(target_arch = "x86_64")]
    // SAFETY: both have as many bytes, and those at `to` are the caller's.
    unsafe {
        write_past_cache(NonNull::from(as_bytes_mut(to)).cast(), as_bytes(from));
    }
    #[cfg(not(target_arch = "x86_64"))]
    to.copy_from_slice(from);
}

/// Up to this many bytes the C library copies with vectors.
#[cfg(target_arch = "x86_64")]
const LIBRARY: usize = 2048;

/// Lengths that are read with [`fetch`]. Below, the C library's copy is as fast.
#[cfg(target_arch = "x86_64")]
pub(super) const FETCHED: std::ops::RangeInclusive<usize> = 4097..=16 << 10;

/// Copies what another processor has just written: asks for lines well before it needs them, and only for lines of these
/// bytes, since the producer is about to write what follows.
///
/// The C library copies such lengths with a string instruction, which fetches lines out of another cache at half the speed:
/// 8 KiB between near cores took 2.5 us with it and 1.2 us with this, between far ones 3.6 and 2.0.
///
/// # Safety
/// `bytes.len()` bytes from `place` on must have been published to the caller, or be its own; the processor must have AVX.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
pub(super) unsafe fn fetch(place: NonNull<u8>, bytes: &mut [u8]) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch, _mm256_zeroupper};
    const BLOCK: usize = 256;
    const AHEAD: usize = 1024;
    let length = bytes.len();
    let (body, tail) = bytes.as_chunks_mut::<BLOCK>();
    let done = length - tail.len();
    for (number, block) in body.iter_mut().enumerate() {
        let at = number * BLOCK;
        // SAFETY: within the published bytes; loads and stores need no alignment. All loads come before the first store, so that as
        // many lines as possible are under way. In assembly, because the compiler makes a call of the C library's copy out of
        // any loop that copies.
        unsafe {
            let from = place.add(at);
            if at + AHEAD + BLOCK <= length {
                for line in 0..BLOCK / 64 {
                    _mm_prefetch::<_MM_HINT_T0>(from.as_ptr().add(AHEAD + line * 64).cast());
                }
            }
            std::arch::asm!(
                "vmovdqu ymm0, [{from}]",
                "vmovdqu ymm1, [{from} + 32]",
                "vmovdqu ymm2, [{from} + 64]",
                "vmovdqu ymm3, [{from} + 96]",
                "vmovdqu ymm4, [{from} + 128]",
                "vmovdqu ymm5, [{from} + 160]",
                "vmovdqu ymm6, [{from} + 192]",
                "vmovdqu ymm7, [{from} + 224]",
                "vmovdqu [{to}], ymm0",
                "vmovdqu [{to} + 32], ymm1",
                "vmovdqu [{to} + 64], ymm2",
                "vmovdqu [{to} + 96], ymm3",
                "vmovdqu [{to} + 128], ymm4",
                "vmovdqu [{to} + 160], ymm5",
                "vmovdqu [{to} + 192], ymm6",
                "vmovdqu [{to} + 224], ymm7",
                from = in(reg) from.as_ptr(),
                to = in(reg) block.as_mut_ptr(),
                out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
                out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _,
                options(nostack, preserves_flags)
            );
        }
    }
    _mm256_zeroupper();
    // SAFETY: the rest of the published bytes.
    unsafe { place.add(done).copy_to_nonoverlapping(NonNull::from(&mut *tail).cast(), tail.len()) }
}

/// Copies with stores that go to memory instead of into this processor's cache (Intel SDM volume 1, section 10.4.6.2).
///
/// The other rank would have to fetch each line out of this processor's cache, which is several times slower than reading
/// memory when the two do not share a cache (see `memory::stores`).
///
/// # Safety
/// `bytes.len()` bytes from `place` on must belong to the caller.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn write_past_cache(place: NonNull<u8>, bytes: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    let before = place.as_ptr().align_offset(size_of::<__m128i>()).min(bytes.len());
    let (head, rest) = bytes.split_at(before);
    let (body, tail) = rest.as_chunks::<64>();
    // SAFETY: the three parts lie one behind the other within the caller's bytes; the middle one is aligned as the stores
    // demand, the loads need no alignment. SSE2 is part of x86_64.
    unsafe {
        place.copy_from_nonoverlapping(NonNull::from(head).cast(), head.len());
        let mut to = place.add(before).cast::<__m128i>();
        for block in body {
            let from = block.as_ptr().cast::<__m128i>();
            for part in 0..4 {
                _mm_stream_si128(to.as_ptr().add(part), _mm_loadu_si128(from.add(part)));
            }
            to = to.add(4);
        }
        to.cast::<u8>().copy_from_nonoverlapping(NonNull::from(tail).cast(), tail.len());
        // These stores are not ordered by the Release of the stamp that follows.
        _mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_are_copied_whatever_their_number_and_their_places() {
        let from: Vec<u8> = (0..20_000_u32).map(|at| at.wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
        for length in [0, 1, 31, 2048, 2049, 2303, 4096, 8191, 19_000] {
            for (start, place) in [(0, 0), (1, 0), (0, 1), (7, 31), (32, 16)] {
                let mut to = vec![0xa5; 20_000];
                for copy in [copy_elements, copy_past_cache] {
                    let (given, places) = (&from[start..start + length], place..place + length);
                    copy(given, &mut to[places.clone()]);
                    assert_eq!(to[places.clone()], *given, "{length} from {start} to {place}");
                    assert!(to[..place].iter().chain(&to[place + length..]).all(|byte| *byte == 0xa5), "{length}");
                    to[places].fill(0xa5);
                }
            }
        }
        let from: Vec<[u16; 3]> = (0..3000).map(|index| [index, 1, 2]).collect();
        let mut to = vec![[0; 3]; 2999];
        copy_elements(&from[1..], &mut to);
        assert_eq!(to, from[1..]);
    }
}

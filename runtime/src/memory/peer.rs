//! Reading the memory of another process of this host (`process_vm_readv`), where the kernel permits it.
//!
//! Whether it does is a matter of users, namespaces, Yama and seccomp, and a process may end and its number be given to
//! another one: so every rank keeps a random word at a place that it publishes, and every read reads that word as well.

#![expect(unsafe_code, reason = "a system call that writes to memory")]

use super::Segment;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Words of a rank's card in the segment.
const PROCESS: usize = 0;
const ADDRESS: usize = 1;
const NONCE: usize = 2;
const WITHDRAWALS: usize = 3;

/// What a rank shows to those who want to read its memory.
#[derive(Debug)]
pub(crate) struct Proof {
    /// Read by peers only. Where it is must not change: hence the box.
    _word: Box<u64>,
}

impl Proof {
    /// Publishes where and what this rank's word is.
    pub(crate) fn publish(segment: &Segment, place: usize) -> Self {
        let mut bytes = [0; 8];
        // Without randomness the word still tells processes apart by their number and address.
        let _ = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
        let word = Box::new(u64::from_ne_bytes(bytes));
        let address = std::ptr::from_ref(&*word).expose_provenance() as u64;
        segment.card(place, NONCE).store(*word, Ordering::Relaxed);
        segment.card(place, ADDRESS).store(address, Ordering::Relaxed);
        segment.card(place, PROCESS).store(u64::from(std::process::id()), Ordering::Release);
        Proof { _word: word }
    }

    #[cfg(test)]
    fn change(&mut self) {
        *self._word ^= 1;
    }
}

/// How often the rank at `place` has let go of bytes that others may have been reading.
pub(crate) fn withdrawals(segment: &Segment, place: usize) -> u64 {
    // What was copied before was copied before this is read.
    fence(Ordering::SeqCst);
    segment.card(place, WITHDRAWALS).load(Ordering::SeqCst)
}

/// The rank at `place` is about to let go of bytes that others may be reading.
pub(crate) fn withdraw(segment: &Segment, place: usize) {
    segment.card(place, WITHDRAWALS).fetch_add(1, Ordering::SeqCst);
    fence(Ordering::SeqCst);
}

/// Copies bytes out of the memory of the rank at `place` from `address` on; `false` when the kernel does not permit it,
/// when they are not all mapped there, or when that process is not the rank any more. `out` is garbage then.
pub(crate) fn read(segment: &Segment, place: usize, address: u64, out: &mut [u8]) -> bool {
    let card = |index| segment.card(place, index).load(Ordering::Acquire);
    let Ok(process) = libc::pid_t::try_from(card(PROCESS)) else { return false };
    if process == 0 {
        return false;
    }
    let word = AtomicU64::new(0);
    let local = |base: *mut libc::c_void, iov_len| libc::iovec { iov_base: base, iov_len };
    let there = |address: u64, iov_len| libc::iovec {
        iov_base: std::ptr::without_provenance_mut(super::index(address)),
        iov_len,
    };
    let here = [local(out.as_mut_ptr().cast(), out.len()), local(word.as_ptr().cast(), 8)];
    let there = [there(address, out.len()), there(card(ADDRESS), 8)];
    // SAFETY: the kernel writes to `out` and `word`, which are ours for the time of the call, and checks the addresses of
    // the other process itself.
    let read = unsafe { libc::process_vm_readv(process, here.as_ptr(), 2, there.as_ptr(), 2, 0) };
    usize::try_from(read) == Ok(out.len() + 8) && word.load(Ordering::Relaxed) == card(NONCE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_a_rank_is_read_and_only_of_that_rank() {
        let segment = Segment::map(Segment::create(2, 4096).unwrap()).unwrap();
        let bytes: Vec<u8> = (0..=255).collect();
        let address = bytes.as_ptr().expose_provenance() as u64;
        let mut out = [0; 256];
        assert!(!read(&segment, 1, address, &mut out), "it has not published anything");
        let mut proof = Proof::publish(&segment, 1);
        assert!(read(&segment, 1, address, &mut out));
        assert_eq!(&out[..], bytes);
        assert!(!read(&segment, 1, 16, &mut out), "nothing is mapped there");
        proof.change();
        assert!(!read(&segment, 1, address, &mut out), "another process has its number");
    }

    #[test]
    fn a_withdrawal_is_seen_by_others() {
        let fd = Segment::create(2, 4096).unwrap();
        let (a, b) = (Segment::map(&fd).unwrap(), Segment::map(&fd).unwrap());
        let before = withdrawals(&b, 0);
        withdraw(&a, 0);
        assert_ne!(withdrawals(&b, 0), before);
        assert_eq!(withdrawals(&b, 1), 0);
    }
}

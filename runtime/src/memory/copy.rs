//! Copies between private memory and memory that other processes or threads may change at the same time.

#![expect(unsafe_code, reason = "memory shared with other processes")]

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

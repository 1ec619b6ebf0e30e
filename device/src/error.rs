//! What can go wrong with a device. Every message names what was asked for and the way out.

use crate::context::ErrorRecord;
use std::fmt;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// An error of a device.
///
/// `{:?}` gives the message, too: it is what a `main` that returns an error prints.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This machine has no CUDA driver.
    #[error(
        "no device: libcuda.so.1 cannot be loaded on this host. It is part of NVIDIA's driver: run on a host that has one, \
         or without a device"
    )]
    NoDriver,
    /// The driver shows no GPU.
    #[error("no device: the CUDA driver shows no GPU to this rank{}", hidden_by(.visible))]
    NoGpu {
        /// The value of `CUDA_VISIBLE_DEVICES`, if it is set.
        visible: Option<String>,
    },
    /// A call of the driver failed.
    #[error("{what}: the CUDA driver says {name} ({text})")]
    Driver {
        /// What was being done.
        what: String,
        /// The name of the driver's error.
        name: String,
        /// Its meaning.
        text: String,
    },
    /// A kernel found something wrong.
    #[error("{0}")]
    Kernel(KernelError),
    /// NVRTC is missing, or does not accept the source.
    #[error("compiling a kernel: {reason}")]
    Compile {
        /// Why, with the compiler's messages.
        reason: String,
    },
    /// The way that was asked for cannot be taken.
    #[error("device.way = {way}: {reason}")]
    Way {
        /// What was asked for.
        way: String,
        /// Why not.
        reason: String,
    },
    /// The GPU has not so much memory.
    #[error("{what}: {wanted} bytes of the GPU's memory are wanted, {free} of its {total} are free")]
    Memory {
        /// What for.
        what: &'static str,
        /// Bytes.
        wanted: usize,
        /// Bytes that are free.
        free: usize,
        /// Bytes that there are.
        total: usize,
    },
    /// A buffer does not fit, is of another heap, or ranks ask for different ones.
    #[error("{operation}: {reason}")]
    Heap {
        /// The operation.
        operation: &'static str,
        /// What is wrong.
        reason: String,
    },
    /// A system call failed.
    #[error("{what}: {error}")]
    System {
        /// What was being done.
        what: &'static str,
        /// The system's answer.
        error: std::io::Error,
    },
    /// The runtime failed.
    #[error(transparent)]
    Runtime(#[from] spmd::Error),
    /// A collective of the runtime failed.
    #[error(transparent)]
    Collective(#[from] spmd_collectives::Error),
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Whether it says that ranks are lost or have left, or that another rank has found that and revoked the communicator:
    /// those that are left can go on with a new device ([`Device::over`](crate::Device::over)) for what
    /// [`Communicator::shrink`](spmd::Communicator::shrink) gives. As [`spmd::Error::is_loss`].
    #[must_use]
    pub fn is_loss(&self) -> bool {
        match self {
            Error::Kernel(error) => error.lost,
            Error::Runtime(error) => error.is_loss(),
            Error::Collective(error) => spmd::Error::from(error.clone()).is_loss(),
            _ => false,
        }
    }
}

fn hidden_by(visible: &Option<String>) -> String {
    match visible {
        Some(value) => format!(" (CUDA_VISIBLE_DEVICES={value})"),
        None => String::new(),
    }
}

/// The first thing that a kernel of this rank found wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KernelError {
    /// The rank that found it.
    pub rank: u32,
    /// What it recorded.
    pub record: ErrorRecord,
    /// Why the proxy has given up or which rank is lost, where that is what went wrong.
    pub reason: Option<String>,
    /// Whether a rank was known to be lost, or the communicator to be revoked, when the error was taken.
    pub lost: bool,
}

/// `error_t` of the header.
mod code {
    pub(super) const TIMEOUT: u32 = 1;
    pub(super) const NO_WAY: u32 = 2;
    pub(super) const RANK: u32 = 3;
    pub(super) const RANGE: u32 = 4;
    pub(super) const RING_STALLED: u32 = 5;
    pub(super) const QUEUE: u32 = 6;
    pub(super) const STOPPED: u32 = 7;
    pub(super) const PROXY: u32 = 8;
    pub(super) const LOST: u32 = 9;
    pub(super) const ALIGNMENT: u32 = 10;
}

impl KernelError {
    /// Whether a wait reached its limit (key `device.wait_limit`).
    #[must_use]
    pub fn is_timeout(&self) -> bool {
        self.record.code == code::TIMEOUT
    }

    /// Whether the host has ended a wait of the kernel, because the ranks are not all there any more.
    pub(crate) fn is_ended_wait(&self) -> bool {
        self.record.code == code::LOST
    }
}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ErrorRecord { code, peer, detail, expected, found, block, thread, .. } = self.record;
        let rank = self.rank;
        write!(f, "rank {rank}, block {block}, thread {thread} of a kernel: ")?;
        let of = if peer == u32::MAX { String::new() } else { format!(" of rank {peer}") };
        match code {
            code::TIMEOUT => write!(
                f,
                "a wait{of} at offset {detail} of the heap reached its limit: it waited for {expected} and found {found}. \
                 Is the peer alive and in step? The limit is `device.wait_limit`"
            ),
            code::NO_WAY => write!(f, "there is no way to rank {peer} for {expected} bytes at offset {detail}"),
            code::RANK => write!(f, "there is no rank {detail}: there are {expected}"),
            code::RANGE => {
                write!(f, "{expected} bytes at offset {detail} are outside the heap or slot, which has {found} bytes")
            }
            code::RING_STALLED => {
                write!(f, "the proxy took no descriptor within `device.wait_limit` (position {detail})")
            }
            code::QUEUE => write!(f, "the NIC completed a request{of} with syndrome {detail:#x}"),
            code::STOPPED => write!(f, "the host asked kernels to end while they waited{of}"),
            code::PROXY => {
                let reason = self.reason.as_deref().unwrap_or("it does not say why");
                write!(f, "the proxy could not carry out request {detail}{of}: {reason}")
            }
            code::LOST => {
                let reason = self.reason.as_deref().unwrap_or("a rank is lost");
                write!(f, "a wait{of} at {detail} for {expected}, which found {found}, was ended: {reason}")
            }
            code::ALIGNMENT => write!(
                f,
                "a signal or slot{of} at offset {detail} of the heap: it must be at a multiple of {expected} bytes"
            ),
            other => write!(f, "error {other}{of}: detail {detail}, expected {expected}, found {found}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_names_the_word_and_both_values() {
        let record = ErrorRecord { code: 1, peer: u32::MAX, detail: 128, expected: 7, found: 6, ..Default::default() };
        let text = KernelError { rank: 3, record, reason: None, lost: false }.to_string();
        for part in ["rank 3", "offset 128", "waited for 7", "found 6", "device.wait_limit"] {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
    }

    #[test]
    fn a_loss_names_the_rank_and_is_told_from_other_errors() {
        let record = ErrorRecord { code: 9, peer: u32::MAX, detail: 64, expected: 5, found: 4, ..Default::default() };
        let lost = spmd::Error::PeerLost { peer: 2, host: "n1".into(), reason: "signal 9".into() };
        let error = KernelError { rank: 0, record, reason: Some(lost.to_string()), lost: true };
        let text = error.to_string();
        for part in ["rank 0, block", "at 64 for 5", "found 4", "rank 2 on host n1 is lost: signal 9"] {
            assert!(text.contains(part), "{part} is missing: {text}");
        }
        assert!(Error::Kernel(error).is_loss() && Error::Runtime(lost.clone()).is_loss());
        let record = ErrorRecord { code: 1, ..record };
        assert!(!Error::Kernel(KernelError { rank: 0, record, reason: None, lost: false }).is_loss());
    }

    #[test]
    fn every_code_of_the_header_has_its_own_message() {
        let header = include_str!("../include/spmd_types.cuh");
        let codes = header.lines().filter_map(|line| {
            let (name, rest) = line.trim().strip_prefix("ERROR_")?.split_once(" = ")?;
            Some((name, rest.split(',').next()?.parse::<u32>().ok()?))
        });
        let mut count = 0;
        for (name, code) in codes.filter(|(_, code)| *code != 0) {
            let record = ErrorRecord { code, ..Default::default() };
            let text = KernelError { rank: 0, record, reason: None, lost: false }.to_string();
            assert!(!text.contains(&format!("error {code}")), "ERROR_{name} has no message: {text}");
            count += 1;
        }
        assert!(count >= 10, "the header's codes were not found");
    }
}

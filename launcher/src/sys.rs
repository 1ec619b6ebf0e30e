//! The few system calls that need `unsafe`: forking the agent's guard, and code that runs between fork and exec.
//!
//! Everything here runs in a child after `fork`, where only async-signal-safe calls are allowed: raw system calls, no
//! allocation, no locks.
#![expect(unsafe_code, reason = "fork and pre_exec are unsafe by nature; each use says why it is sound")]

pub(crate) mod child;

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Resource, Rlimit, Signal, getppid, getrlimit, set_parent_process_death_signal, setrlimit};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Which side of a [`fork`] this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fork {
    /// The new process.
    Child,
    /// The old one, with the new one's id.
    Parent(Pid),
}

/// Forks this process, which must have only one thread.
///
/// # Errors
/// When the process has several threads, or the kernel refuses.
pub(crate) fn fork() -> io::Result<Fork> {
    let threads = std::fs::read_dir("/proc/self/task")?.count();
    if threads != 1 {
        return Err(io::Error::other(format!("fork in a process with {threads} threads")));
    }
    // SAFETY: the process has one thread (checked above), so no lock can be held by a thread that the child lacks, and
    // the child may go on with ordinary code.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Pid::from_raw(pid).map(Fork::Parent).ok_or_else(|| io::Error::other("fork returned no process id")),
    }
}

/// Where a child runs and its memory comes from, as the kernel wants it. Made before the fork: afterwards nothing may be
/// allocated.
#[derive(Debug, Default)]
pub(crate) struct Binding {
    /// Bit `n`: hardware thread `n`. Empty: wherever we may run.
    cpus: Vec<usize>,
    /// Bit `n`: NUMA domain `n`. Empty: as by default.
    memory: Vec<usize>,
}

impl Binding {
    /// Bound to these hardware threads, with memory from this NUMA domain as long as it has some.
    pub(crate) fn new(cpus: &[u32], domain: Option<u32>) -> Self {
        let mask = |numbers: &[u32]| {
            let bits = usize::BITS as usize;
            let mut words = vec![0_usize; numbers.iter().max().map_or(0, |max| *max as usize / bits + 1)];
            numbers.iter().for_each(|n| words[*n as usize / bits] |= 1 << (*n as usize % bits));
            words
        };
        Self { cpus: mask(cpus), memory: domain.map(|domain| mask(&[domain])).unwrap_or_default() }
    }

    /// Applies it to the calling process, between fork and exec. What the kernel refuses is left as it was: the launcher
    /// compares the plan with what it finds, and containers often forbid memory policies.
    pub(crate) fn apply(&self) {
        let bytes = size_of_val(self.cpus.as_slice());
        if bytes > 0 {
            // SAFETY: the kernel reads `bytes` bytes of `cpus`, which outlives the call.
            unsafe { libc::syscall(libc::SYS_sched_setaffinity, 0, bytes, self.cpus.as_ptr()) };
        }
        if !self.memory.is_empty() {
            // The kernel counts one bit less than it is told.
            let bits = 8 * size_of_val(self.memory.as_slice()) + 1;
            // SAFETY: the kernel reads `bits - 1` bits of `memory`, which outlives the call.
            unsafe { libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_PREFERRED, self.memory.as_ptr(), bits) };
        }
    }
}

/// Lets a child of the launcher or the agent start with the open-file limit it would have had without us, and, with
/// `dies_with_us`, die when the calling thread does.
pub(crate) fn prepare_child(command: &mut Command, open_files: Option<u64>, dies_with_us: bool) {
    let parent = rustix::process::getpid();
    let limit = open_files.map(|soft| Rlimit { current: Some(soft), ..getrlimit(Resource::Nofile) });
    let hook = move || -> io::Result<()> {
        if dies_with_us {
            set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have died before the line above took effect.
            if getppid() != Some(parent) {
                return Err(io::Error::from_raw_os_error(libc::ESRCH));
            }
        }
        default_signals();
        if let Some(limit) = limit {
            setrlimit(Resource::Nofile, limit)?;
        }
        Ok(())
    };
    // SAFETY: the hook makes raw system calls only (rustix calls the kernel directly; `default_signals` uses
    // `signal` and `sigprocmask`, which are async-signal-safe; `Binding::apply` uses `syscall`) and neither allocates nor locks.
    unsafe { command.pre_exec(hook) };
}

/// Unblocks every signal and gives each its default action: what the launcher or a login shell ignored or blocked must
/// not reach programs.
fn default_signals() {
    for signal in 1..=64 {
        if signal != libc::SIGKILL && signal != libc::SIGSTOP {
            // SAFETY: plain system calls on signal dispositions of this process, between fork and exec.
            unsafe { libc::signal(signal, libc::SIG_DFL) };
        }
    }
    // SAFETY: as above; `set` is initialised by `sigemptyset` before it is read.
    unsafe {
        let mut set = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut set);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut());
    }
}

/// Unblocks every signal and gives each its default action in a process that has just begun.
pub(crate) fn reset_signals() {
    default_signals();
    // Writing to a peer that is gone must be an error, not death.
    // SAFETY: changes only this process's disposition of SIGPIPE.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    survive_file_limits();
}

/// Lets a write beyond the limit of file size (`ulimit -f`) be an error, not death. Programs that are started have the
/// default action again.
pub(crate) fn survive_file_limits() {
    // SAFETY: changes only this process's disposition of SIGXFSZ.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
}

/// Whether this process ignores a signal.
pub(crate) fn is_ignored(signal: i32) -> bool {
    // SAFETY: a `sigaction` of zeros is a valid one, and with no new action the call only writes the present one into it.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0 && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Keeps hwloc from loading its plugins (OpenCL, NVML, …), which takes longer than to read the topology: what they know
/// beyond the kernel's files is not needed. Only for a process that has just begun, and for itself only: what children
/// inherit must have been read before.
pub(crate) fn skip_slow_plugins() {
    const VARIABLE: &str = "HWLOC_PLUGINS_PATH";
    if std::env::var_os(VARIABLE).is_none() {
        // SAFETY: this process has one thread, so nobody reads the environment meanwhile.
        unsafe { std::env::set_var(VARIABLE, "/nonexistent") };
    }
}

/// Closes every descriptor but the standard ones and `kept`: what the launcher or a login shell left open is not for us
/// and not for ranks. Returns `kept`, if that is a descriptor. Only for a process that has just begun.
pub(crate) fn close_inherited(kept: Option<RawFd>) -> Option<OwnedFd> {
    let open: Vec<RawFd> = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2)
        .collect();
    let kept = kept.filter(|fd| open.contains(fd));
    let open = open.into_iter().filter(|fd| Some(*fd) != kept);
    for fd in open {
        // SAFETY: at the beginning of `main` nothing in this process owns a descriptor; the one of the listing above is
        // closed already, so that closing its number again only fails.
        unsafe { libc::close(fd) };
    }
    // SAFETY: it is open, as the listing said, and nothing in this process owns it.
    let kept = kept.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })?;
    fcntl_setfd(&kept, FdFlags::CLOEXEC).is_ok().then_some(kept)
}

/// The limits of open files of a child whose soft one is to be `soft`.
pub(crate) fn open_files_for_children(soft: u64) -> libc::rlimit {
    let hard = getrlimit(Resource::Nofile).maximum.unwrap_or(libc::RLIM_INFINITY);
    libc::rlimit { rlim_cur: soft, rlim_max: hard }
}

/// Raises the soft limit of open files to the hard one; the old soft limit.
pub(crate) fn raise_open_files() -> Option<u64> {
    let old = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: old.maximum, maximum: old.maximum });
    old.current
}

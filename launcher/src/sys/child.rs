//! Starting a rank without copying this process.
//!
//! An ordinary fork copies the agent's page tables, only for the child to throw them away; with many ranks that is most
//! of the agent's work. Here the child borrows the agent's memory until it has become the program (as `posix_spawn` does,
//! which cannot set what a rank needs). What fails before that is reported through the same memory.
#![expect(unsafe_code, reason = "clone is unsafe by nature; each use says why it is sound")]

use rustix::process::{Pid, WaitOptions, waitpid};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};

/// Bytes of stack for the child: it calls a dozen system calls.
const STACK: usize = 64 << 10;

/// What a child becomes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Child<'a> {
    /// The file to execute.
    pub(crate) file: &'a CStr,
    /// Its arguments, its own name first.
    pub(crate) arguments: &'a [&'a CStr],
    /// Its whole environment.
    pub(crate) environment: &'a [&'a CStr],
    /// The directory it starts in.
    pub(crate) directory: &'a CStr,
    /// Its standard streams; not the numbers 0 to 2.
    pub(crate) streams: [BorrowedFd<'a>; 3],
    /// Descriptors that it keeps, under their numbers, besides those that are not closed on exec anyway.
    pub(crate) inherited: &'a [BorrowedFd<'a>],
    /// Its soft limit of open files, and the hard one.
    pub(crate) open_files: Option<libc::rlimit>,
    /// It dies when the calling thread does.
    pub(crate) dies_with_us: bool,
    /// Where it runs and its memory comes from, if that was decided.
    pub(crate) binding: Option<&'a super::Binding>,
}

/// Everything the child needs, as the kernel wants it: it must not allocate.
struct Task<'a> {
    file: *const c_char,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    directory: *const c_char,
    streams: [RawFd; 3],
    inherited: Vec<RawFd>,
    open_files: Option<libc::rlimit>,
    dies_with_us: bool,
    binding: Option<&'a super::Binding>,
    parent: c_int,
    /// What went wrong before the program ran: an error number.
    error: Cell<c_int>,
}

/// Starts a child in a process group of its own, with every signal at its default.
///
/// # Errors
/// What the kernel says, `exec` included.
pub(crate) fn spawn(child: &Child<'_>) -> io::Result<Pid> {
    let pointers =
        |texts: &[&CStr]| texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>();
    let task = Task {
        file: child.file.as_ptr(),
        arguments: pointers(child.arguments),
        environment: pointers(child.environment),
        directory: child.directory.as_ptr(),
        streams: child.streams.map(|fd| fd.as_raw_fd()),
        inherited: child.inherited.iter().map(|fd| fd.as_raw_fd()).collect(),
        open_files: child.open_files,
        dies_with_us: child.dies_with_us,
        binding: child.binding,
        parent: rustix::process::getpid().as_raw_nonzero().get(),
        error: Cell::new(0),
    };
    // In words of 16 bytes, so that its end is aligned as the machine wants it.
    let mut stack = vec![0_u128; STACK / 16];
    let top = stack.as_mut_ptr_range().end;
    let blocked = block_signals();
    // SAFETY: the child runs `become_program` on `stack`, which ends where `top` says and outlives it: CLONE_VFORK keeps
    // this thread from running until the child has executed the program or ended. Signals are blocked, so that no handler
    // runs in the child. `task` is only read by the child, except for its `error`, which nobody else touches meanwhile.
    let pid = unsafe {
        libc::clone(
            become_program,
            top.cast::<c_void>(),
            libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD,
            (&raw const task).cast_mut().cast::<c_void>(),
        )
    };
    let refused = io::Error::last_os_error();
    restore_signals(&blocked);
    drop(stack);
    let Some(pid) = Pid::from_raw(pid).filter(|_| pid > 0) else { return Err(refused) };
    match task.error.get() {
        0 => Ok(pid),
        number => {
            while matches!(waitpid(Some(pid), WaitOptions::empty()), Err(rustix::io::Errno::INTR)) {}
            Err(io::Error::from_raw_os_error(number))
        }
    }
}

/// The child's whole life before the program.
extern "C" fn become_program(task: *mut c_void) -> c_int {
    // SAFETY: the pointer is the one `spawn` passed, and its target is alive until this process has gone or become another.
    let task = unsafe { &*task.cast::<Task<'_>>().cast_const() };
    // SAFETY: see `steps`.
    task.error.set(unsafe { steps(task) });
    127
}

/// Only system calls; the number of the error that stopped it.
///
/// # Safety
/// For a child of [`spawn`] alone: it changes the whole process.
unsafe fn steps(task: &Task<'_>) -> c_int {
    // SAFETY: `errno` of this thread, which is the parent's too, while the parent waits.
    let errno = || unsafe { *libc::__errno_location() };
    // SAFETY: plain system calls on this process with valid arguments; the pointers come from C strings and arrays that
    // end with a null pointer, all kept alive by `spawn`.
    unsafe {
        // The parent may have died before the first call took effect.
        if task.dies_with_us && libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) != 0 {
            return errno();
        }
        if task.dies_with_us && libc::getppid() != task.parent {
            return libc::ESRCH;
        }
        if libc::setpgid(0, 0) != 0 {
            return errno();
        }
        for (number, fd) in (0..).zip(task.streams) {
            if libc::dup2(fd, number) < 0 {
                return errno();
            }
        }
        for fd in &task.inherited {
            if libc::fcntl(*fd, libc::F_SETFD, 0) < 0 {
                return errno();
            }
        }
        if libc::chdir(task.directory) != 0 {
            return errno();
        }
        if let Some(limit) = &task.open_files
            && libc::setrlimit(libc::RLIMIT_NOFILE, limit) != 0
        {
            return errno();
        }
        if let Some(binding) = task.binding {
            binding.apply();
        }
        // What is ignored would stay so, and a handler that ran here would run in the parent's memory.
        let mut default = std::mem::zeroed::<libc::sigaction>();
        default.sa_sigaction = libc::SIG_DFL;
        for signal in 1..=64 {
            libc::sigaction(signal, &raw const default, std::ptr::null_mut());
        }
        let mut none = std::mem::zeroed::<libc::sigset_t>();
        libc::sigemptyset(&raw mut none);
        libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
        libc::execve(task.file, task.arguments.as_ptr(), task.environment.as_ptr());
        errno()
    }
}

/// Blocks all signals; what was blocked before.
fn block_signals() -> libc::sigset_t {
    // SAFETY: both sets are valid; `all` is filled before it is read.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed::<libc::sigset_t>(), std::mem::zeroed::<libc::sigset_t>());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        before
    }
}

fn restore_signals(before: &libc::sigset_t) {
    // SAFETY: the set is the one that was in force before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, std::ptr::from_ref(before), std::ptr::null_mut()) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::fd::AsFd;

    fn run(file: &CStr, script: &CStr, environment: &[&CStr], directory: &CStr) -> io::Result<(String, i32)> {
        let null = std::fs::File::open("/dev/null").unwrap();
        let (out, out_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        let pid = spawn(&Child {
            file,
            arguments: &[c"sh", c"-c", script],
            environment,
            directory,
            streams: [null.as_fd(), out_end.as_fd(), out_end.as_fd()],
            inherited: &[null.as_fd()],
            open_files: Some(libc::rlimit { rlim_cur: 100, rlim_max: 200 }),
            dies_with_us: true,
            binding: None,
        })?;
        drop(out_end);
        let mut text = String::new();
        std::fs::File::from(out).read_to_string(&mut text).unwrap();
        let (_, status) = waitpid(Some(pid), WaitOptions::empty()).unwrap().unwrap();
        Ok((text, status.exit_status().unwrap_or(-1)))
    }

    #[test]
    fn a_child_has_what_it_was_given_and_nothing_else() {
        let script = c"echo $A:$HOME; pwd; ulimit -n; ulimit -Hn; ps -o pgid= -p $$ | grep -qw $$ && exit 7";
        let (text, code) = run(c"/bin/sh", script, &[c"A=x y", c"PATH=/usr/bin:/bin"], c"/usr").unwrap();
        assert_eq!(text, "x y:\n/usr\n100\n200\n");
        assert_eq!(code, 7);
    }

    #[test]
    fn what_fails_before_the_program_runs_is_an_error() {
        assert_eq!(run(c"/no/such", c"", &[], c"/").unwrap_err().raw_os_error(), Some(libc::ENOENT));
        assert_eq!(run(c"/bin/sh", c"", &[], c"/no/such").unwrap_err().raw_os_error(), Some(libc::ENOENT));
        assert_eq!(run(c"/etc/passwd", c"", &[], c"/").unwrap_err().raw_os_error(), Some(libc::EACCES));
    }
}

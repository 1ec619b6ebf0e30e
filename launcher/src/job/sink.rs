//! Where the ranks' output becomes the launcher's own: one thread that writes chunks of whole lines.
//!
//! Links put chunks in. How much of each rank may wait here is bounded by its agent, which sends only so much before it
//! hears that it was written ([`SinkEvent::Taken`]): a slow reader slows down the ranks that write, and nobody else.

use super::lines::{Chunk, Lines, Tag};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use spmd::bootstrap::messages::Stream;
use std::collections::{HashMap, VecDeque};
use std::io::Write;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Pieces of output that are written are told to the agent when they are as many bytes as this part of the window.
const TOLD_PART: u32 = 4;

/// How output is shown.
#[derive(Clone, Debug, Default)]
pub struct Style {
    /// What stands before every line.
    pub tag: Tag,
    /// When the line was read from the rank.
    pub timestamp: bool,
    /// Each rank's output goes to `rank.0003/stdout` and `stderr` in this directory.
    pub directory: Option<PathBuf>,
    /// With `directory`: it is shown here, too.
    pub copy: bool,
    /// How many bytes of one rank may be under way (see `Start::output_window`).
    pub window: u32,
}

/// What the writing thread reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkEvent {
    /// Standard output takes nothing any more; why.
    Broken(Errno),
    /// A file of `--output-dir` cannot be written.
    Failed(String),
    /// So many bytes of this rank have been written.
    Taken {
        /// The rank.
        rank: u32,
        /// How many bytes.
        bytes: u32,
    },
    /// [`Sink::close`] was called and everything is written.
    Drained,
}

/// The queue between links and the writing thread.
#[derive(Debug, Default)]
pub struct Sink {
    state: Mutex<State>,
    filled: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Entry>,
    closed: bool,
    message: bool,
}

#[derive(Debug)]
enum Entry {
    Chunk(Chunk),
    /// The names of the ranks' hosts, by rank.
    Ranks(Vec<String>),
}

impl Sink {
    /// Starts the writing thread.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(style: Style, report: impl Fn(SinkEvent) + Send + 'static) -> std::io::Result<Arc<Self>> {
        let sink = Arc::new(Self::default());
        let own = Arc::clone(&sink);
        std::thread::Builder::new().name("output".to_string()).spawn(move || own.run(style, report))?;
        Ok(sink)
    }

    /// The ranks are placed: their hosts' names, by rank.
    pub fn ranks(&self, hosts: Vec<String>) {
        self.push(Entry::Ranks(hosts));
    }

    /// Queues output of a rank.
    pub fn write(&self, chunk: Chunk) {
        self.push(Entry::Chunk(chunk));
    }

    /// Queues a line of the launcher itself for standard error.
    pub fn notice(&self, text: &str) {
        self.push(Entry::Chunk(Chunk::own(format!("rsrun: {text}\n").into_bytes())));
    }

    /// Queues lines of the launcher itself for standard error, as they are.
    pub fn show(&self, text: String) {
        self.push(Entry::Chunk(Chunk::own(text.into_bytes())));
    }

    /// No more output will come: [`SinkEvent::Drained`] is reported when everything is written. `message`: one of the
    /// launcher's own follows on standard error, in a line of its own.
    pub fn close(&self, message: bool) {
        let mut state = self.lock();
        (state.closed, state.message) = (true, message);
        self.filled.notify_one();
    }

    fn push(&self, entry: Entry) {
        self.lock().queue.push_back(entry);
        self.filled.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, style: Style, report: impl Fn(SinkEvent)) {
        let mut writer = Writer {
            lines: Lines::new(style.tag, style.timestamp),
            open: [true, true],
            files: true,
            taken: HashMap::new(),
            style,
            report,
        };
        loop {
            let mut state = self.lock();
            while state.queue.is_empty() && !state.closed {
                state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let batch = std::mem::take(&mut state.queue);
            let message = state.message;
            drop(state);
            if batch.is_empty() {
                if message && writer.lines.is_unfinished(Stream::Stderr) {
                    writer.show(Stream::Stderr, b"\n");
                }
                return (writer.report)(SinkEvent::Drained);
            }
            writer.write(batch);
        }
    }
}

/// The writing thread's own.
struct Writer<R> {
    style: Style,
    report: R,
    lines: Lines,
    /// Standard output and error can still be written.
    open: [bool; 2],
    /// So can the files.
    files: bool,
    /// For each rank what was written and not told yet.
    taken: HashMap<u32, u32>,
}

impl<R: Fn(SinkEvent)> Writer<R> {
    fn write(&mut self, batch: VecDeque<Entry>) {
        let mut run: Option<(Stream, Vec<u8>)> = None;
        let mut counts: Vec<(u32, usize)> = Vec::new();
        for entry in batch {
            let chunk = match entry {
                Entry::Chunk(chunk) => chunk,
                Entry::Ranks(hosts) => {
                    self.make_files(hosts.len());
                    self.lines.hosts(hosts);
                    continue;
                }
            };
            if let Some(rank) = chunk.rank {
                counts.push((rank, chunk.data.len()));
                self.write_file(rank, &chunk);
                if self.style.directory.is_some() && !self.style.copy {
                    continue;
                }
            }
            // Chunks of the same stream are joined.
            match &mut run {
                Some((stream, bytes)) if *stream == chunk.stream => self.lines.add(&chunk, bytes),
                _ => {
                    let mut bytes = Vec::with_capacity(chunk.data.len());
                    self.lines.add(&chunk, &mut bytes);
                    if let Some((stream, bytes)) = run.replace((chunk.stream, bytes)) {
                        self.show(stream, &bytes);
                    }
                }
            }
        }
        if let Some((stream, bytes)) = run {
            self.show(stream, &bytes);
        }
        self.tell(&counts);
    }

    fn show(&mut self, stream: Stream, bytes: &[u8]) {
        crate::progress::gone();
        let index = usize::from(stream == Stream::Stderr);
        if self.open[index]
            && let Err(error) = write_all(stream, bytes)
        {
            self.open[index] = false;
            if stream == Stream::Stdout {
                (self.report)(SinkEvent::Broken(error));
            }
        }
    }

    fn tell(&mut self, counts: &[(u32, usize)]) {
        for (rank, bytes) in counts {
            let taken = self.taken.entry(*rank).or_default();
            *taken = taken.saturating_add(u32::try_from(*bytes).unwrap_or(u32::MAX));
            if *taken >= self.style.window / TOLD_PART {
                (self.report)(SinkEvent::Taken { rank: *rank, bytes: std::mem::take(taken) });
            }
        }
    }

    /// Empty files for every rank: also of one that says nothing.
    fn make_files(&mut self, ranks: usize) {
        let Some(directory) = self.style.directory.clone() else { return };
        for rank in 0..u32::try_from(ranks).unwrap_or(u32::MAX) {
            let folder = rank_folder(&directory, rank);
            let made = std::fs::create_dir_all(&folder)
                .and_then(|()| std::fs::write(folder.join("stdout"), ""))
                .and_then(|()| std::fs::write(folder.join("stderr"), ""));
            if let Err(error) = made {
                return self.failed(&folder, &error);
            }
        }
    }

    /// Opened and closed each time, so that no number of ranks needs more descriptors.
    fn write_file(&mut self, rank: u32, chunk: &Chunk) {
        let Some(directory) = self.style.directory.as_ref().filter(|_| self.files) else { return };
        let name = if chunk.stream == Stream::Stdout { "stdout" } else { "stderr" };
        let file = rank_folder(directory, rank).join(name);
        let mut options = std::fs::OpenOptions::new();
        let written = options.append(true).create(true).open(&file).and_then(|mut open| open.write_all(&chunk.data));
        if let Err(error) = written {
            self.failed(&file, &error);
        }
    }

    /// Output that cannot be kept ends the job: once is enough.
    fn failed(&mut self, path: &Path, error: &std::io::Error) {
        if self.files {
            self.files = false;
            (self.report)(SinkEvent::Failed(format!("--output-dir: {} cannot be written: {error}", path.display())));
        }
    }
}

/// Makes the directory for the ranks' files. One that holds those of an earlier job is refused, or with `overwrite` they
/// are removed: of a larger job some would be left between the new ones.
///
/// # Errors
/// What is in the way, and the way out.
pub(super) fn prepare(directory: &Path, overwrite: bool) -> Result<(), String> {
    std::fs::create_dir_all(directory).map_err(|error| format!("the directory cannot be made: {error}"))?;
    let entries = std::fs::read_dir(directory).map_err(|error| format!("the directory cannot be read: {error}"))?;
    let of_a_rank = |name: &str| {
        name.strip_prefix("rank.").is_some_and(|n| n.len() >= 4 && n.bytes().all(|digit| digit.is_ascii_digit()))
    };
    for entry in entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(of_a_rank)) {
        let name = entry.file_name().display().to_string();
        if !overwrite {
            return Err(format!(
                "the directory holds the output of an earlier job ({name}): name another one, or replace that output \
                 with --output-overwrite"
            ));
        }
        // Only what such a job writes.
        for file in ["stdout", "stderr"] {
            match std::fs::remove_file(entry.path().join(file)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(format!("{name}/{file} cannot be removed: {error}"));
                }
                _ => {}
            }
        }
        // Fails when something else is in it, which then stays.
        let _ = std::fs::remove_dir(entry.path());
    }
    // Found out now rather than when the first rank runs.
    let probe = directory.join(format!(".rsrun.{}", std::process::id()));
    std::fs::create_dir(&probe)
        .and_then(|()| std::fs::remove_dir(&probe))
        .map_err(|error| format!("nothing can be written there: {error}"))
}

/// Where a rank's two files are.
fn rank_folder(directory: &Path, rank: u32) -> PathBuf {
    directory.join(format!("rank.{rank:04}"))
}

/// Writes everything, also to a descriptor that someone made non-blocking.
fn write_all(stream: Stream, mut bytes: &[u8]) -> rustix::io::Result<()> {
    let fd: BorrowedFd<'static> = match stream {
        Stream::Stdout => rustix::stdio::stdout(),
        Stream::Stderr => rustix::stdio::stderr(),
    };
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes) {
            Ok(n) => bytes = &bytes[n..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                poll(&mut [PollFd::from_borrowed_fd(fd, PollFlags::OUT)], None)?;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

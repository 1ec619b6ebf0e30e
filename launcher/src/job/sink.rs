//! Where the ranks' output becomes the launcher's own: one thread that writes chunks of whole lines.
//!
//! Links put chunks in; when too much waits (the reader of our output is slow), they stop reading from their agents
//! until it is written, so that memory stays bounded and ranks are slowed down as by any pipe.

use crate::connect::Waker;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use spmd::bootstrap::messages::Stream;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// How many bytes may wait before links stop reading.
const HIGH_WATER: usize = 1 << 20;

/// What the writing thread reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkEvent {
    /// Standard output takes nothing any more; why.
    Broken(Errno),
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
    queue: VecDeque<Chunk>,
    bytes: usize,
    closed: bool,
    wakers: Vec<Waker>,
}

#[derive(Debug)]
struct Chunk {
    /// `None`: a line of the launcher itself.
    rank: Option<u32>,
    stream: Stream,
    data: Vec<u8>,
}

impl Sink {
    /// Starts the writing thread. With `tag`, every line begins with its rank: `[3] …`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub fn start(tag: bool, report: impl Fn(SinkEvent) + Send + 'static) -> std::io::Result<Arc<Self>> {
        let sink = Arc::new(Self::default());
        let own = Arc::clone(&sink);
        std::thread::Builder::new().name("output".to_string()).spawn(move || own.run(tag, report))?;
        Ok(sink)
    }

    /// Queues output of a rank.
    pub fn write(&self, rank: u32, stream: Stream, data: Vec<u8>) {
        self.push(Chunk { rank: Some(rank), stream, data });
    }

    /// Queues a line of the launcher itself for standard error.
    pub fn notice(&self, text: &str) {
        self.push(Chunk { rank: None, stream: Stream::Stderr, data: format!("rsrun: {text}\n").into_bytes() });
    }

    /// Whether links should go on reading.
    pub fn has_room(&self) -> bool {
        self.lock().bytes < HIGH_WATER
    }

    /// Wakes this waker whenever there is room again.
    pub fn wake_when_empty(&self, waker: Waker) {
        self.lock().wakers.push(waker);
    }

    /// No more output will come: [`SinkEvent::Drained`] is reported when everything is written.
    pub fn close(&self) {
        self.lock().closed = true;
        self.filled.notify_one();
    }

    fn push(&self, chunk: Chunk) {
        let mut state = self.lock();
        state.bytes += chunk.data.len();
        state.queue.push_back(chunk);
        self.filled.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, tag: bool, report: impl Fn(SinkEvent)) {
        let mut lines = Lines { tag, ..Lines::default() };
        let mut open = [true, true];
        loop {
            let mut state = self.lock();
            while state.queue.is_empty() && !state.closed {
                state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            let batch = std::mem::take(&mut state.queue);
            drop(state);
            if batch.is_empty() {
                report(SinkEvent::Drained);
                return;
            }
            let size: usize = batch.iter().map(|c| c.data.len()).sum();
            for (stream, bytes) in lines.render(batch) {
                let index = usize::from(stream == Stream::Stderr);
                if open[index]
                    && let Err(error) = write_all(stream, &bytes)
                {
                    open[index] = false;
                    if stream == Stream::Stdout {
                        report(SinkEvent::Broken(error));
                    }
                }
            }
            let mut state = self.lock();
            let was_full = state.bytes >= HIGH_WATER;
            state.bytes -= size;
            if was_full && state.bytes < HIGH_WATER {
                state.wakers.iter().for_each(Waker::wake);
            }
        }
    }
}

/// Puts chunks of several ranks together so that lines stay whole.
#[derive(Debug, Default)]
struct Lines {
    tag: bool,
    /// For each stream: who wrote the line that has no end yet.
    unfinished: [Option<Option<u32>>; 2],
}

impl Lines {
    /// The bytes to write, chunks of the same stream joined.
    fn render(&mut self, chunks: VecDeque<Chunk>) -> Vec<(Stream, Vec<u8>)> {
        let mut runs: Vec<(Stream, Vec<u8>)> = Vec::new();
        for chunk in chunks {
            match runs.last_mut() {
                Some((stream, bytes)) if *stream == chunk.stream => self.add(&chunk, bytes),
                _ => {
                    let mut bytes = Vec::with_capacity(chunk.data.len());
                    self.add(&chunk, &mut bytes);
                    runs.push((chunk.stream, bytes));
                }
            }
        }
        runs
    }

    fn add(&mut self, chunk: &Chunk, out: &mut Vec<u8>) {
        let unfinished = &mut self.unfinished[usize::from(chunk.stream == Stream::Stderr)];
        // A last line without its end must not be glued to a line of someone else.
        if unfinished.is_some_and(|writer| writer != chunk.rank) {
            out.push(b'\n');
            *unfinished = None;
        }
        match chunk.rank.filter(|_| self.tag) {
            None => out.extend_from_slice(&chunk.data),
            Some(rank) => {
                let mut begins = unfinished.is_none();
                for line in chunk.data.split_inclusive(|b| *b == b'\n') {
                    if begins {
                        out.extend_from_slice(format!("[{rank}] ").as_bytes());
                    }
                    out.extend_from_slice(line);
                    begins = true;
                }
            }
        }
        if let Some(last) = chunk.data.last() {
            *unfinished = (*last != b'\n').then_some(chunk.rank);
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn render(tag: bool, chunks: &[(Option<u32>, Stream, &str)]) -> String {
        let mut lines = Lines { tag, ..Lines::default() };
        let chunks = chunks.iter().map(|(rank, stream, text)| Chunk {
            rank: *rank,
            stream: *stream,
            data: text.as_bytes().into(),
        });
        let runs = lines.render(chunks.collect());
        runs.into_iter().map(|(_, bytes)| String::from_utf8(bytes).unwrap()).collect()
    }

    use Stream::{Stderr, Stdout};

    #[test]
    fn bytes_of_one_rank_pass_unchanged() {
        assert_eq!(render(false, &[(Some(0), Stdout, "a\nb"), (Some(0), Stdout, "c")]), "a\nbc");
    }

    #[test]
    fn an_unfinished_line_is_ended_before_someone_elses_line() {
        let chunks = [(Some(0), Stdout, "a"), (Some(1), Stdout, "b\n"), (Some(0), Stdout, "c\n")];
        assert_eq!(render(false, &chunks), "a\nb\nc\n");
        assert_eq!(render(false, &[(Some(0), Stderr, "a"), (None, Stderr, "rsrun: x\n")]), "a\nrsrun: x\n");
        // The other stream is another matter.
        assert_eq!(render(false, &[(Some(0), Stdout, "a"), (Some(1), Stderr, "b\n")]), "ab\n");
    }

    #[test]
    fn a_tag_stands_at_line_starts_only() {
        let chunks = [(Some(3), Stdout, "a\nb"), (Some(3), Stdout, "c\n"), (Some(1), Stdout, "d\n")];
        assert_eq!(render(true, &chunks), "[3] a\n[3] bc\n[1] d\n");
    }
}

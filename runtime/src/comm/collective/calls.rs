//! The collective calls of a communicator on one rank, and what the others say about theirs: calls that do not fit together
//! end in the same error on all ranks.
//!
//! While all is well a call costs a note here and the mark that its messages carry anyway. A rank states its call to the
//! others only when it has waited for long, or has found a message of another call. Whoever hears a statement compares
//! it with its own call of the same number; whoever finds that they differ tells everybody both. Knows no schedule and no
//! buffers.

use super::words::{Statement, Verdict, Word};
use crate::{
    comm::{expected, narrow_rank},
    config::{Snapshot, keys},
    element::{self, Element, Signature},
    engine::{
        Engine, collectives_of,
        operation::{Landing, NoBuffers, OperationId},
        vector::AnyVec,
        words_of,
    },
    error::{Error, Result},
    matching::Pattern,
    memory::Operation,
    transport::record::{Header, Kind},
};
use rustc_hash::FxHashMap;
use std::{
    collections::VecDeque,
    fmt,
    panic::Location,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// How many calls are remembered: others may be that many behind and still learn that they differ.
const REMEMBERED: usize = 32;

/// In larger communicators a word goes to this many members of lower and of higher rank only: all to all would be too much
/// for a rank that is merely late. Verdicts are passed on by everybody.
const TOLD: usize = 64;

/// Of the messages that wait, how many are looked at when a call ends.
const STRAYS: usize = 64;

/// A collective call: what all ranks must call alike, and where this one does.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The operation.
    pub operation: Operation,
    /// Equal on two ranks where their calls fit together. Every message of the call carries it.
    pub fingerprint: Signature,
    /// How it is done; empty where there is one way only.
    pub algorithm: &'static str,
    /// Elements per rank; `None` where there are none, or each rank has its own number.
    pub elements: Option<usize>,
    /// Their type; `None` where there are none.
    pub element: Option<Signature>,
    /// The root, where there is one.
    pub root: Option<usize>,
    /// The operator; empty where there is none.
    pub operator: &'static str,
    /// Where the program makes the call.
    pub place: &'static Location<'static>,
}

impl Call {
    /// A call of which nothing but the operation must be the same.
    #[must_use]
    #[track_caller]
    pub fn of(operation: Operation) -> Call {
        Call {
            operation,
            fingerprint: Signature::of_name(operation.name()),
            algorithm: "",
            elements: None,
            element: None,
            root: None,
            operator: "",
            place: Location::caller(),
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.operation)?;
        if let Some(signature) = self.element {
            f.write_str(" of ")?;
            if let Some(count) = self.elements {
                write!(f, "{count} ")?;
            }
            f.write_str(&element::describe(signature))?;
        }
        if let Some(root) = self.root {
            write!(f, " with root {root}")?;
        }
        if !self.operator.is_empty() {
            write!(f, " by {}", self.operator)?;
        }
        if !self.algorithm.is_empty() {
            write!(f, " ({})", self.algorithm)?;
        }
        // The end of a path tells more than its beginning.
        let file = self.place.file();
        let shown = file.char_indices().rev().nth(59).map_or(file, |(at, _)| &file[at..]);
        write!(f, " at {shown}:{}", self.place.line())
    }
}

/// Who is told something.
#[derive(Clone, Copy, Debug)]
pub(super) enum Told<'a> {
    /// Of large communicators the members of ranks nearby, and those waited for.
    All,
    /// Ranks of the world.
    These(&'a [usize]),
}

/// How long a collective waits before it does something about it; zero: for ever.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) check: Duration,
    pub(super) warn: Duration,
    pub(super) limit: Duration,
}

impl Patience {
    /// When a rank that waits tells all others, so that who is missing is known when that is said; `None`: never.
    pub(super) fn tells_all(&self) -> Option<Duration> {
        let said = [self.warn, self.limit].into_iter().filter(|after| !after.is_zero()).min()?;
        (!self.check.is_zero()).then(|| self.check.max(said / 2))
    }
}

/// The calls of a communicator on this rank.
#[derive(Debug)]
pub(in crate::comm) struct Calls {
    /// Of the messages of collectives.
    pub(super) context: u64,
    pub(super) members: Arc<[usize]>,
    /// This rank's place in `members`.
    rank: usize,
    pub(super) patience: Patience,
    /// Set once calls do not fit together: no later one can be relied on.
    verdict: OnceLock<Error>,
    book: Mutex<Book>,
    /// Calls that the program has not made: those that made memory to be shared.
    own: AtomicU64,
    /// One more than the number of the call that ended last without a message, until the book says so; else 0.
    met: AtomicU64,
}

#[derive(Debug, Default)]
struct Book {
    next: u64,
    /// The last calls, without a gap.
    recent: VecDeque<Entry>,
    /// By member the last statement, as far as it is about a call that this rank has not made yet or is in.
    heard: FxHashMap<usize, Statement>,
    arriving: Vec<OperationId>,
}

#[derive(Debug)]
struct Entry {
    call: Call,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Open,
    Complete,
    /// It has failed: its messages may come or not.
    Failed,
}

impl Book {
    fn entry(&mut self, number: u64) -> Option<&mut Entry> {
        let first = self.next - self.recent.len() as u64;
        let at = usize::try_from(number.checked_sub(first)?).ok()?;
        self.recent.get_mut(at)
    }

    fn end(&mut self, number: u64, stage: Stage) {
        if let Some(entry) = self.entry(number) {
            entry.stage = stage;
        }
    }
}

impl Calls {
    pub(in crate::comm) fn new(context: u64, members: Arc<[usize]>, rank: usize, snapshot: &Snapshot) -> Self {
        let patience = Patience {
            check: snapshot.get(keys::COLLECTIVES_CHECK_AFTER),
            warn: snapshot.get(keys::COLLECTIVES_WARN_AFTER),
            limit: snapshot.get(keys::COLLECTIVES_TIMEOUT),
        };
        let (verdict, book, own, met) = (OnceLock::new(), Mutex::default(), AtomicU64::new(0), AtomicU64::new(0));
        Calls { context: collectives_of(context), members, rank, patience, verdict, book, own, met }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        if self.met.load(Ordering::Relaxed) != 0 {
            let number = self.met.swap(0, Ordering::Relaxed).wrapping_sub(1);
            book.end(number, Stage::Complete);
        }
        book
    }

    /// The last `calls` calls are not the program's, on any rank.
    pub(super) fn discount(&self, calls: u64) {
        self.own.fetch_add(calls, Ordering::Relaxed);
    }

    /// The number of a call as people count those of their program.
    pub(super) fn counted(&self, number: u64) -> u64 {
        number.saturating_sub(self.own.load(Ordering::Relaxed)).saturating_add(1)
    }

    /// This rank in the world.
    pub(super) fn world_rank(&self) -> u32 {
        narrow_rank(self.members[self.rank])
    }

    /// A call begins; its number.
    pub(super) fn begin(&self, engine: &mut Engine, call: Call) -> Result<u64> {
        self.check(engine)?;
        let mut book = self.book();
        if !book.arriving.is_empty() || engine.early(words_of(self.context)).next().is_some() {
            drop(book);
            self.hear(engine)?;
            book = self.book();
        }
        let number = book.next;
        book.next += 1;
        if book.recent.len() >= REMEMBERED && book.recent.front().is_some_and(|entry| entry.stage != Stage::Open) {
            book.recent.pop_front();
        }
        book.recent.push_back(Entry { call, stage: Stage::Open });
        if book.heard.is_empty() {
            return Ok(number);
        }
        book.heard.retain(|_, statement| statement.number >= number);
        let differs = |statement: &&Statement| statement.number == number && statement.fingerprint != call.fingerprint;
        let member = book.heard.iter().find(|(_, statement)| differs(statement)).map(|(member, _)| *member);
        let Some((member, statement)) = member.and_then(|member| book.heard.remove_entry(&member)) else {
            return Ok(number);
        };
        drop(book);
        Err(self.differ(engine, call, member, statement))
    }

    /// All messages of call `number` have come and gone; a message that waits for none of this rank's calls is reported:
    /// the call's number and the sender.
    pub(super) fn complete(&self, engine: &Engine, number: u64) -> Option<(u64, usize)> {
        let mut book = self.book();
        book.end(number, Stage::Complete);
        Self::stray(&mut book, engine, self.context)
    }

    /// All ranks have met in call `number`, without a message. Of such calls one is under way at a time.
    pub(super) fn have_met(&self, number: u64) {
        self.met.store(number + 1, Ordering::Relaxed);
    }

    fn stray(book: &mut Book, engine: &Engine, context: u64) -> Option<(u64, usize)> {
        engine
            .early(context)
            .take(STRAYS)
            .map(|(source, tag)| (tag >> 32, source))
            .find(|(number, _)| book.entry(*number).is_some_and(|entry| entry.stage == Stage::Complete))
    }

    /// The call has failed.
    pub(super) fn fail(&self, number: u64) {
        self.book().end(number, Stage::Failed);
    }

    /// Takes in what others have said.
    ///
    /// # Errors
    /// That the communicator is revoked; the verdict, once there is one.
    pub(super) fn hear(&self, engine: &mut Engine) -> Result<()> {
        self.check(engine)?;
        let context = words_of(self.context);
        let oldest = |engine: &Engine| engine.early(context).next();
        while let Some((source, tag)) = oldest(engine) {
            let pattern = Pattern { source: Some(source), tag: Some(tag) };
            let landing = Landing::Growing(AnyVec::default());
            let id = engine.start_receive(context, pattern, expected::<u8>(0, false), landing, &mut NoBuffers)?;
            self.book().arriving.push(id);
        }
        let arriving = std::mem::take(&mut self.book().arriving);
        for id in arriving {
            match engine.take_receive(id, &mut NoBuffers) {
                None => self.book().arriving.push(id),
                // A word of a rank that died meanwhile is as good as never said.
                Some(Err(_) | Ok((_, None))) => {}
                Some(Ok((envelope, Some(buffer)))) => {
                    if let Some(from) = self.members.iter().position(|peer| *peer == envelope.source)
                        && let Some(word) = Word::decode(buffer.bytes())
                    {
                        self.heard(engine, from, word);
                    }
                }
            }
        }
        self.verdict.get().cloned().map_or(Ok(()), Err)
    }

    fn check(&self, engine: &Engine) -> Result<()> {
        engine.check_open(self.context)?;
        self.verdict.get().cloned().map_or(Ok(()), Err)
    }

    fn heard(&self, engine: &mut Engine, from: usize, word: Word) {
        match word {
            Word::Verdict(verdict) => {
                // Passed on, also where everybody is told: whoever hears that this rank has left shall know why.
                if self.verdict.set(error_of(&verdict, self.counted(verdict.number))).is_ok() {
                    self.tell(engine, &Word::Verdict(verdict), |member, _| self.is_told(member));
                }
            }
            Word::Statement(statement) => {
                let mut book = self.book();
                let mine = book.entry(statement.number).map(|entry| entry.call);
                if let Some(mine) = mine.filter(|mine| mine.fingerprint != statement.fingerprint) {
                    drop(book);
                    self.differ(engine, mine, from, statement);
                } else {
                    book.heard.insert(from, statement);
                }
            }
        }
    }

    /// This rank's call and that of a member do not fit together: everybody is told.
    fn differ(&self, engine: &mut Engine, mine: Call, member: usize, statement: Statement) -> Error {
        let other = (narrow_rank(self.members[member]), statement.call);
        self.decide(engine, statement.number, mine.to_string(), other)
    }

    /// A rank of the world has sent a message of another call than this rank's of that number, and does not say which.
    pub(super) fn decide_alone(&self, engine: &mut Engine, number: u64, source: usize) -> Error {
        let mine = self.book().entry(number).map(|entry| entry.call.to_string());
        let mine = mine.unwrap_or_else(|| String::from("a call that it has forgotten"));
        let other = (narrow_rank(source), String::from("something else (it has not said what)"));
        self.decide(engine, number, mine, other)
    }

    fn decide(&self, engine: &mut Engine, number: u64, mine: String, other: (u32, String)) -> Error {
        let mine = (self.world_rank(), mine);
        let (first, second) = if mine.0 < other.0 { (mine, other) } else { (other, mine) };
        let verdict = Verdict { number, first, second };
        let error = error_of(&verdict, self.counted(verdict.number));
        if self.verdict.set(error.clone()).is_ok() {
            self.tell(engine, &Word::Verdict(verdict), |member, _| self.is_told(member));
        }
        self.verdict.get().cloned().unwrap_or(error)
    }

    /// States this rank's call of that number, and the ranks of the world that it waits for: to these, or to all others. What keeps a rank waiting is with one that it waits for, or with one that this one waits for, and so on: the first
    /// is enough to find calls that differ, and opens no connections that there are not. Who is not there at all is known
    /// only to those who have heard all.
    pub(super) fn state(&self, engine: &mut Engine, number: u64, waits_for: &[usize], told: Told<'_>) {
        let Some(call) = self.book().entry(number).map(|entry| entry.call) else { return };
        let statement = Statement {
            number,
            fingerprint: call.fingerprint,
            waits_for: waits_for.iter().map(|rank| narrow_rank(*rank)).collect(),
            call: call.to_string(),
        };
        self.tell(engine, &Word::Statement(statement), |member, peer| match told {
            Told::All => self.is_told(member) || waits_for.contains(&peer),
            Told::These(ranks) => ranks.contains(&peer),
        });
    }

    /// Whether a member is near enough to be told what all are told.
    pub(super) fn is_told(&self, member: usize) -> bool {
        member.abs_diff(self.rank) <= TOLD
    }

    /// Whoever is gone hears nothing. `whom`: by member and rank of the world.
    fn tell(&self, engine: &mut Engine, word: &Word, whom: impl Fn(usize, usize) -> bool) {
        let bytes = word.encode();
        let header = Header {
            context: words_of(self.context),
            total: bytes.len() as u64,
            signature: u8::signature().0,
            ..Header::new(Kind::Eager)
        };
        for (member, peer) in self.members.iter().enumerate() {
            if member != self.rank && whom(member, *peer) {
                let _ = engine.send_whole(*peer, header, AnyVec::new(bytes.clone()));
            }
        }
    }

    /// Ranks of the world that others, or this rank (`waits_for`), wait for in call `number` and that have not said that
    /// they are in it or beyond; and whether a lower rank is waiting, too, who will say so.
    pub(super) fn missing(&self, number: u64, waits_for: &[usize]) -> (Vec<u32>, bool) {
        let book = self.book();
        let arrived = |rank: u32| {
            let said = book.heard.iter().find(|(member, _)| narrow_rank(self.members[**member]) == rank);
            rank == self.world_rank() || said.is_some_and(|(_, statement)| statement.number >= number)
        };
        let in_it = book.heard.values().filter(|statement| statement.number == number);
        let mut missing: Vec<u32> = in_it
            .flat_map(|statement| statement.waits_for.iter().copied())
            .chain(waits_for.iter().map(|rank| narrow_rank(*rank)))
            .filter(|rank| !arrived(*rank))
            .collect();
        missing.sort_unstable();
        missing.dedup();
        let lower_waits =
            book.heard.iter().any(|(member, statement)| *member < self.rank && statement.number == number);
        (missing, lower_waits)
    }

    /// The communicator is dropped: says so if it was used wrongly and no call has said it.
    pub(in crate::comm) fn last_look(&self, engine: &mut Engine) {
        if engine.check_open(self.context).is_err() {
            // Words that were arriving: `hear` takes none any more.
            self.book().arriving.drain(..).for_each(|id| engine.abandon_receive(id));
            return;
        }
        let told = self.verdict.get().is_some();
        let stray = Self::stray(&mut self.book(), engine, self.context);
        let problem = match (self.hear(engine), stray) {
            (Err(verdict), _) => verdict,
            (Ok(()), Some((number, source))) => self.decide_alone(engine, number, source),
            (Ok(()), None) => return,
        };
        if !told {
            eprintln!("rank {}: results of collectives may be wrong: {problem}", self.world_rank());
        }
    }
}

fn error_of(verdict: &Verdict, number: u64) -> Error {
    let Verdict { first, second, .. } = verdict;
    Error::CallMismatch {
        number,
        rank: first.0 as usize,
        call: first.1.clone(),
        other_rank: second.0 as usize,
        other: second.1.clone(),
    }
}

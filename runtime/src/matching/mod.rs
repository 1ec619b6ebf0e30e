//! Which message belongs to which receive: order per source, wildcards, communicators apart.
//!
//! Pure: messages and receives in, pairs out. No I/O, no clock, no bytes. Everything takes constant time, whatever waits,
//! as Flajslik, Dinan and Underwood hash posted receives ("Mitigating MPI message matching misery", ISC 2016): numbers
//! common to all queues tell which of two entries is older.

#[cfg(test)]
mod tests;
mod waiting;

use rustc_hash::FxHashMap;
pub(crate) use waiting::Ticket;
use waiting::{Entry, Waiting};

/// Empty contexts are kept up to this many, so that the ones in use need not be made anew for every message.
const KEPT: usize = 64;

/// What a receive asks for within one context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Pattern {
    /// The sender's rank in the world; `None` for any.
    pub(crate) source: Option<usize>,
    /// `None` for any.
    pub(crate) tag: Option<u64>,
}

impl Pattern {
    /// How many kinds of patterns there are: source and tag each given or any.
    const KINDS: usize = 4;

    /// The patterns that admit a message.
    fn of(source: usize, tag: u64) -> [Pattern; Pattern::KINDS] {
        let (source, tag) = (Some(source), Some(tag));
        [
            Pattern { source, tag },
            Pattern { source, tag: None },
            Pattern { source: None, tag },
            Pattern { source: None, tag: None },
        ]
    }

    #[inline]
    fn kind(&self) -> usize {
        usize::from(self.source.is_none()) << 1 | usize::from(self.tag.is_none())
    }

    #[inline]
    pub(crate) fn admits(&self, source: usize, tag: u64) -> bool {
        self.source.is_none_or(|wanted| wanted == source) && self.tag.is_none_or(|wanted| wanted == tag)
    }
}

/// A message that came before its receive.
#[derive(Debug)]
pub(crate) struct Unexpected<M> {
    pub(crate) source: usize,
    pub(crate) tag: u64,
    pub(crate) place: Place,
    pub(crate) message: M,
}

/// A message's place among all messages and receives of a rank, in the order in which they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place(u64);

impl<M> Entry<{ Pattern::KINDS }> for Unexpected<M> {
    fn patterns(&self) -> [Pattern; Pattern::KINDS] {
        Pattern::of(self.source, self.tag)
    }
}

#[derive(Debug)]
struct Posted<R> {
    pattern: Pattern,
    receive: R,
}

impl<R> Entry<1> for Posted<R> {
    fn patterns(&self) -> [Pattern; 1] {
        [self.pattern]
    }
}

/// Receives that wait for messages and messages that wait for receives, of one rank.
///
/// Invariant: within a context no waiting message is admitted by any waiting receive.
#[derive(Debug)]
pub(crate) struct Matcher<R, M> {
    /// For every context in use its place in `queues`.
    contexts: FxHashMap<u64, usize>,
    queues: Vec<Queues<R, M>>,
    /// Places in `queues` that no context uses: they are empty.
    free: Vec<usize>,
    /// The context that was used last, and its place: usually the next one's, too.
    last: Option<(u64, usize)>,
    next: u64,
}

#[derive(Debug)]
struct Queues<R, M> {
    posted: Waiting<Posted<R>, 1>,
    unexpected: Waiting<Unexpected<M>, { Pattern::KINDS }>,
}

impl<R, M> Default for Queues<R, M> {
    fn default() -> Self {
        Queues { posted: Waiting::default(), unexpected: Waiting::default() }
    }
}

impl<R, M> Queues<R, M> {
    /// The oldest receive that admits a message.
    #[inline]
    fn first_posted(&self, source: usize, tag: u64) -> Option<Ticket> {
        self.posted.first(|| Pattern::of(source, tag), |posted| posted.pattern.admits(source, tag))
    }

    /// The oldest receive that admits a message, taken out.
    fn take_posted(&mut self, source: usize, tag: u64) -> Option<R> {
        let ticket = self.first_posted(source, tag)?;
        self.posted.remove(ticket).map(|(_, posted)| posted.receive)
    }

    /// The oldest message that a pattern admits.
    #[inline]
    fn first_unexpected(&self, pattern: Pattern) -> Option<Ticket> {
        self.unexpected.first(|| [pattern], |waiting| pattern.admits(waiting.source, waiting.tag))
    }

    /// Takes out every receive whose pattern is chosen.
    fn take_every_posted(&mut self, chosen: impl Fn(Pattern) -> bool, taken: &mut Vec<R>) {
        let tickets: Vec<Ticket> =
            self.posted.iter().filter(|(_, posted)| chosen(posted.pattern)).map(|(ticket, _)| ticket).collect();
        taken.extend(tickets.into_iter().filter_map(|ticket| Some(self.posted.remove(ticket)?.1.receive)));
    }
}

impl<R, M> Default for Matcher<R, M> {
    fn default() -> Self {
        Matcher { contexts: FxHashMap::default(), queues: Vec::new(), free: Vec::new(), last: None, next: 0 }
    }
}

impl<R, M> Matcher<R, M> {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// The place of a message that meets a receive without [`Matcher::arrive`].
    pub(crate) fn place(&mut self) -> Place {
        Place(self.number())
    }

    /// The place of a context's queues, if it has any.
    #[inline]
    fn place_of(&self, context: u64) -> Option<usize> {
        match self.last {
            Some((last, place)) if last == context => Some(place),
            _ => self.contexts.get(&context).copied(),
        }
    }

    #[inline]
    fn queues(&self, context: u64) -> Option<&Queues<R, M>> {
        self.place_of(context).map(|place| &self.queues[place])
    }

    #[inline]
    fn queues_mut(&mut self, context: u64) -> Option<&mut Queues<R, M>> {
        self.place_of(context).map(|place| &mut self.queues[place])
    }

    /// The queues of a context, which is in use from now on.
    #[inline]
    fn open(&mut self, context: u64) -> &mut Queues<R, M> {
        let place = match self.place_of(context) {
            Some(place) => place,
            None => self.begin(context),
        };
        self.last = Some((context, place));
        &mut self.queues[place]
    }

    #[cold]
    fn begin(&mut self, context: u64) -> usize {
        let place = self.free.pop().unwrap_or(self.queues.len());
        if place == self.queues.len() {
            self.queues.push(Queues::default());
        }
        self.contexts.insert(context, place);
        place
    }

    /// Drops the queues of a context that has become empty, once there are many: communicators come and go.
    #[inline]
    fn tidy(&mut self, context: u64) {
        if self.contexts.len() > KEPT {
            self.drop_if_empty(context);
        }
    }

    fn drop_if_empty(&mut self, context: u64) {
        let Some(place) = self.place_of(context) else { return };
        let queues = &mut self.queues[place];
        if queues.posted.is_empty() && queues.unexpected.is_empty() {
            *queues = Queues::default();
            self.contexts.remove(&context);
            self.free.push(place);
            self.last = None;
        }
    }

    /// Whether this message, which has just come, would be the one for a receive that has not been posted: none that is
    /// posted gets it, and none waits that must be received before it.
    #[inline]
    pub(crate) fn is_next(&self, context: u64, pattern: Pattern, (source, tag): (usize, u64)) -> bool {
        self.queues(context).is_none_or(|queues| {
            queues.first_posted(source, tag).is_none() && queues.first_unexpected(pattern).is_none()
        })
    }

    /// A message has come: the oldest receive that admits it, or it waits.
    #[inline]
    pub(crate) fn arrive(
        &mut self,
        context: u64,
        source: usize,
        tag: u64,
        message: impl FnOnce() -> M,
    ) -> Option<(R, Place)> {
        let number = self.number();
        let queues = self.open(context);
        let receive = queues.take_posted(source, tag);
        if receive.is_some() {
            self.tidy(context);
        } else {
            queues.unexpected.insert(number, Unexpected { source, tag, place: Place(number), message: message() });
        }
        receive.map(|receive| (receive, Place(number)))
    }

    /// The receive that a message would get, left where it is.
    pub(crate) fn waiting_for(&self, context: u64, source: usize, tag: u64) -> Option<&R> {
        let queues = self.queues(context)?;
        let ticket = queues.first_posted(source, tag)?;
        queues.posted.get(ticket).map(|posted| &posted.receive)
    }

    /// The oldest waiting message that `pattern` admits, taken out.
    #[inline]
    pub(crate) fn take(&mut self, context: u64, pattern: Pattern) -> Option<Unexpected<M>> {
        let queues = self.queues_mut(context)?;
        let ticket = queues.first_unexpected(pattern)?;
        let (_, taken) = queues.unexpected.remove(ticket)?;
        self.tidy(context);
        Some(taken)
    }

    /// The oldest waiting message that `pattern` admits, left where it is.
    #[inline]
    pub(crate) fn peek(&self, context: u64, pattern: Pattern) -> Option<&Unexpected<M>> {
        let queues = self.queues(context)?;
        queues.unexpected.get(queues.first_unexpected(pattern)?)
    }

    /// Source and tag of every message that waits in a context, the oldest nearly first.
    pub(crate) fn waiting_in(&self, context: u64) -> impl Iterator<Item = (usize, u64)> {
        let waiting = self.queues(context).into_iter().flat_map(|queues| queues.unexpected.iter());
        waiting.map(|(_, message)| (message.source, message.tag))
    }

    /// A message that was taken out waits again, at its old place. When a receive waits for it by now, both are returned.
    pub(crate) fn put_back(&mut self, context: u64, message: Unexpected<M>) -> PutBack<R, M> {
        let queues = self.open(context);
        match queues.take_posted(message.source, message.tag) {
            Some(receive) => PutBack::Matched(receive, message),
            None => PutBack::Waits(queues.unexpected.insert(message.place.0, message)),
        }
    }

    /// Shows every message that waits.
    #[cfg(test)]
    pub(crate) fn each_unexpected(&self, mut show: impl FnMut(&M)) {
        for queues in &self.queues {
            queues.unexpected.iter().for_each(|(_, waiting)| show(&waiting.message));
        }
    }

    /// A message that waits.
    pub(crate) fn waiting(&mut self, context: u64, ticket: Ticket) -> Option<&mut Unexpected<M>> {
        self.queues_mut(context)?.unexpected.get_mut(ticket)
    }

    /// Takes out a message that waits.
    pub(crate) fn discard_waiting(&mut self, context: u64, ticket: Ticket) {
        if let Some(queues) = self.queues_mut(context) {
            queues.unexpected.remove(ticket);
            self.tidy(context);
        }
    }

    /// Takes out every waiting message that is chosen.
    pub(crate) fn discard(&mut self, chosen: impl Fn(&Unexpected<M>) -> bool) {
        for queues in &mut self.queues {
            let tickets: Vec<Ticket> =
                queues.unexpected.iter().filter(|(_, waiting)| chosen(waiting)).map(|(ticket, _)| ticket).collect();
            for ticket in tickets {
                queues.unexpected.remove(ticket);
            }
        }
    }

    /// Takes out everything that waits in a context, receives and messages.
    pub(crate) fn take_all(&mut self, context: u64) -> (Vec<R>, Vec<Unexpected<M>>) {
        let (mut receives, mut messages) = (Vec::new(), Vec::new());
        if let Some(queues) = self.queues_mut(context) {
            queues.take_every_posted(|_| true, &mut receives);
            let tickets: Vec<Ticket> = queues.unexpected.iter().map(|(ticket, _)| ticket).collect();
            messages.extend(tickets.into_iter().filter_map(|ticket| Some(queues.unexpected.remove(ticket)?.1)));
            self.drop_if_empty(context);
        }
        (receives, messages)
    }

    /// A receive waits. The caller has tried [`Matcher::take`] before.
    #[inline]
    pub(crate) fn post(&mut self, context: u64, pattern: Pattern, receive: R) -> Ticket {
        let number = self.number();
        self.open(context).posted.insert(number, Posted { pattern, receive })
    }

    /// Withdraws a waiting receive; `None` when it is not waiting (any more).
    pub(crate) fn withdraw(&mut self, context: u64, ticket: Ticket) -> Option<R> {
        let (_, posted) = self.queues_mut(context)?.posted.remove(ticket)?;
        self.tidy(context);
        Some(posted.receive)
    }

    /// Whether any receive waits that a message from this source could meet.
    pub(crate) fn is_anything_posted_for(&self, source: usize) -> bool {
        let wants = |pattern: Pattern| pattern.source.is_none_or(|wanted| wanted == source);
        self.queues.iter().any(|queues| queues.posted.iter().any(|(_, posted)| wants(posted.pattern)))
    }

    /// The contexts in which a receive waits for any source.
    pub(crate) fn contexts_with_wildcards(&self) -> Vec<u64> {
        let waits = |queues: &Queues<R, M>| queues.posted.iter().any(|(_, posted)| posted.pattern.source.is_none());
        self.contexts.iter().filter(|(_, place)| waits(&self.queues[**place])).map(|(context, _)| *context).collect()
    }

    /// Takes out every receive of a context that waits for any source.
    pub(crate) fn take_wildcards(&mut self, context: u64) -> Vec<R> {
        let mut taken = Vec::new();
        if let Some(queues) = self.queues_mut(context) {
            queues.take_every_posted(|pattern| pattern.source.is_none(), &mut taken);
        }
        taken
    }

    /// Takes out every receive that waits for exactly this source.
    pub(crate) fn take_waiting_for(&mut self, source: usize) -> Vec<R> {
        let mut taken = Vec::new();
        for queues in &mut self.queues {
            queues.take_every_posted(|pattern| pattern.source == Some(source), &mut taken);
        }
        taken
    }
}

/// What became of a message that was put back.
#[derive(Debug)]
pub(crate) enum PutBack<R, M> {
    /// It waits.
    Waits(Ticket),
    /// This receive has waited for it.
    Matched(R, Unexpected<M>),
}

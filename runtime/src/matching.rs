//! Which message belongs to which receive: order per source, wildcards, communicators apart.
//!
//! Pure: messages and receives in, pairs out. No I/O, no clock, no bytes.

use rustc_hash::FxHashMap;
use std::collections::VecDeque;

/// Empty contexts are kept up to this many, so that the ones in use need not be made anew for every message.
const KEPT: usize = 64;

/// What a receive asks for within one context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pattern {
    /// The sender's rank in the world; `None` for any.
    pub(crate) source: Option<usize>,
    /// `None` for any.
    pub(crate) tag: Option<u64>,
}

impl Pattern {
    fn admits(&self, source: usize, tag: u64) -> bool {
        self.source.is_none_or(|wanted| wanted == source) && self.tag.is_none_or(|wanted| wanted == tag)
    }
}

/// A message that came before its receive.
#[derive(Debug)]
pub(crate) struct Unexpected<M> {
    pub(crate) source: usize,
    pub(crate) tag: u64,
    pub(crate) message: M,
}

/// Receives that wait for messages and messages that wait for receives, of one rank.
///
/// Invariant: within a context no waiting message is admitted by any waiting receive.
#[derive(Debug)]
pub(crate) struct Matcher<R, M> {
    contexts: FxHashMap<u64, Queues<R, M>>,
}

#[derive(Debug)]
struct Queues<R, M> {
    posted: VecDeque<(Pattern, R)>,
    unexpected: VecDeque<Unexpected<M>>,
}

impl<R, M> Default for Matcher<R, M> {
    fn default() -> Self {
        Matcher { contexts: FxHashMap::default() }
    }
}

impl<R: PartialEq, M> Matcher<R, M> {
    fn queues(&mut self, context: u64) -> &mut Queues<R, M> {
        self.contexts.entry(context).or_insert_with(|| Queues { posted: VecDeque::new(), unexpected: VecDeque::new() })
    }

    /// Drops the queues of a context that has become empty, once there are many: communicators come and go.
    fn tidy(&mut self, context: u64) {
        if self.contexts.len() > KEPT
            && self
                .contexts
                .get(&context)
                .is_some_and(|queues| queues.posted.is_empty() && queues.unexpected.is_empty())
        {
            self.contexts.remove(&context);
        }
    }

    /// A message has come: the oldest receive that admits it, or it waits.
    pub(crate) fn arrive(&mut self, context: u64, source: usize, tag: u64, message: impl FnOnce() -> M) -> Option<R> {
        let queues = self.queues(context);
        match queues.posted.iter().position(|(pattern, _)| pattern.admits(source, tag)) {
            Some(at) => {
                let receive = queues.posted.remove(at).map(|(_, receive)| receive);
                self.tidy(context);
                receive
            }
            None => {
                queues.unexpected.push_back(Unexpected { source, tag, message: message() });
                None
            }
        }
    }

    /// The receive that a message would get, left where it is.
    pub(crate) fn waiting_for(&self, context: u64, source: usize, tag: u64) -> Option<&R> {
        let queues = self.contexts.get(&context)?;
        queues.posted.iter().find(|(pattern, _)| pattern.admits(source, tag)).map(|(_, receive)| receive)
    }

    /// The oldest waiting message that `pattern` admits, taken out.
    pub(crate) fn take(&mut self, context: u64, pattern: Pattern) -> Option<Unexpected<M>> {
        let queues = self.contexts.get_mut(&context)?;
        let at = queues.unexpected.iter().position(|waiting| pattern.admits(waiting.source, waiting.tag))?;
        let taken = queues.unexpected.remove(at);
        self.tidy(context);
        taken
    }

    /// The oldest waiting message that `pattern` admits, left where it is.
    pub(crate) fn peek(&self, context: u64, pattern: Pattern) -> Option<&Unexpected<M>> {
        self.contexts.get(&context)?.unexpected.iter().find(|waiting| pattern.admits(waiting.source, waiting.tag))
    }

    /// A receive waits. The caller has tried [`Matcher::take`] before.
    pub(crate) fn post(&mut self, context: u64, pattern: Pattern, receive: R) {
        self.queues(context).posted.push_back((pattern, receive));
    }

    /// Withdraws a waiting receive; `false` when it is not waiting (any more).
    pub(crate) fn withdraw(&mut self, context: u64, receive: &R) -> bool {
        let Some(queues) = self.contexts.get_mut(&context) else { return false };
        let before = queues.posted.len();
        queues.posted.retain(|(_, waiting)| waiting != receive);
        let withdrawn = queues.posted.len() < before;
        self.tidy(context);
        withdrawn
    }

    /// The contexts in which a receive waits for any source.
    pub(crate) fn contexts_with_wildcards(&self) -> Vec<u64> {
        let waits = |queues: &Queues<R, M>| queues.posted.iter().any(|(pattern, _)| pattern.source.is_none());
        self.contexts.iter().filter(|(_, queues)| waits(queues)).map(|(context, _)| *context).collect()
    }

    /// Takes out every receive of a context that waits for any source.
    pub(crate) fn take_wildcards(&mut self, context: u64) -> Vec<R> {
        let Some(queues) = self.contexts.get_mut(&context) else { return Vec::new() };
        let (taken, kept): (VecDeque<_>, VecDeque<_>) =
            queues.posted.drain(..).partition(|(pattern, _)| pattern.source.is_none());
        queues.posted = kept;
        taken.into_iter().map(|(_, receive)| receive).collect()
    }

    /// Takes out every receive that waits for exactly this source.
    pub(crate) fn take_waiting_for(&mut self, source: usize) -> Vec<R> {
        let mut taken = Vec::new();
        for queues in self.contexts.values_mut() {
            let mut kept = VecDeque::with_capacity(queues.posted.len());
            for (pattern, receive) in queues.posted.drain(..) {
                if pattern.source == Some(source) {
                    taken.push(receive);
                } else {
                    kept.push_back((pattern, receive));
                }
            }
            queues.posted = kept;
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ANY: Pattern = Pattern { source: None, tag: None };

    fn from(source: usize, tag: u64) -> Pattern {
        Pattern { source: Some(source), tag: Some(tag) }
    }

    #[test]
    fn messages_of_one_source_are_received_in_their_order() {
        let mut matcher = Matcher::<u32, char>::default();
        for message in ['a', 'b', 'c'] {
            assert_eq!(matcher.arrive(0, 5, 1, || message), None);
        }
        for (pattern, message) in [(from(5, 1), 'a'), (ANY, 'b'), (from(5, 1), 'c')] {
            assert_eq!(matcher.take(0, pattern).unwrap().message, message);
        }
        assert!(matcher.contexts.len() <= KEPT);
    }

    #[test]
    fn contexts_that_are_no_longer_used_are_forgotten() {
        let mut matcher = Matcher::<u32, ()>::default();
        for context in 0..10_000 {
            assert_eq!(matcher.arrive(context, 0, 0, || ()), None);
            assert!(matcher.take(context, ANY).is_some());
            matcher.post(context, ANY, 1);
            assert_eq!(matcher.arrive(context, 0, 0, || ()), Some(1));
        }
        assert!(matcher.contexts.len() <= KEPT + 1);
    }

    #[test]
    fn the_oldest_receive_that_admits_a_message_gets_it() {
        let mut matcher = Matcher::<u32, ()>::default();
        matcher.post(0, from(5, 2), 1);
        matcher.post(0, ANY, 2);
        matcher.post(0, from(5, 1), 3);
        assert_eq!(matcher.arrive(0, 5, 1, || ()), Some(2));
        assert_eq!(matcher.arrive(0, 5, 1, || ()), Some(3));
        assert_eq!(matcher.arrive(0, 5, 2, || ()), Some(1));
    }

    #[test]
    fn contexts_never_mix() {
        let mut matcher = Matcher::<u32, ()>::default();
        matcher.post(1, ANY, 1);
        assert_eq!(matcher.arrive(2, 0, 0, || ()), None);
        assert!(matcher.peek(1, ANY).is_none());
        assert!(matcher.peek(2, ANY).is_some());
    }

    #[test]
    fn a_receive_that_waits_for_a_lost_source_is_found_and_wildcards_stay() {
        let mut matcher = Matcher::<u32, ()>::default();
        matcher.post(0, from(5, 1), 1);
        matcher.post(7, Pattern { source: Some(5), tag: None }, 2);
        matcher.post(0, ANY, 3);
        let mut taken = matcher.take_waiting_for(5);
        taken.sort_unstable();
        assert_eq!(taken, [1, 2]);
        assert!(matcher.withdraw(0, &3));
        assert!(!matcher.withdraw(0, &3));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Arrive { context: u64, source: usize, tag: u64 },
        Receive { context: u64, pattern: Pattern },
        Withdraw { receive: u32 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..2_u64, 0..3_usize, 0..3_u64).prop_map(|(context, source, tag)| Step::Arrive { context, source, tag }),
            4 => (0..2_u64, proptest::option::of(0..3_usize), proptest::option::of(0..3_u64))
                .prop_map(|(context, source, tag)| Step::Receive { context, pattern: Pattern { source, tag } }),
            1 => (0..40_u32).prop_map(|receive| Step::Withdraw { receive }),
        ];
        proptest::collection::vec(step, 0..80)
    }

    proptest! {
        /// Against the definition: one list of everything that waits, searched from the oldest on.
        #[test]
        fn the_matcher_agrees_with_a_single_list(steps in steps()) {
            let mut matcher = Matcher::<u32, u32>::default();
            let mut posted: Vec<(u64, Pattern, u32)> = Vec::new();
            let mut waiting: Vec<(u64, usize, u64, u32)> = Vec::new();
            for (number, step) in steps.into_iter().enumerate() {
                let number = u32::try_from(number).unwrap();
                match step {
                    Step::Arrive { context, source, tag } => {
                        let naive = posted.iter().position(|(c, p, _)| *c == context && p.admits(source, tag)).map(|at| posted.remove(at).2);
                        if naive.is_none() {
                            waiting.push((context, source, tag, number));
                        }
                        prop_assert_eq!(matcher.arrive(context, source, tag, || number), naive);
                    }
                    Step::Receive { context, pattern } => {
                        let naive = waiting.iter().position(|(c, s, t, _)| *c == context && pattern.admits(*s, *t)).map(|at| waiting.remove(at).3);
                        prop_assert_eq!(matcher.peek(context, pattern).map(|found| found.message), naive);
                        let found = matcher.take(context, pattern).map(|found| found.message);
                        prop_assert_eq!(found, naive);
                        if naive.is_none() {
                            posted.push((context, pattern, number));
                            matcher.post(context, pattern, number);
                        }
                    }
                    Step::Withdraw { receive } => {
                        let context = posted.iter().position(|(_, _, r)| *r == receive).map(|at| posted.remove(at).0);
                        prop_assert_eq!(matcher.withdraw(context.unwrap_or(0), &receive), context.is_some());
                    }
                }
            }
        }
    }
}

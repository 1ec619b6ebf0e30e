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
}

#[test]
fn contexts_that_are_no_longer_used_are_forgotten() {
    let mut matcher = Matcher::<u32, ()>::default();
    for context in 0..10_000 {
        assert_eq!(matcher.arrive(context, 0, 0, || ()), None);
        assert!(matcher.take(context, ANY).is_some());
        matcher.post(context, ANY, 1);
        assert_eq!(matcher.arrive(context, 0, 0, || ()).unwrap().0, 1);
    }
    assert!(matcher.contexts.len() <= KEPT + 1);
}

#[test]
fn the_oldest_receive_that_admits_a_message_gets_it() {
    let mut matcher = Matcher::<u32, ()>::default();
    matcher.post(0, from(5, 2), 1);
    matcher.post(0, ANY, 2);
    matcher.post(0, from(5, 1), 3);
    assert_eq!(matcher.arrive(0, 5, 1, || ()).unwrap().0, 2);
    assert_eq!(matcher.arrive(0, 5, 1, || ()).unwrap().0, 3);
    assert_eq!(matcher.arrive(0, 5, 2, || ()).unwrap().0, 1);
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
    let wildcard = matcher.post(0, ANY, 3);
    let mut taken = matcher.take_waiting_for(5);
    taken.sort_unstable();
    assert_eq!(taken, [1, 2]);
    assert_eq!(matcher.contexts_with_wildcards(), [0]);
    assert_eq!(matcher.withdraw(0, wildcard), Some(3));
    assert_eq!(matcher.withdraw(0, wildcard), None);
}

#[test]
fn a_message_that_is_put_back_is_the_oldest_again() {
    for others in [3, 1000] {
        let mut matcher = Matcher::<u32, u64>::default();
        for number in 0..others {
            assert_eq!(matcher.arrive(0, 5, 1, || number), None);
        }
        let first = matcher.take(0, ANY).unwrap();
        let second = matcher.take(0, from(5, 1)).unwrap();
        for message in [second, first] {
            assert!(matches!(matcher.put_back(0, message), PutBack::Waits(_)));
        }
        for number in 0..others {
            assert_eq!(matcher.take(0, from(5, 1)).unwrap().message, number);
        }
    }
}

/// The most steps that any call may take, whatever waits.
const STEPS: u64 = waiting::SHORT as u64 + 16;

fn steps(matcher: &Matcher<u32, u32>) -> u64 {
    matcher.queues.iter().map(|queues| queues.posted.steps.get() + queues.unexpected.steps.get()).sum()
}

/// Calls that must each take constant time.
struct Counted {
    matcher: Matcher<u32, u32>,
    before: u64,
}

impl Counted {
    fn call<R>(&mut self, call: impl FnOnce(&mut Matcher<u32, u32>) -> R) -> R {
        let result = call(&mut self.matcher);
        let now = steps(&self.matcher);
        assert!(now - self.before <= STEPS, "{} steps", now - self.before);
        self.before = now;
        result
    }
}

const MANY: u32 = 100_000;

#[test]
fn a_hundred_thousand_receives_are_matched_in_constant_time_each_in_any_order() {
    let mut counted = Counted { matcher: Matcher::default(), before: 0 };
    for number in 0..MANY {
        counted.call(|matcher| matcher.post(0, from(1, number.into()), number));
    }
    for number in (0..MANY).rev() {
        assert_eq!(counted.call(|matcher| matcher.arrive(0, 1, number.into(), || number)).unwrap().0, number);
    }
    let tickets: Vec<Ticket> =
        (0..MANY).map(|number| counted.call(|matcher| matcher.post(0, from(1, 7), number))).collect();
    for (number, ticket) in tickets.into_iter().enumerate().rev() {
        let withdrawn = counted.call(|matcher| matcher.withdraw(0, ticket));
        assert_eq!(withdrawn.map(|receive| receive as usize), Some(number));
    }
}

#[test]
fn a_hundred_thousand_unexpected_messages_are_found_in_constant_time_each_by_every_kind_of_pattern() {
    let mut counted = Counted { matcher: Matcher::default(), before: 0 };
    let (source, tag) = (|number: u32| number as usize % 10, |number: u32| u64::from(number / 10));
    for number in 0..MANY {
        assert_eq!(counted.call(|matcher| matcher.arrive(0, source(number), tag(number), || number)), None);
    }
    let mut taken = vec![false; MANY as usize];
    for number in (MANY / 2..MANY).rev() {
        let found = counted.call(|matcher| matcher.take(0, from(source(number), tag(number)))).unwrap();
        assert_eq!(found.message, number);
        taken[number as usize] = true;
    }
    for number in 0..MANY / 2 {
        let pattern = match number % 3 {
            0 => ANY,
            1 => Pattern { source: Some(source(number / 3)), tag: None },
            // The last tag that is left.
            _ => Pattern { source: None, tag: Some(tag(MANY / 2 - 1 - number / 3)) },
        };
        let found = counted.call(|matcher| matcher.take(0, pattern));
        let found = found.unwrap_or_else(|| counted.call(|matcher| matcher.take(0, ANY)).unwrap());
        assert!(!std::mem::replace(&mut taken[found.message as usize], true));
    }
    assert!(taken.into_iter().all(|taken| taken));
    assert!(counted.matcher.queues(0).unwrap().unexpected.is_empty());
}

#[test]
fn memory_is_given_back_when_all_has_been_matched() {
    let mut matcher = Matcher::<u32, u32>::default();
    for number in 0..MANY {
        matcher.post(0, from(1, number.into()), number);
        matcher.arrive(0, 2, number.into(), || number);
    }
    let full = matcher.queues(0).unwrap().unexpected.capacity();
    for number in 0..MANY {
        matcher.arrive(0, 1, number.into(), || number);
        matcher.take(0, from(2, number.into()));
    }
    let queues = matcher.queues(0).unwrap();
    assert!(full >= MANY as usize && queues.unexpected.capacity() <= 1024 && queues.posted.capacity() <= 1024);
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { context: u64, source: usize, tag: u64 },
    Receive { context: u64, pattern: Pattern },
    Withdraw { receive: u32 },
    TakeOut { context: u64, pattern: Pattern },
    PutBack { which: usize },
    Lose { source: usize },
    EndWildcards { context: u64 },
}

fn a_pattern() -> impl Strategy<Value = Pattern> {
    (proptest::option::of(0..3_usize), proptest::option::of(0..3_u64)).prop_map(|(source, tag)| Pattern { source, tag })
}

fn some_steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        20 => (0..2_u64, 0..3_usize, 0..3_u64).prop_map(|(context, source, tag)| Step::Arrive { context, source, tag }),
        16 => (0..2_u64, a_pattern()).prop_map(|(context, pattern)| Step::Receive { context, pattern }),
        3 => (0..400_u32).prop_map(|receive| Step::Withdraw { receive }),
        4 => (0..2_u64, a_pattern()).prop_map(|(context, pattern)| Step::TakeOut { context, pattern }),
        4 => (0..8_usize).prop_map(|which| Step::PutBack { which }),
        1 => (0..3_usize).prop_map(|source| Step::Lose { source }),
        1 => (0..2_u64).prop_map(|context| Step::EndWildcards { context }),
    ];
    // Long enough that far more wait than the short list holds; the beginning only arrives or only receives.
    (any::<bool>(), proptest::collection::vec(step, 0..400)).prop_map(|(arrive_first, mut steps)| {
        let unwanted = |step: &Step| match step {
            Step::Arrive { .. } => !arrive_first,
            Step::Receive { .. } => arrive_first,
            _ => true,
        };
        let mut at = 0;
        steps.retain(|step| {
            at += 1;
            at > 250 || !unwanted(step)
        });
        steps
    })
}

proptest! {
    /// Against the definition: one list of everything that waits, searched from the oldest on.
    #[test]
    fn the_matcher_agrees_with_a_single_list(steps in some_steps()) {
        let mut matcher = Matcher::<u32, u32>::default();
        let mut posted: Vec<(u64, Pattern, u32)> = Vec::new();
        let mut tickets: Vec<Option<(u64, Ticket)>> = vec![None; 400];
        let mut waiting: Vec<(u64, usize, u64, u32)> = Vec::new();
        let mut out: Vec<(u64, Unexpected<u32>)> = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            let number = u32::try_from(number).unwrap();
            match step {
                Step::Arrive { context, source, tag } => {
                    for pattern in Pattern::of(source, tag) {
                        let waits = waiting.iter().any(|(c, s, t, _)| *c == context && pattern.admits(*s, *t));
                        let wanted = posted.iter().any(|(c, p, _)| *c == context && p.admits(source, tag));
                        prop_assert_eq!(matcher.is_next(context, pattern, (source, tag)), !waits && !wanted);
                    }
                    let naive = posted.iter().position(|(c, p, _)| *c == context && p.admits(source, tag)).map(|at| posted.remove(at).2);
                    if naive.is_none() {
                        waiting.push((context, source, tag, number));
                    }
                    prop_assert_eq!(matcher.arrive(context, source, tag, || number).map(|(receive, _)| receive), naive);
                }
                Step::Receive { context, pattern } => {
                    let naive = waiting.iter().position(|(c, s, t, _)| *c == context && pattern.admits(*s, *t)).map(|at| waiting.remove(at).3);
                    prop_assert_eq!(matcher.peek(context, pattern).map(|found| found.message), naive);
                    let found = matcher.take(context, pattern).map(|found| found.message);
                    prop_assert_eq!(found, naive);
                    if naive.is_none() {
                        posted.push((context, pattern, number));
                        tickets[number as usize] = Some((context, matcher.post(context, pattern, number)));
                    }
                }
                Step::Withdraw { receive } => {
                    let naive = posted.iter().position(|(_, _, r)| *r == receive).map(|at| posted.remove(at).2);
                    let ticket = tickets[receive as usize];
                    prop_assert_eq!(ticket.and_then(|(context, ticket)| matcher.withdraw(context, ticket)), naive);
                }
                Step::TakeOut { context, pattern } => {
                    let naive = waiting.iter().position(|(c, s, t, _)| *c == context && pattern.admits(*s, *t)).map(|at| waiting.remove(at).3);
                    let found = matcher.take(context, pattern);
                    prop_assert_eq!(found.as_ref().map(|found| found.message), naive);
                    out.extend(found.map(|found| (context, found)));
                }
                Step::PutBack { which } => {
                    if which >= out.len() {
                        continue;
                    }
                    let (context, message) = out.swap_remove(which);
                    let (source, tag, content) = (message.source, message.tag, message.message);
                    let naive = posted.iter().position(|(c, p, _)| *c == context && p.admits(source, tag)).map(|at| posted.remove(at).2);
                    match matcher.put_back(context, message) {
                        PutBack::Matched(receive, message) => {
                            prop_assert_eq!((Some(receive), message.message), (naive, content));
                        }
                        PutBack::Waits(ticket) => {
                            prop_assert_eq!(naive, None);
                            prop_assert_eq!(matcher.waiting(context, ticket).map(|found| found.message), Some(content));
                            let at = waiting.partition_point(|(_, _, _, other)| *other < content);
                            waiting.insert(at, (context, source, tag, content));
                        }
                    }
                }
                Step::Lose { source } => {
                    let mut naive = Vec::new();
                    posted.retain(|(_, pattern, receive)| pattern.source != Some(source) || { naive.push(*receive); false });
                    let mut taken = matcher.take_waiting_for(source);
                    taken.sort_unstable();
                    prop_assert_eq!(taken, naive);
                    waiting.retain(|(_, from, _, message)| *from != source || message % 2 == 0);
                    matcher.discard(|unexpected| unexpected.source == source && unexpected.message % 2 == 1);
                }
                Step::EndWildcards { context } => {
                    let mut naive = Vec::new();
                    posted.retain(|(c, pattern, receive)| *c != context || pattern.source.is_some() || { naive.push(*receive); false });
                    prop_assert_eq!(matcher.contexts_with_wildcards().contains(&context), !naive.is_empty());
                    let mut taken = matcher.take_wildcards(context);
                    taken.sort_unstable();
                    prop_assert_eq!(taken, naive);
                }
            }
        }
    }
}

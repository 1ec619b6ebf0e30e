//! How the survivors of a communicator agree on who they are, although more may die while they do.
//!
//! A rotating coordinator with votes, after Chandra and Toueg, "Unreliable failure detectors for reliable distributed
//! systems" (1996), for a detector that never accuses the living: the lowest member that lives collects what everybody
//! knows and decides; whoever hears the decision tells everybody before it relies on it. A coordinator that dies is
//! followed by the next, which first hears everybody: so it learns of every decision that a living member has made.
//! Pure: losses and words in, words and a decision out. Members are numbered from 0.

/// Members that are gone, one flag each.
pub(super) type Gone = Vec<bool>;

/// What members say to each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Word {
    /// To a coordinator: these are gone, as far as the sender knows.
    Vote(Gone),
    /// These are gone; decided by this coordinator.
    Decision { ballot: usize, gone: Gone },
}

/// One member's side of an agreement.
#[derive(Debug)]
pub(super) struct Agreement {
    me: usize,
    gone: Gone,
    /// The coordinator that this member waits for. Never lower again: what it promised to the last one holds.
    ballot: Option<usize>,
    /// What each member has said last: a decision is not taken back by a vote.
    said: Vec<Option<Word>>,
    decision: Option<Gone>,
    outgoing: Vec<(usize, Word)>,
}

impl Agreement {
    pub(super) fn new(me: usize, gone: Gone) -> Self {
        let size = gone.len();
        let mut agreement =
            Agreement { me, gone, ballot: None, said: vec![None; size], decision: None, outgoing: Vec::new() };
        agreement.advance();
        agreement
    }

    /// A member is gone; nothing more comes from it.
    pub(super) fn lost(&mut self, member: usize) {
        if !std::mem::replace(&mut self.gone[member], true) {
            self.advance();
        }
    }

    pub(super) fn is_gone(&self, member: usize) -> bool {
        self.gone[member]
    }

    /// Whether nothing more comes from a member: a decision is the last that it says.
    pub(super) fn has_said_all(&self, member: usize) -> bool {
        self.gone[member] || matches!(self.said[member], Some(Word::Decision { .. }))
    }

    pub(super) fn heard(&mut self, from: usize, word: Word) {
        let (Word::Vote(gone) | Word::Decision { gone, .. }) = &word;
        if gone.len() != self.gone.len() {
            return;
        }
        match &word {
            // Nobody accuses the living.
            Word::Vote(gone) => merge(&mut self.gone, gone),
            // The coordinator that this member waits for decides once, and may have taken up an earlier decision.
            Word::Decision { ballot, gone } if Some(*ballot) >= self.ballot || Some(from) == self.ballot => {
                let (ballot, gone) = (self.ballot.map_or(*ballot, |own| own.max(*ballot)), gone.clone());
                self.decide(ballot, gone);
            }
            // Its coordinator is dead and this member has gone on: only the next coordinator may take it up.
            Word::Decision { .. } => {}
        }
        if !matches!((&self.said[from], &word), (Some(Word::Decision { .. }), Word::Vote(_))) {
            self.said[from] = Some(word);
        }
        self.advance();
    }

    /// The words to be sent, in order.
    pub(super) fn take_outgoing(&mut self) -> Vec<(usize, Word)> {
        std::mem::take(&mut self.outgoing)
    }

    /// Who is gone, once that is decided. What is outgoing must be sent before anybody relies on it.
    pub(super) fn decision(&self) -> Option<&Gone> {
        self.decision.as_ref()
    }

    fn advance(&mut self) {
        if self.decision.is_some() {
            return;
        }
        let Some(coordinator) = self.gone.iter().position(|gone| !gone) else { return };
        if self.ballot.is_none_or(|ballot| ballot < coordinator) {
            self.ballot = Some(coordinator);
            // It may have taken up a decision, told everybody and left before this member came to wait for it.
            if let Some(Word::Decision { ballot, gone }) = self.said[coordinator].clone() {
                return self.decide(coordinator.max(ballot), gone);
            }
            if coordinator != self.me {
                self.outgoing.push((coordinator, Word::Vote(self.gone.clone())));
            }
        }
        let heard_all =
            (0..self.gone.len()).all(|other| other == self.me || self.gone[other] || self.said[other].is_some());
        if coordinator != self.me || !heard_all {
            return;
        }
        let made = |word: &Option<Word>| match word {
            Some(Word::Decision { ballot, gone }) => Some((*ballot, gone.clone())),
            _ => None,
        };
        let made = self.said.iter().filter_map(made).max_by_key(|(ballot, _)| *ballot);
        let gone = made.map_or_else(|| self.gone.clone(), |(_, gone)| gone);
        self.decide(self.me, gone);
    }

    fn decide(&mut self, ballot: usize, gone: Gone) {
        if self.decision.is_some() {
            return;
        }
        let others = (0..gone.len()).filter(|other| *other != self.me && !self.gone[*other]);
        self.outgoing = others.map(|other| (other, Word::Decision { ballot, gone: gone.clone() })).collect();
        self.decision = Some(gone);
    }
}

fn merge(into: &mut Gone, from: &Gone) {
    for (known, news) in into.iter_mut().zip(from) {
        *known |= news;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// Members, the words between them, and deaths: between any two words of one member, too.
    struct Network {
        members: Vec<Agreement>,
        dead: Vec<bool>,
        /// Words on their way, by sender and receiver, in order.
        wires: Vec<Vec<VecDeque<Word>>>,
        /// Words that a member has still to put on the wire; it may die before.
        pending: Vec<VecDeque<(usize, Word)>>,
    }

    impl Network {
        fn new(size: usize, dead: Vec<bool>) -> Self {
            let members = (0..size).map(|me| Agreement::new(me, vec![false; size])).collect();
            let wires = vec![vec![VecDeque::new(); size]; size];
            let mut network = Network { members, dead, wires, pending: vec![VecDeque::new(); size] };
            (0..size).for_each(|member| network.collect(member));
            network
        }

        fn collect(&mut self, member: usize) {
            let words = self.members[member].take_outgoing();
            self.pending[member].extend(words);
        }

        /// Everything that may happen next: a word leaves or arrives, or a death is noticed.
        fn steps(&self) -> Vec<(usize, usize, u8)> {
            let size = self.members.len();
            let living: Vec<usize> = (0..size).filter(|member| !self.dead[*member]).collect();
            let mut steps = Vec::new();
            for &at in &living {
                if !self.pending[at].is_empty() {
                    steps.push((at, at, 0));
                }
                // Whoever has decided and sent everything has left: it listens no more.
                if self.members[at].decision().is_some() {
                    continue;
                }
                for from in 0..size {
                    if !self.wires[from][at].is_empty() && !self.members[at].is_gone(from) {
                        steps.push((from, at, 1));
                    }
                    if self.dead[from] && !self.members[at].is_gone(from) {
                        steps.push((from, at, 2));
                    }
                }
            }
            steps
        }

        fn step(&mut self, (from, to, what): (usize, usize, u8)) {
            match what {
                0 => {
                    let (receiver, word) = self.pending[from].pop_front().unwrap();
                    self.wires[from][receiver].push_back(word);
                }
                1 => {
                    let word = self.wires[from][to].pop_front().unwrap();
                    self.members[to].heard(from, word);
                }
                _ => self.members[to].lost(from),
            }
            self.collect(to);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

        #[test]
        fn all_survivors_decide_the_same_and_accuse_nobody_who_lives(
            size in 1..7_usize,
            choices in proptest::collection::vec(any::<u32>(), 600),
            deaths in proptest::collection::vec((0..7_usize, 0..80_usize), 0..6),
            dead_before in proptest::collection::vec(any::<bool>(), 7),
        ) {
            let mut dead = dead_before[..size].to_vec();
            dead[size - 1] = false;
            let before = dead.clone();
            let mut network = Network::new(size, dead);
            for (number, choice) in choices.into_iter().chain(0..).enumerate() {
                for (member, _) in deaths.iter().filter(|(member, at)| *member < size && *at == number) {
                    // Somebody survives.
                    if network.dead.iter().filter(|dead| !**dead).count() > 1 {
                        network.dead[*member] = true;
                    }
                }
                let steps = network.steps();
                if steps.is_empty() {
                    break;
                }
                prop_assert!(number < 5000, "it does not end");
                network.step(steps[choice as usize % steps.len()]);
            }
            let living: Vec<usize> = (0..size).filter(|member| !network.dead[*member]).collect();
            let decided = network.members[living[0]].decision().cloned();
            prop_assert!(decided.is_some());
            for &member in &living {
                prop_assert_eq!(network.members[member].decision(), decided.as_ref(), "member {}", member);
            }
            let gone = decided.unwrap();
            for member in 0..size {
                prop_assert!(!gone[member] || network.dead[member], "{} lives", member);
                // A member that was dead before cannot have voted.
                prop_assert!(gone[member] || !before[member], "{} was dead", member);
            }
        }
    }

    #[test]
    fn a_member_alone_needs_nobody() {
        let agreement = Agreement::new(1, vec![true, false, true]);
        assert_eq!(agreement.decision(), Some(&vec![true, false, true]));
    }
}

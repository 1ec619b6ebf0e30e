//! What two hops in the memory of hosts come to on the model: their signals, copies and combinations as a schedule.
//!
//! No rank runs it: a signal is a message of one element here, and a leader combines its own scratch as often as it would
//! combine the memory of others. What waits for what is as in `shared/hops.rs`, with places that are there twice: a rank
//! brings chunk k + 2 when it has taken chunk k, a leader exchanges chunk k + 1 when it has published chunk k.

use super::Fabric;
use super::embed::embed;
use crate::algorithms::{Algorithm, Collective, IN_TWO_HOPS, Shape};
use crate::compose::Builder;
use crate::schedule::{Schedule, ScheduleError, Side, Slice};
use crate::shared::{Exchanged, Part, chunk_bytes};
use crate::table::Table;

/// What simulating an algorithm takes one rank through: its schedule, or what stands for it where it goes through memory.
///
/// `table`: what decides how leaders exchange; `fabric`: what it is simulated on. Where one machine emulates all hosts, what a
/// leader combines out of another rank's memory comes into its cache first, which costs as much as a copy.
///
/// # Errors
/// As [`Algorithm::schedule`].
pub fn schedule(
    collective: Collective,
    algorithm: &Algorithm,
    shape: &Shape<'_>,
    element_bytes: usize,
    table: &Table,
    fabric: &Fabric,
) -> Result<Schedule, ScheduleError> {
    if algorithm.name != IN_TWO_HOPS {
        return algorithm.schedule(shape);
    }
    let most = chunk_bytes(shape.groups) / element_bytes.max(1);
    let rank = Rank {
        collective,
        shape,
        members: shape.groups.members(shape.groups.of(shape.rank)),
        part: Part::new(collective, shape, most),
    };
    let exchanges = match rank.part.peers.is_some() {
        true => {
            let exchanged = Exchanged { collective, element_bytes, commutative: true };
            let of = |index| exchanged.schedule(shape, rank.part.share(rank.chunk_at(index)), table);
            Some([of(0)?, of(rank.chunks() - 1)?])
        }
        false => None,
    };
    rank.build(exchanges.as_ref(), fabric.machine.is_some())
}

/// A rank's part.
struct Rank<'a> {
    collective: Collective,
    shape: &'a Shape<'a>,
    /// The ranks of its group.
    members: &'a [usize],
    part: Part,
}

impl<'a> Rank<'a> {
    /// Whether it is the one that gives or gets the data.
    fn is_root(&self) -> bool {
        self.collective.is_rooted() && self.shape.rank == self.shape.root
    }

    /// Whether the result goes to the root alone.
    fn collects(&self) -> bool {
        self.collective == Collective::Reduce
    }

    fn chunks(&self) -> usize {
        self.part.division.chunks(self.shape.elements)
    }

    /// Elements of a chunk: of the last one fewer.
    fn chunk_at(&self, index: usize) -> usize {
        self.part.division.range(index, self.shape.elements).len()
    }

    /// `exchanges`: of a leader, for a chunk and for the last one; `fetches`: see [`schedule`].
    fn build(&self, exchanges: Option<&[Schedule; 2]>, fetches: bool) -> Result<Schedule, ScheduleError> {
        let Shape { rank, size, elements, .. } = *self.shape;
        let [input, output] = match (self.collects(), self.is_root()) {
            (true, true) => [elements, elements],
            (true, false) => [elements, 0],
            (false, _) => [0, elements],
        };
        let mut b = Builder::new(rank, size, input, output);
        let mut twice = |length: usize| [b.scratch(length.max(1)), b.scratch(length.max(1))];
        let chunk = self.chunk_at(0);
        // What it gives and, once that is out, what all get; what others give; a leader's share and its result; what the
        // exchange needs.
        let (given, others, values, results) = (twice(chunk), twice(chunk), twice(chunk), twice(chunk));
        let fetched = twice(if fetches { chunk } else { 0 });
        let rooms =
            twice(exchanges.iter().copied().flatten().map(|one| one.lengths().scratch).max().unwrap_or_default());
        let Part { division, position, peers } = &self.part;
        let (leaders, peers) = (division.leaders.iter().copied(), peers.as_deref().unwrap_or_default());
        let (first, rest) = (|slice: Slice| slice.part(0, 1), self.chunks() - 1);
        let mut published = Vec::new();
        for index in 0..=rest {
            let (turn, length) = (index % 2, self.chunk_at(index));
            let share = self.part.share(length);
            let own = if self.collects() { b.input() } else { b.output() }.part(index * division.chunk, length);
            let theirs = own.part(0, length - share);
            if self.collective.reduces() {
                b.copy(theirs, given[turn].part(0, theirs.length));
            }
            for leader in leaders.clone().filter(|leader| leader != position) {
                b.send(self.members[leader], first(given[turn]));
            }
            if let Some(exchanges) = exchanges {
                self.members().for_each(|member| _ = b.receive(member, first(others[turn])));
                let value = values[turn].part(0, share);
                let combined = if self.collective.reduces() { self.members.len() - 1 } else { 0 };
                for _ in 0..combined {
                    if fetches {
                        b.copy(others[turn].part(0, share), fetched[turn].part(0, share));
                    }
                    b.reduce(others[turn].part(0, share), value, Side::Right);
                }
                // Also where nothing is combined all have come before.
                b.copy(first(others[turn]), first(results[turn]));
                if self.collects() {
                    self.members().for_each(|member| _ = b.send(member, first(values[turn])));
                }
                let places = [values[turn], if self.collects() { results[turn] } else { values[turn] }, rooms[turn]];
                embed(&mut b, &exchanges[usize::from(index == rest)], peers, places, &published);
                if !self.collects() {
                    let copied = b.copy(value, results[turn].part(0, share));
                    published = vec![copied];
                    published.extend(self.members().map(|member| b.send(member, first(results[turn]))));
                    b.copy(value, own.part(0, share));
                } else if self.is_root() {
                    let place = b.output().part(index * division.chunk, length);
                    published = vec![b.copy(results[turn].part(0, length), place)];
                }
            }
            for leader in leaders.clone().filter(|leader| leader != position) {
                b.receive(self.members[leader], first(given[turn]));
            }
            if !self.collects() && !self.is_root() {
                b.copy(given[turn].part(0, theirs.length), theirs);
            }
        }
        b.finish()
    }

    /// The other ranks of its group.
    fn members(&self) -> impl Iterator<Item = usize> + use<'a> {
        let (members, position) = (self.members, self.part.position);
        (0..members.len()).filter(move |member| *member != position).map(move |member| members[member])
    }
}

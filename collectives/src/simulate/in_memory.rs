//! What two hops in the memory of hosts come to on the model: their signals, copies and combinations as a schedule.
//!
//! No rank runs it: a signal is a message of one element here, and a leader combines its own scratch as often as it would
//! combine the memory of others. What waits for what is as in `shared/hops.rs`, with places that are there twice: a rank
//! brings chunk k + 2 when it has taken chunk k, a leader exchanges chunk k + 1 when it has published chunk k.

use crate::algorithms::{Algorithm, Collective, IN_TWO_HOPS, Shape};
use crate::compose::{Blocks, Builder, StepId};
use crate::groups::Groups;
use crate::schedule::{Action, Buffer, Schedule, ScheduleError, Side, Slice};
use crate::select::{AUTO, Request, select};
use crate::shared::chunk_bytes;
use crate::table::Table;

/// What simulating an algorithm takes one rank through: its schedule, or what stands for it where it goes through memory.
///
/// # Errors
/// As [`Algorithm::schedule`].
pub fn schedule(
    collective: Collective,
    algorithm: &Algorithm,
    shape: &Shape<'_>,
    element_bytes: usize,
    table: &Table,
) -> Result<Schedule, ScheduleError> {
    if algorithm.name != IN_TWO_HOPS {
        return algorithm.schedule(shape);
    }
    let (groups, rooted) = (shape.groups, collective.is_rooted());
    let members = groups.members(groups.of(shape.rank));
    let position = |rank: usize| members.iter().position(|member| *member == rank);
    let own = position(shape.rank).unwrap_or_else(|| unreachable!("a rank is a member of its group"));
    let leaders = match collective {
        Collective::AllReduce => 0..shape.parameters.leaders.clamp(1, groups.widths().0.max(1)),
        _ => position(shape.root).filter(|_| rooted).map_or(0..1, |root| root..root + 1),
    };
    let most = chunk_bytes(groups) / element_bytes.max(1);
    let chunk = shape.parameters.chunk.min(most).max(1);
    // The longest share, which is what exchanges are chosen for, but for the last chunk.
    let share = |chunk: usize| {
        let shares = Blocks::new(Slice::output(0, chunk), leaders.len());
        leaders.contains(&own).then(|| shares.block(own - leaders.start).length).unwrap_or(0)
    };
    let peers: Vec<usize> = match leaders.contains(&own) {
        true => (0..groups.count())
            .map(|group| match rooted && groups.of(shape.root) == group {
                true => shape.root,
                false => groups.members(group)[own - leaders.start],
            })
            .collect(),
        false => Vec::new(),
    };
    let apart = Groups::apart(groups.count());
    let table = Table { rules: Vec::new(), ..table.clone() };
    let exchange = |elements: usize| {
        let request = Request { collective, groups: &apart, elements, element_bytes, commutative: true };
        let choice =
            select(&request, AUTO, &table).unwrap_or_else(|error| unreachable!("one is always legal: {error}"));
        choice.algorithm.schedule(&Shape {
            rank: groups.of(shape.rank),
            size: peers.len(),
            root: if rooted { groups.of(shape.root) } else { 0 },
            elements,
            groups: &apart,
            parameters: choice.parameters,
        })
    };
    let number = shape.elements.div_ceil(chunk).max(1);
    let last = shape.elements - (number - 1) * chunk;
    let exchanges = match leaders.contains(&own) {
        true => Some([exchange(share(chunk.min(shape.elements)))?, exchange(share(last))?]),
        false => None,
    };
    let has_input = collective == Collective::Reduce;
    let is_root = rooted && shape.rank == shape.root;
    let output = if has_input && !is_root { 0 } else { shape.elements };
    let mut b = Builder::new(shape.rank, shape.size, if has_input { shape.elements } else { 0 }, output);
    let mut twice = |length: usize| [b.scratch(length.max(1)), b.scratch(length.max(1))];
    let of_chunk = chunk.min(shape.elements);
    // What this rank gives and, once it is out, what all get; what others give; this leader's share and its result.
    let (given, others, values, results) = (twice(of_chunk), twice(of_chunk), twice(of_chunk), twice(of_chunk));
    let rooms = exchanges.as_ref().map(|of| twice(of.iter().map(|one| one.lengths().scratch).max().unwrap_or(0)));
    let mut published: Vec<StepId> = Vec::new();
    for index in 0..number {
        let (turn, length) = (index % 2, if index + 1 == number { last } else { chunk });
        let all = if has_input { b.input() } else { b.output() }.part(index * chunk, length);
        let word = |slice: Slice| slice.part(0, 1);
        // Bring.
        if collective.reduces() {
            b.copy(all.part(0, length - share(length)), given[turn].part(0, length - share(length)));
        }
        for leader in leaders.clone().filter(|leader| *leader != own) {
            b.send(members[leader], word(given[turn]));
        }
        // Combine, exchange, publish.
        if let (Some([usual, at_end]), Some(rooms)) = (&exchanges, &rooms) {
            for member in (0..members.len()).filter(|member| *member != own) {
                b.receive(members[member], word(others[turn]));
            }
            let value = values[turn].part(0, share(length));
            for _ in 1..if collective.reduces() { members.len() } else { 1 } {
                b.reduce(others[turn].part(0, value.length), value, Side::Right);
            }
            // Also where nothing is combined all have come before.
            b.copy(word(others[turn]), word(results[turn]));
            let out = |b: &mut Builder, word: Slice| -> Vec<StepId> {
                let others = (0..members.len()).filter(|member| *member != own);
                others.map(|member| b.send(members[member], word)).collect()
            };
            if has_input {
                out(&mut b, word(values[turn]));
            }
            let schedule = if index + 1 == number { at_end } else { usual };
            let place = |slice: Slice| match slice.buffer {
                Buffer::Input => values[turn].part(slice.offset, slice.length),
                Buffer::Output if has_input => results[turn].part(slice.offset, slice.length),
                Buffer::Output => values[turn].part(slice.offset, slice.length),
                Buffer::Scratch => rooms[turn].part(slice.offset, slice.length),
            };
            for step in schedule.steps() {
                match step.action {
                    Action::Send { peer, from } => b.send_after(peers[peer], place(from), &published),
                    Action::Receive { peer, into } => b.receive_after(peers[peer], place(into), &published),
                    Action::Reduce { operand, into, side } => b.reduce(place(operand), place(into), side),
                    Action::Copy { from, into } => b.copy(place(from), place(into)),
                };
            }
            match has_input {
                true if is_root => {
                    published = vec![b.copy(results[turn].part(0, length), b.output().part(index * chunk, length))]
                }
                true => {}
                false => {
                    published = vec![b.copy(value, results[turn].part(0, value.length))];
                    published.extend(out(&mut b, word(results[turn])));
                    b.copy(value, b.output().part(index * chunk, value.length));
                }
            }
        }
        // Take.
        for leader in leaders.clone().filter(|leader| *leader != own) {
            b.receive(members[leader], word(given[turn]));
        }
        if !has_input && !is_root {
            b.copy(given[turn].part(0, length - share(length)), all.part(0, length - share(length)));
        }
    }
    b.finish()
}

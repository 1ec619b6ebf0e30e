//! Which algorithm, grouping, leaders and chunks are best on a fabric: all that may be, simulated.

use super::{Fabric, Outcome, in_memory, simulate};
use crate::algorithms::{Collective, Parameters, Restriction, Shape};
use crate::groups::{Groups, Link};
use crate::schedule::{Schedule, ScheduleError};
use crate::table::Table;

/// What is asked. The operator commutes, where there is one; the root is rank 0.
#[derive(Clone, Copy, Debug)]
pub struct Question {
    /// The collective.
    pub collective: Collective,
    /// The number of ranks.
    pub ranks: usize,
    /// Ranks of a host.
    pub width: usize,
    /// Bytes of a rank: see [`Collective`] for whether of one block or of all.
    pub bytes: usize,
}

/// One way to do it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Way {
    /// The algorithm.
    pub algorithm: &'static str,
    /// Ranks of a group.
    pub group: usize,
    /// Groups of a larger group; 1: groups are in no larger ones.
    pub above: usize,
    /// Leaders of a group, as many as there are: no more than the smallest one has ranks, and one where an algorithm has no
    /// several.
    pub leaders: usize,
    /// Bytes of a chunk at most.
    pub chunk: usize,
    /// Bytes of a segment at most.
    pub segment: usize,
}

/// What may be varied; `None`: what seems sensible.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fixed<'a> {
    /// The name of the algorithm.
    pub algorithm: Option<&'a str>,
    /// Ranks of a group, instead of those of a host, of half a host, of two and more.
    pub group: Option<usize>,
    /// Groups of a larger group, instead of none, and of those of a rack where the fabric has racks.
    pub above: Option<usize>,
    /// Leaders of a group.
    pub leaders: Option<usize>,
    /// Bytes of a chunk.
    pub chunk: Option<usize>,
    /// Bytes of a segment.
    pub segment: Option<usize>,
}

/// All ways that were simulated, the fastest first, and those that were left out.
#[derive(Clone, Debug, Default)]
pub struct Sweep {
    /// With their outcomes.
    pub ways: Vec<(Way, Outcome)>,
    /// Those with more steps than there was room for.
    pub left_out: Vec<Way>,
    /// The algorithms that may not be used in any setting that was tried, and what forbids it in the first one.
    pub forbidden: Vec<(&'static str, Restriction)>,
}

/// Elements have four bytes.
const ELEMENT: usize = 4;

/// Steps of all ranks that one simulation may have: under 1 GB of memory.
const MOST_STEPS: usize = 3_000_000;

/// Steps that a sweep may have: well under a minute of one core.
const BUDGET: usize = 6_000_000;

/// Simulates every legal way to do what is asked, as far as `fixed` leaves a choice.
///
/// Ways whose schedules are too large are left out, and so are those that come when `BUDGET` steps have been simulated:
/// first the chunks and leaders of the cost formulas are tried for all algorithms, then others.
///
/// # Errors
/// [`ScheduleError`] when there are more elements than can be counted.
///
/// # Panics
/// When a schedule of this crate never ends, which the checker excludes.
pub fn sweep(question: &Question, fixed: &Fixed<'_>, fabric: &Fabric) -> Result<Sweep, ScheduleError> {
    let Question { collective, ranks, width, bytes } = *question;
    let hosts = Groups::every(ranks, width);
    let network = fabric.network(hosts.count());
    let elements = if collective == Collective::Barrier { 0 } else { bytes / ELEMENT };
    let table = Table { network, ..Table::default() };
    let mut found = Sweep::default();
    let mut budget = BUDGET;
    let mut seen: Vec<(&str, Vec<Schedule>)> = Vec::new();
    let mut flat: Vec<(&str, usize)> = Vec::new();
    let (mut allowed, mut forbidden): (Vec<&str>, Vec<(&'static str, Restriction)>) = (Vec::new(), Vec::new());
    for Setting { group, above, leaders, chunk } in settings(question, fixed, fabric) {
        let groups = divided(question, group, above);
        if above > 1 && groups.above().is_none() {
            continue;
        }
        let groups = if width % group == 0 { groups.with_memory() } else { groups };
        let algorithms = collective.algorithms().iter();
        for algorithm in algorithms.filter(|algorithm| fixed.algorithm.is_none_or(|name| name == algorithm.name)) {
            if let Some(restriction) = algorithm.forbidden(&groups, true) {
                forbidden.push((algorithm.name, restriction));
                continue;
            }
            allowed.push(algorithm.name);
            // Of levels above only the algorithms in two hops make use.
            let is_flat = !algorithm.restrictions.contains(&Restriction::TwoLevels);
            if is_flat && above > 1 && fixed.above.is_none() {
                continue;
            }
            let parameters = algorithm.parameters(&network, &groups, elements, ELEMENT);
            let mut parameters = Parameters { leaders, ..parameters }.led(collective, algorithm, &groups);
            let leaders = parameters.leaders;
            if let Some(chunk) = chunk {
                parameters.chunk = (chunk / ELEMENT).max(1);
                parameters.segment = parameters.segment.min(parameters.chunk);
            }
            if let Some(segment) = fixed.segment {
                parameters.segment = (segment / ELEMENT).max(1);
            }
            // What knows no groups is the same whatever they are; to build it only to see that takes long where it is large.
            let one = (algorithm.name, parameters.segment);
            if is_flat && flat.contains(&one) {
                continue;
            }
            flat.extend(is_flat.then_some(one));
            let shape = Shape { rank: 0, size: ranks, root: 0, elements, groups: &groups, parameters };
            let bytes = |most: usize| most.min(elements.max(1)) * ELEMENT;
            let (chunk, segment) = (bytes(parameters.chunk), bytes(parameters.segment));
            let way = Way { algorithm: algorithm.name, group, above, leaders, chunk, segment };
            // Chunks that were asked for may be so small that not even one rank's schedule can be made.
            let least = fixed.chunk.into_iter().chain(fixed.segment).min().unwrap_or(usize::MAX) / ELEMENT;
            if (elements / least.max(1)).saturating_mul(ranks) > MOST_STEPS {
                found.left_out.push(way);
                continue;
            }
            // Settings that an algorithm does not look at make the same schedules again: those of the first and of the
            // last rank tell.
            let schedule =
                |rank| in_memory::schedule(collective, algorithm, &Shape { rank, ..shape }, ELEMENT, &table, fabric);
            let ends = [0, ranks - 1].map(schedule);
            let ends: Vec<Schedule> = ends.into_iter().collect::<Result<_, _>>()?;
            if seen.iter().any(|(name, other)| *name == algorithm.name && *other == ends) {
                continue;
            }
            // Where all ranks do as much, no more than one need be built to see that all are too many.
            let least = ends.iter().map(|schedule| schedule.steps().len()).min().unwrap_or(0);
            seen.push((algorithm.name, ends));
            let most = budget.min(MOST_STEPS);
            if least.saturating_mul(ranks) > most {
                found.left_out.push(way);
                continue;
            }
            let Some((schedules, steps)) = build(schedule, ranks, most)? else {
                found.left_out.push(way);
                continue;
            };
            budget -= steps;
            let outcome = simulate(&schedules, ELEMENT, fabric, &hosts);
            let outcome = outcome.unwrap_or_else(|| unreachable!("{way:?} never ends, which the checker excludes"));
            found.ways.push((way, outcome));
        }
    }
    for (name, restriction) in forbidden {
        if !allowed.contains(&name) && found.forbidden.iter().all(|(other, _)| *other != name) {
            found.forbidden.push((name, restriction));
        }
    }
    found.ways.sort_by(|(_, a), (_, b)| a.seconds.total_cmp(&b.seconds));
    Ok(found)
}

/// The groups of a way.
fn divided(question: &Question, group: usize, above: usize) -> Groups {
    let Question { ranks, width, .. } = *question;
    let groups = Groups::every(ranks, group);
    if above <= 1 {
        return groups;
    }
    let larger = group.saturating_mul(above);
    let link = if larger <= width { Link::Inside } else { Link::Between };
    let larger = groups.within((0..ranks).map(|rank| rank / larger), link);
    larger.unwrap_or_else(|split| unreachable!("whole groups are together: {split}"))
}

/// What is tried; chunks of `None` are the cost formula's.
#[derive(Clone, Copy, Debug)]
struct Setting {
    group: usize,
    above: usize,
    leaders: usize,
    chunk: Option<usize>,
}

/// What to try, the likeliest first.
fn settings(question: &Question, fixed: &Fixed<'_>, fabric: &Fabric) -> Vec<Setting> {
    let Question { ranks, width, bytes, .. } = *question;
    let one_or = |fixed: Option<usize>, choices: &[usize]| fixed.map_or_else(|| choices.to_vec(), |one| vec![one]);
    let mut groups = one_or(fixed.group, &[width, 2 * width, 4 * width, width / 2]);
    groups.retain(|group| (1..=ranks).contains(group));
    // The hosts of a rack, where that is a whole number of groups.
    let rack = |group: usize| {
        let whole =
            fabric.racks.map(|racks| racks.hosts.saturating_mul(width)).filter(|rack| rack.is_multiple_of(group));
        whole.map(|rack| rack / group).filter(|above| *above > 1)
    };
    let aboves = |group: usize| match fixed.above {
        Some(above) => vec![above],
        None => std::iter::once(1).chain(rack(group)).collect(),
    };
    let mut leaders = one_or(fixed.leaders, &[1, 2, 4, 8]);
    leaders.retain(|leaders| fixed.leaders.is_some() || *leaders <= width);
    let mut chunks = match fixed.chunk {
        Some(chunk) => vec![Some(chunk)],
        None => vec![None, Some(64 << 10), Some(256 << 10), Some(1 << 20), Some(bytes.max(ELEMENT))],
    };
    chunks.retain(|chunk| fixed.chunk.is_some() || chunk.is_none_or(|chunk| chunk <= bytes.max(ELEMENT)));
    // What is furthest from the first of each comes last.
    let mut all = Vec::new();
    for (far_group, &group) in groups.iter().enumerate() {
        for above in aboves(group) {
            for (far_leaders, &leaders) in leaders.iter().enumerate() {
                let chunks = chunks.iter().enumerate();
                all.extend(chunks.map(|(far_chunk, &chunk)| {
                    (far_group + far_leaders + far_chunk, Setting { group, above, leaders, chunk })
                }));
            }
        }
    }
    all.sort_by_key(|(far, _)| *far);
    all.into_iter().map(|(_, setting)| setting).collect()
}

/// The schedules of all ranks and the number of their steps; `None` when these are more than `most`.
fn build(
    schedule: impl Fn(usize) -> Result<Schedule, ScheduleError>,
    ranks: usize,
    most: usize,
) -> Result<Option<(Vec<Schedule>, usize)>, ScheduleError> {
    let (mut schedules, mut steps) = (Vec::with_capacity(ranks), 0);
    for rank in 0..ranks {
        let schedule = schedule(rank)?;
        steps += schedule.steps().len();
        if steps > most {
            return Ok(None);
        }
        schedules.push(schedule);
    }
    Ok(Some((schedules, steps)))
}

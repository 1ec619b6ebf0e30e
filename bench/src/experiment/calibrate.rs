//! The simulator's constants from what was measured: those with which the simulator, given what the ranks did to measure
//! them, takes as long as they did.
//!
//! What a benchmark of many ranks takes is not what a message costs: it contains turns, sleeps and whatever else its ranks made
//! each other do, in other numbers than the next benchmark. So nothing is divided by hand; the same schedules go through the
//! simulator, and each constant is moved until the one benchmark that depends most on it comes out right. No collective
//! of the experiment is among them.

use super::constants::{Constants, Costs, Measured, Pattern, SMALL, Spans};
use super::record::Record;
use spmd_collectives::algorithms::{Collective, Parameters, Shape};
use spmd_collectives::groups::Groups;
use spmd_collectives::schedule::{Action, Schedule};
use spmd_collectives::simulate::{Fabric, among, simulate_each};

/// How often constants are moved.
const STEPS: usize = 24;
/// By how much of the difference.
const GAIN: f64 = 0.6;

/// Puts the constants into a record that follow from the medians of all that was measured for them: none where the simulator does
/// not finish.
pub fn record(record: &mut Record) -> Option<()> {
    let measured = Measured::median(&record.measured).filter(|_| record.hosts > 1 && record.ranks_a_host > 1)?;
    let queue = record.queue.unwrap_or(f64::INFINITY);
    record.constants = Some(constants(&measured, record.hosts, record.ranks_a_host, queue)?);
    Some(())
}

/// The constants of so many hosts with so many ranks each, whose switch has queues of so many bytes.
///
/// `None`: the simulator does not finish what the ranks did.
#[must_use]
pub fn constants(measured: &Measured, hosts: usize, width: usize, queue: f64) -> Option<Constants> {
    let start = |at_once: f64, large: f64, bytes: usize| {
        let byte = ((large - at_once) / (bytes - SMALL) as f64).max(0.0);
        [(at_once - SMALL as f64 * byte).max(0.0), byte]
    };
    let inside = start(measured.inside, measured.inside_large, Pattern::INSIDE_LARGE.bytes);
    let costs =
        |spans: &Spans| Costs { turn: 0.0, inside, between: start(spans.at_once, spans.large, Pattern::LARGE.bytes) };
    let Measured { processors, rate, crowded, reduced, .. } = *measured;
    let mut found = Constants {
        processors,
        rate,
        crowded,
        latency: (measured.alone - measured.few.at_once).max(0.0),
        reduced,
        all: costs(&measured.all),
        one_a_host: costs(&measured.few),
    };
    let benches = |patterns: &[Pattern], width: usize| -> Option<Vec<Bench>> {
        patterns.iter().map(|pattern| Bench::new(*pattern, hosts, width)).collect()
    };
    let [at_once, ring, large] = [Pattern::AT_ONCE, Pattern::RING, Pattern::LARGE];
    let all = benches(&[Pattern::INSIDE, Pattern::INSIDE_LARGE, at_once, ring, large], width)?;
    let few = benches(&[at_once, ring, large], 1)?;
    // How much more than another one a benchmark should take, and how much of that is in a constant once.
    let moved = |constant: &mut f64, by: f64, of: f64| *constant = (*constant + GAIN * by / of).max(0.0);
    let bytes = |large: Pattern| (large.bytes - SMALL) as f64;
    for _ in 0..STEPS {
        let missing = |benches: &[Bench], fabric: &Fabric, spent: &[f64]| -> Option<Vec<f64>> {
            benches.iter().zip(spent).map(|(bench, spent)| Some(spent - bench.simulated(fabric)?)).collect()
        };
        let Measured { inside, inside_large, .. } = *measured;
        let Spans { at_once, ring, large } = measured.all;
        let spent = [inside, inside_large, at_once, ring, large];
        let off = missing(&all, &found.fabric(queue, width), &spent)?;
        let &[inside, inside_large, at_once, ring, large] = off.as_slice() else { return None };
        let costs = &mut found.all;
        moved(&mut costs.inside[0], inside, 1.0);
        moved(&mut costs.inside[1], inside_large - inside, bytes(Pattern::INSIDE_LARGE));
        moved(&mut costs.between[0], at_once, 1.0);
        moved(&mut costs.between[1], large - at_once, bytes(Pattern::LARGE));
        // What a rank waits for costs a turn and more: giving way, sleeping, being woken.
        moved(&mut costs.turn, ring - inside - (at_once - inside) / width as f64, 1.0);
        let Spans { at_once, ring, large } = measured.few;
        let off = missing(&few, &found.fabric(queue, 1), &[at_once, ring, large])?;
        let &[at_once, ring, large] = off.as_slice() else { return None };
        let inside = found.all.inside;
        let costs = &mut found.one_a_host;
        costs.inside = inside;
        moved(&mut costs.between[0], at_once, 1.0);
        moved(&mut costs.between[1], large - at_once, bytes(Pattern::LARGE));
        moved(&mut costs.turn, ring - at_once, 1.0);
    }
    Some(found)
}

/// What ranks did to measure, as schedules.
struct Bench {
    hosts: Groups,
    schedules: Vec<Schedule>,
    messages: usize,
    rounds: usize,
}

impl Bench {
    fn new(pattern: Pattern, hosts: usize, width: usize) -> Option<Bench> {
        let size = hosts * width;
        let host = |rank: usize| rank / width;
        let collective = if pattern.at_once { Collective::AllToAll } else { Collective::AllGather };
        let name = if pattern.at_once { "linear" } else { "ring" };
        let algorithm = collective.algorithms().iter().find(|algorithm| algorithm.name == name)?;
        let parameters = Parameters { segment: usize::MAX, chunk: usize::MAX, leaders: 1, fan_in: 2 };
        let of = |rank: usize| -> Option<Schedule> {
            let peers: Vec<usize> = (0..size)
                .filter(|&peer| pattern.joins(host(rank) == host(peer), rank % width == peer % width))
                .collect();
            let groups = Groups::together(peers.len());
            let own = peers.iter().position(|peer| *peer == rank)?;
            let shape =
                Shape { rank: own, size: peers.len(), root: 0, elements: pattern.bytes, groups: &groups, parameters };
            among(&algorithm.schedule(&shape).ok()?, rank, size, &peers).ok()
        };
        let schedules: Vec<Schedule> = (0..size).map(of).collect::<Option<_>>()?;
        let sends = |schedule: &Schedule| {
            schedule.steps().iter().filter(|step| matches!(step.action, Action::Send { .. })).count()
        };
        let messages = schedules.iter().map(sends).sum::<usize>().max(1);
        // A few thousand messages say what more of them would.
        let rounds = (6000 / messages).clamp(2, pattern.rounds);
        Some(Bench { hosts: Groups::every(size, width), schedules, messages, rounds })
    }

    /// Processor time of a message.
    fn simulated(&self, fabric: &Fabric) -> Option<f64> {
        let phases = vec![&self.schedules[..]; self.rounds];
        let outcome = simulate_each(&phases, 1, fabric, &self.hosts)?;
        Some(outcome.processors / (self.messages * self.rounds) as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the ranks would have measured on a network with these constants.
    fn measured_with(truth: &Constants, hosts: usize, width: usize) -> Measured {
        let time = |pattern: Pattern, width: usize| {
            let bench = Bench::new(pattern, hosts, width).expect("its schedules");
            bench.simulated(&truth.fabric(f64::INFINITY, width)).expect("it ends")
        };
        let spans = |width: usize| Spans {
            at_once: time(Pattern::AT_ONCE, width),
            ring: time(Pattern::RING, width),
            large: time(Pattern::LARGE, width),
        };
        let few = spans(1);
        Measured {
            processors: truth.processors,
            rate: truth.rate,
            crowded: truth.crowded,
            alone: truth.latency + few.at_once,
            reduced: truth.reduced,
            inside: time(Pattern::INSIDE, width),
            inside_large: time(Pattern::INSIDE_LARGE, width),
            all: spans(width),
            few,
        }
    }

    #[test]
    fn what_the_benchmarks_took_gives_the_constants_again_that_they_took_it_with() {
        let costs = Costs { turn: 6e-6, inside: [4e-6, 4e-10], between: [25e-6, 10e-9] };
        let truth = Constants {
            processors: 2,
            rate: 12e6,
            crowded: 11.5e6,
            latency: 1e-4,
            reduced: 6e-11,
            all: costs,
            one_a_host: Costs { between: [22e-6, 9e-9], ..costs },
        };
        let (hosts, width) = (4, 3);
        let measured = measured_with(&truth, hosts, width);
        let found = constants(&measured, hosts, width, f64::INFINITY).expect("it ends");
        // The same benchmarks, which is what the constants are for.
        let again = measured_with(&found, hosts, width);
        let near = |found: f64, measured: f64| (found / measured - 1.0).abs() < 0.06;
        for (found, measured) in [
            (again.inside, measured.inside),
            (again.inside_large, measured.inside_large),
            (again.all.at_once, measured.all.at_once),
            (again.all.ring, measured.all.ring),
            (again.all.large, measured.all.large),
            (again.few.at_once, measured.few.at_once),
            (again.few.large, measured.few.large),
        ] {
            assert!(near(found, measured), "{found} {measured}\n{found:?}\n{again:?}\n{measured:?}");
        }
        // What a message and its bytes cost is what they were made with.
        let near = |found: f64, truth: f64| (found / truth - 1.0).abs() < 0.2;
        let pairs =
            found.all.inside.into_iter().chain(found.all.between).zip(costs.inside.into_iter().chain(costs.between));
        pairs.for_each(|(found, truth)| assert!(near(found, truth), "{found} {truth}"));
        assert_eq!((found.rate, found.crowded, found.reduced), (truth.rate, truth.crowded, truth.reduced));
    }

    #[test]
    fn what_no_constants_explain_leaves_none_below_zero() {
        let nothing = Spans { at_once: 1e-9, ring: 1e-9, large: 1e-9 };
        let measured =
            Measured { processors: 2, rate: 1e7, crowded: 1e7, all: nothing, few: nothing, ..Measured::default() };
        let found = constants(&measured, 3, 2, f64::INFINITY).expect("it ends");
        for Costs { turn, inside, between } in [found.all, found.one_a_host] {
            assert!(std::iter::once(turn).chain(inside).chain(between).all(|cost| cost >= 0.0), "{found:?}");
        }
    }
}

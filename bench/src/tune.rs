//! `rsbench tune collectives`: measures what messages and memory cost on the ranks of a job, lets the cost formulas name
//! the best ways to do each collective, confirms the best of them by measurement, and gives the tuning table.
//!
//! Runs as ranks. Costs here are time that passes: a message between two ranks while the others wait.

use crate::port::Failure;
use spmd::Communicator;
use spmd_collectives::groups::Link;
use spmd_collectives::operators::Op;
use spmd_collectives::prelude::*;
use spmd_collectives::price::{Model, Network};
use spmd_collectives::schedule::Side;
use spmd_collectives::table::Table;
use spmd_collectives::tune::{TRIED, Trial, candidates, groups, groups_and_memory};
use std::fmt::Write as _;
use std::time::Instant;

/// Bytes of messages that the constants are fitted to.
const SIZES: [usize; 3] = [64, 64 << 10, 1 << 20];
/// Small messages that follow each other, for what each costs its sender.
const BURST: usize = 64;

/// What was found, as text for people and as the table.
#[derive(Clone, Debug)]
pub struct Tuned {
    /// The table.
    pub table: Table,
    /// Each trial with what was predicted and measured.
    pub report: String,
}

/// Tunes for a job's ranks; on rank 0. `sizes` ascending; each trial runs `rounds` rounds.
///
/// # Errors
/// A rank is lost, or there is one only.
pub fn collectives(comm: &Communicator, sizes: &[usize], rounds: usize) -> Result<Option<Tuned>, Failure> {
    if comm.size() < 2 {
        return Err("tune on the ranks of a job: rsrun -n 96 -hostfile hosts rsbench tune collectives".into());
    }
    let mut table = Table { network: network(comm)?, memory: Some(memory(comm)?), rules: Vec::new() };
    let groups = groups_and_memory(comm)?;
    let mut report = String::new();
    for collective in TRIED {
        let mut from = 0;
        for &bytes in sizes {
            let mut tried: Vec<(f64, Trial)> = Vec::new();
            for trial in candidates(collective, &groups, bytes, &table, 2) {
                let measured = trial.measure(comm, bytes, rounds)?;
                let rule = trial.rule(&groups, from..=bytes, measured);
                let chunk = rule.chunk.unwrap_or(bytes);
                let _ = writeln!(
                    report,
                    "{collective:<12} {bytes:>10}  {:<20} chunks of {chunk:>8} B  predicted {:>10.1} us, measured {:>10.1} us",
                    rule.algorithm,
                    trial.predicted * 1e6,
                    measured * 1e6
                );
                tried.push((measured, trial));
            }
            tried.sort_by(|(one, _), (other, _)| one.total_cmp(other));
            // Where the best works in memory, behind it the best by messages, for calls that do not block.
            let in_memory = tried.first().is_some_and(|(_, trial)| trial.is_in_memory());
            let next = tried.iter().find(|(_, trial)| in_memory && !trial.is_in_memory());
            let best: Vec<&(f64, Trial)> = tried.first().into_iter().chain(next).collect();
            table.rules.extend(best.iter().map(|(measured, trial)| trial.rule(&groups, from..=bytes, *measured)));
            from = bytes + 1;
            if sizes.last() == Some(&bytes) {
                table.rules.extend(best.iter().map(|(_, trial)| trial.rule_above(&groups, from)));
            }
        }
    }
    Ok((comm.rank() == 0).then_some(Tuned { table, report }))
}

/// Messages between rank 0 and another rank of its host, of another host of its rack, and of another rack, as far as there
/// are such groups; the same on all ranks.
fn network(comm: &Communicator) -> Result<Network, Failure> {
    let groups = groups(comm);
    let (near, rack) = (groups.joined_by(Link::Inside), groups.joined_by(Link::Between));
    let find = |wanted: &dyn Fn(usize) -> bool| (1..comm.size()).find(|rank| wanted(*rank));
    let inside = find(&|rank| near[rank] == near[0]);
    let between = find(&|rank| near[rank] != near[0] && rack[rank] == rack[0]);
    let across = find(&|rank| rack[rank] != rack[0]);
    let reduced = reduction();
    let measured = |partner: Option<usize>| -> Result<Option<Model>, Failure> {
        let Some(partner) = partner else { return Ok(None) };
        let measured = pair(comm, partner)?;
        // Rank 0's clock decides for all.
        let mut numbers = [measured[0], measured[1], measured[2], reduced];
        comm.broadcast(&mut numbers, 0)?;
        let [latency, overhead, per_byte, per_byte_reduced] = numbers;
        Ok(Some(Model { latency, overhead, per_byte, per_byte_reduced }))
    };
    let Network { inside: no_inside, between: no_between, .. } = Network::ASSUMED;
    let mut found = Network {
        inside: measured(inside)?.unwrap_or(no_inside),
        between: measured(between)?.unwrap_or(no_between),
        across: measured(across)?,
    };
    if let Some(across) = &mut found.across {
        // Where each host is a rack of its own there is nothing nearer between hosts.
        found.between = if between.is_some() { found.between } else { *across };
        across.per_byte = port(comm, &near, &rack)?;
    }
    Ok(found)
}

/// Time of a byte in the port that the hosts of rank 0's rack share: the first rank of each sends to one of the next rack at
/// the same time.
fn port(comm: &Communicator, near: &[usize], rack: &[usize]) -> Result<f64, Failure> {
    let is_first = |rank: usize| (0..rank).all(|other| near[other] != near[rank]);
    let firsts = |of: usize| (0..comm.size()).filter(move |rank| rack[*rank] == of && is_first(*rank));
    let Some(next) = rack.iter().copied().find(|other| *other != rack[0]) else { return Ok(0.0) };
    let pairs: Vec<(usize, usize)> = firsts(rack[0]).zip(firsts(next)).collect();
    let partner = pairs.iter().find_map(|(from, to)| match comm.rank() {
        rank if rank == *from => Some((*to, true)),
        rank if rank == *to => Some((*from, false)),
        _ => None,
    });
    let mut buffer = vec![0_u8; SIZES[2]];
    let mut times = Vec::new();
    for _ in 0..6 {
        comm.barrier()?;
        let begun = Instant::now();
        match partner {
            Some((to, true)) => comm.send(&buffer, to, 3)?,
            Some((from, false)) => _ = comm.recv(&mut buffer, from, 3)?,
            None => {}
        }
        let took = comm.all_gather(&[begun.elapsed().as_secs_f64()])?;
        times.push(pairs.iter().map(|(_, to)| took[*to]).fold(0.0, f64::max));
    }
    // The first one makes the connections.
    let median = crate::measure::median(times.split_off(1)).unwrap_or(0.0);
    let mut per_byte = [(median / (pairs.len() * SIZES[2]) as f64).max(1e-13)];
    comm.broadcast(&mut per_byte, 0)?;
    Ok(per_byte[0])
}

/// Latency, overhead and time of a byte of messages between rank 0 and another, on rank 0.
fn pair(comm: &Communicator, partner: usize) -> Result<[f64; 3], Failure> {
    let rank = comm.rank();
    comm.barrier()?;
    let mut times = [0.0; SIZES.len()];
    let mut overhead = 0.0;
    if rank == 0 || rank == partner {
        let other = if rank == 0 { partner } else { 0 };
        for (bytes, time) in SIZES.into_iter().zip(&mut times) {
            let mut buffer = vec![0_u8; bytes];
            let mut all = Vec::new();
            for _ in 0..12 {
                let begun = Instant::now();
                if rank == 0 {
                    comm.send(&buffer, other, 0)?;
                    comm.recv(&mut buffer, other, 0)?;
                } else {
                    comm.recv(&mut buffer, other, 0)?;
                    comm.send(&buffer, other, 0)?;
                }
                all.push(begun.elapsed().as_secs_f64() / 2.0);
            }
            // The first ones make the connection.
            *time = crate::measure::median(all.split_off(2)).unwrap_or(0.0);
        }
        let begun = Instant::now();
        for _ in 0..BURST {
            if rank == 0 {
                comm.send(&[0_u8; 64], other, 1)?;
            } else {
                comm.recv(&mut [0_u8; 64], other, 1)?;
            }
        }
        if rank == 0 {
            comm.recv(&mut [0_u8; 1], other, 2)?;
        } else {
            comm.send(&[0_u8; 1], other, 2)?;
        }
        overhead = ((begun.elapsed().as_secs_f64() - 2.0 * times[0]) / BURST as f64).clamp(1e-9, times[0].max(1e-9));
    }
    comm.barrier()?;
    let per_byte = (times[2] - times[1]) / (SIZES[2] - SIZES[1]) as f64;
    Ok([(times[0] - overhead).max(1e-9), overhead, per_byte.max(1e-13)])
}

/// Seconds to reduce a byte.
fn reduction() -> f64 {
    let (mut into, operand) = (vec![1.0_f32; 1 << 16], vec![1.0_f32; 1 << 16]);
    Sum.apply(&mut into, &operand, Side::Right);
    let begun = Instant::now();
    (0..8).for_each(|_| Sum.apply(&mut into, &operand, Side::Right));
    std::hint::black_box(&into);
    begun.elapsed().as_secs_f64() / (8 * into.len() * 4) as f64
}

/// Bytes a second that the memory of the first host carries while all its ranks add up data that is in no cache.
fn memory(comm: &Communicator) -> Result<f64, Failure> {
    const ELEMENTS: usize = 2 << 20;
    const ROUNDS: usize = 3;
    let host = comm.host_of(comm.rank());
    let near = comm.split(Some(u32::try_from(host)?), 0)?.ok_or("every rank has a host")?;
    let (mut into, operand) = (vec![1.0_f32; ELEMENTS], vec![1.0_f32; ELEMENTS]);
    near.barrier()?;
    let begun = Instant::now();
    (0..ROUNDS).for_each(|_| Sum.apply(&mut into, &operand, Side::Right));
    std::hint::black_box(&into);
    near.barrier()?;
    // Two operands are read, one is written.
    let traffic = (near.size() * ROUNDS * 3 * ELEMENTS * 4) as f64;
    let mut bandwidth = [traffic / begun.elapsed().as_secs_f64()];
    comm.broadcast(&mut bandwidth, 0)?;
    Ok(bandwidth[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use spmd_collectives::groups::Groups;

    #[test]
    fn the_table_has_a_rule_for_every_collective_and_size_and_constants_that_were_measured() {
        let tuned = spmd::local::Cluster::new(4)
            .set("collectives.group_size", "2")
            .run(|world| collectives(&world.communicator(), &[64, 4096], 2).expect("it runs"))
            .expect("it runs");
        assert!(tuned[1..].iter().all(Option::is_none));
        let tuned = tuned[0].as_ref().expect("rank 0 has it");
        assert_ne!(tuned.table.network.inside, Network::ASSUMED.inside);
        assert!(tuned.table.memory.is_some_and(|memory| memory > 0.0));
        // Two by messages, and the memory of the one host.
        assert_eq!(tuned.report.lines().count(), 2 * 3 * TRIED.len());
        assert_eq!(tuned.report.matches(" shared ").count(), 2 * TRIED.len(), "{}", tuned.report);
        assert_eq!(tuned.table.network.across, None);
        let read = Table::parse(&tuned.table.to_string()).expect("its own text");
        let groups = Groups::every(4, 2);
        for collective in TRIED {
            let mut rules = read.concerning(collective, &groups).peekable();
            for range in [0..=64, 65..=4096, 4097..=usize::MAX] {
                let rule = rules.next().expect("a rule for the range");
                assert_eq!(
                    (&rule.bytes, rule.measured.is_some()),
                    (&range, range.contains(&64) || range.contains(&4096))
                );
                // Behind one for the memory one by messages, as calls that do not block need it.
                if rule.algorithm == "shared" {
                    let next = rules.next().expect("another one");
                    assert_eq!(next.bytes, range);
                    assert_ne!(next.algorithm, "shared");
                }
                assert!(rules.peek().is_none_or(|next| next.bytes != range));
            }
        }
    }

    #[test]
    fn what_racks_share_is_measured_where_there_are_any() {
        let tuned = spmd::local::Cluster::new(8)
            .set("collectives.groups", "2,2")
            .run(|world| collectives(&world.communicator(), &[64], 2).expect("it runs"))
            .expect("it runs");
        let table = &tuned[0].as_ref().expect("rank 0 has it").table;
        assert!(table.network.across.is_some_and(|across| across.per_byte > 0.0));
        assert_ne!(table.network.between, Network::ASSUMED.between);
        assert!(table.rules.iter().all(|rule| rule.groups == [4, 2]), "{:?}", table.rules);
        assert_eq!(Table::parse(&table.to_string()).expect("its own text").rules.len(), table.rules.len());
    }
}

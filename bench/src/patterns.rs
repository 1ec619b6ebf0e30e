//! The measured loops, one body for every library. A round is what one sample comes from.
//!
//! Before a size is measured its first round is compared byte for byte, and three more tell how long a round takes, which
//! decides how many are made. Only rank 0 has samples in the end.

use crate::measure::{Pattern, Plan, Rounds};
use crate::port::{Failure, Port, Window};
use std::ops::Range;
use std::time::Instant;

/// Samples of one size in the unit of the pattern, and how many warm-up rounds were made.
#[derive(Debug)]
pub struct Measured {
    /// One value a round.
    pub samples: Vec<f64>,
    /// Rounds that were made.
    pub rounds: Rounds,
}

/// Measures one size; `None` on ranks that have nothing to tell.
///
/// # Errors
/// The library failed, a message came damaged, or the number of ranks does not fit the pattern.
pub fn measure<P: Port>(port: &mut P, plan: &Plan, bytes: usize) -> Result<Option<Measured>, Failure> {
    let (rank, size) = (port.rank(), port.size());
    let last = size - 1;
    let loops = Loops { plan, bytes, window: plan.window_of(bytes) };
    match plan.pattern {
        Pattern::Latency if rank == 0 || rank == last => loops.latency(port, last),
        Pattern::Bandwidth if rank == 0 || rank == last => loops.one_way(port, &[0, last]),
        Pattern::Bibw if rank == 0 || rank == last => loops.both_ways(port, last),
        Pattern::Latency | Pattern::Bandwidth | Pattern::Bibw => Ok(None),
        Pattern::Rate => loops.one_way(port, &(0..size).collect::<Vec<_>>()),
        Pattern::Incast => loops.incast(port),
        Pattern::Ring => loops.ring(port),
        Pattern::Barrier => loops.barrier(port),
        Pattern::AllReduce => loops.all_reduce(port),
        Pattern::Put => loops.put(port, last),
        Pattern::Memory => loops.memory(port),
    }
}

/// Why a pattern cannot run on so many ranks.
///
/// # Errors
/// The reason.
pub fn fits(pattern: Pattern, ranks: usize) -> Result<(), Failure> {
    match (pattern, ranks) {
        (_, 0 | 1) => Err(format!("{} is measured between ranks: start two or more (-n 2)", pattern.name()).into()),
        (Pattern::Rate, odd) if odd % 2 == 1 => {
            Err(format!("rate is measured between pairs of ranks: {odd} is odd").into())
        }
        _ => Ok(()),
    }
}

struct Loops<'a> {
    plan: &'a Plan,
    bytes: usize,
    window: usize,
}

impl Loops<'_> {
    fn latency<P: Port>(&self, port: &mut P, last: usize) -> Result<Option<Measured>, Failure> {
        let first = port.rank() == 0;
        let mut sent = vec![0; self.bytes];
        let mut received = vec![0; self.bytes];
        let (rounds, times) = self.rounds(port, &[0, last], |port, checked| {
            if !first {
                port.receive(&mut received, 0)?;
                if let Some(round) = checked {
                    intact(&received, round)?;
                }
                port.send(&received, 0)?;
                return Ok(0.0);
            }
            if let Some(round) = checked {
                stamp(&mut sent, round);
            }
            let begun = Instant::now();
            port.send(&sent, last)?;
            port.receive(&mut received, last)?;
            let time = begun.elapsed();
            if let Some(round) = checked {
                intact(&received, round)?;
            }
            Ok(time.as_secs_f64())
        })?;
        Ok(first.then(|| Measured { samples: times.iter().map(|time| time * 1e6 / 2.0).collect(), rounds }))
    }

    /// From each rank of the first half of `ranks` to one of the second.
    fn one_way<P: Port>(&self, port: &mut P, ranks: &[usize]) -> Result<Option<Measured>, Failure> {
        let pairs = ranks.len() / 2;
        let rank = port.rank();
        let place = ranks.iter().position(|other| *other == rank).unwrap_or(0);
        let sends = place < pairs;
        let peer = ranks[(place + pairs) % ranks.len()];
        let mut window = [Window::new(peer, self.window, self.bytes)];
        let (rounds, times) = self.rounds(port, ranks, |port, checked| {
            if sends {
                stamp_window(&mut window, checked);
                let begun = Instant::now();
                port.windows(&mut [], &mut window)?;
                port.receive(&mut [0], peer)?;
                Ok(begun.elapsed().as_secs_f64())
            } else {
                port.windows(&mut window, &mut [])?;
                port.send(&[1], peer)?;
                intact_window(&window, checked)?;
                Ok(0.0)
            }
        })?;
        let senders: Vec<usize> = ranks[..pairs].to_vec();
        let Some(all) = gather(port, &senders, &times)? else { return Ok(None) };
        // Pairs run side by side and not in step: what each reaches in its round of this number is added up.
        let total = |round: usize| all.iter().map(|times| self.figure(1, times[round])).sum();
        Ok(Some(Measured { samples: (0..rounds.measured).map(total).collect(), rounds }))
    }

    fn both_ways<P: Port>(&self, port: &mut P, last: usize) -> Result<Option<Measured>, Failure> {
        let first = port.rank() == 0;
        let peer = if first { last } else { 0 };
        let mut incoming = [Window::new(peer, self.window, self.bytes)];
        let mut outgoing = [Window::new(peer, self.window, self.bytes)];
        let (rounds, times) = self.rounds(port, &[0, last], |port, checked| {
            stamp_window(&mut outgoing, checked);
            let begun = Instant::now();
            port.windows(&mut incoming, &mut outgoing)?;
            if first {
                port.receive(&mut [0], peer)?;
            } else {
                port.send(&[1], peer)?;
            }
            let time = begun.elapsed();
            intact_window(&incoming, checked)?;
            Ok(time.as_secs_f64())
        })?;
        Ok(first.then(|| Measured { samples: times.iter().map(|time| self.figure(2, *time)).collect(), rounds }))
    }

    fn incast<P: Port>(&self, port: &mut P) -> Result<Option<Measured>, Failure> {
        let others: Range<usize> = 1..port.size();
        let all: Vec<usize> = (0..port.size()).collect();
        if port.rank() != 0 {
            let mut window = [Window::new(0, self.window, self.bytes)];
            self.rounds(port, &all, |port, checked| {
                stamp_window(&mut window, checked);
                port.windows(&mut [], &mut window)?;
                port.receive(&mut [0], 0)?;
                Ok(0.0)
            })?;
            return Ok(None);
        }
        let mut windows: Vec<Window> = others.clone().map(|rank| Window::new(rank, self.window, self.bytes)).collect();
        let senders = others.len();
        let (rounds, times) = self.rounds(port, &all, |port, checked| {
            let begun = Instant::now();
            port.windows(&mut windows, &mut [])?;
            for rank in others.clone() {
                port.send(&[1], rank)?;
            }
            let time = begun.elapsed();
            for window in &windows {
                intact_window(std::slice::from_ref(window), checked)?;
            }
            Ok(time.as_secs_f64())
        })?;
        Ok(Some(Measured { samples: times.iter().map(|time| self.figure(senders, *time)).collect(), rounds }))
    }

    fn ring<P: Port>(&self, port: &mut P) -> Result<Option<Measured>, Failure> {
        let (rank, size) = (port.rank(), port.size());
        let (next, before) = ((rank + 1) % size, (rank + size - 1) % size);
        let all: Vec<usize> = (0..size).collect();
        let mut message = vec![0; self.bytes];
        let (rounds, times) = self.rounds(port, &all, |port, checked| {
            if rank != 0 {
                port.receive(&mut message, before)?;
                if let Some(round) = checked {
                    intact(&message, round)?;
                }
                port.send(&message, next)?;
                return Ok(0.0);
            }
            if let Some(round) = checked {
                stamp(&mut message, round);
            }
            let begun = Instant::now();
            port.send(&message, next)?;
            port.receive(&mut message, before)?;
            let time = begun.elapsed();
            if let Some(round) = checked {
                intact(&message, round)?;
            }
            Ok(time.as_secs_f64())
        })?;
        let hop = |time: &f64| time * 1e6 / size as f64;
        Ok((rank == 0).then(|| Measured { samples: times.iter().map(hop).collect(), rounds }))
    }

    fn barrier<P: Port>(&self, port: &mut P) -> Result<Option<Measured>, Failure> {
        self.slowest(port, |port, _| {
            let begun = Instant::now();
            port.barrier()?;
            Ok(begun.elapsed().as_secs_f64())
        })
    }

    /// Small whole numbers, whose sums are exact in any order.
    fn all_reduce<P: Port>(&self, port: &mut P) -> Result<Option<Measured>, Failure> {
        let (rank, size) = (port.rank(), port.size());
        let value = |rank: usize, index: usize| ((rank + index) % 8) as f32;
        let sums: Vec<f32> = (0..8).map(|index| (0..size).map(|rank| value(rank, index)).sum()).collect();
        let data: Vec<f32> = (0..self.bytes / 4).map(|index| value(rank, index)).collect();
        let mut result = vec![0.0; data.len()];
        self.slowest(port, |port, checked| {
            if checked.is_some() {
                result.fill(-1.0);
            }
            let begun = Instant::now();
            port.all_reduce(&data, &mut result)?;
            let time = begun.elapsed();
            let wrong = || (0..result.len()).find(|index| result[*index].to_bits() != sums[index % 8].to_bits());
            match checked.and_then(|_| wrong()) {
                None => Ok(time.as_secs_f64()),
                Some(index) => Err(format!("sum {index} is {} instead of {}", result[index], sums[index % 8]).into()),
            }
        })
    }

    fn put<P: Port>(&self, port: &mut P, last: usize) -> Result<Option<Measured>, Failure> {
        port.expose(self.window * self.bytes)?;
        let first = port.rank() == 0;
        if !first && port.rank() != last {
            return Ok(None);
        }
        let mut window = [Window::new(last, self.window, self.bytes)];
        let (rounds, times) = self.rounds(port, &[0, last], |port, checked| {
            if !first {
                // The target has no part in a put; it only looks, when it is told that all is there.
                if let Some(round) = checked {
                    port.receive(&mut [0], 0)?;
                    let there = port.exposed()?;
                    let buffers = there.chunks(self.bytes.max(1)).take(self.window).map(<[u8]>::to_vec).collect();
                    intact_window(&[Window { peer: 0, buffers }], Some(round))?;
                    port.send(&[1], 0)?;
                }
                return Ok(0.0);
            }
            stamp_window(&mut window, checked);
            let begun = Instant::now();
            port.put(&window[0])?;
            let time = begun.elapsed();
            if checked.is_some() {
                port.send(&[1], last)?;
                port.receive(&mut [0], last)?;
            }
            Ok(time.as_secs_f64())
        })?;
        Ok(first.then(|| Measured { samples: times.iter().map(|time| self.figure(1, *time)).collect(), rounds }))
    }

    /// One message from every rank to every other; the samples are the ranks' memory.
    fn memory<P: Port>(&self, port: &mut P) -> Result<Option<Measured>, Failure> {
        let (rank, size) = (port.rank(), port.size());
        for distance in 1..size {
            let (to, from) = ((rank + distance) % size, (rank + size - distance) % size);
            let mut outgoing = [Window::new(to, 1, self.bytes)];
            let mut incoming = [Window::new(from, 1, self.bytes)];
            stamp_window(&mut outgoing, Some(distance as u64));
            port.windows(&mut incoming, &mut outgoing)?;
            intact_window(&incoming, Some(distance as u64))?;
        }
        // Nobody goes on, and frees or takes anything, before all have looked.
        port.barrier()?;
        let mine = resident_share()?;
        let all: Vec<usize> = (0..size).collect();
        let samples = gather(port, &all, &[mine])?;
        port.barrier()?;
        let rounds = Rounds { warm_up: 0, measured: 1 };
        Ok(samples.map(|ranks| Measured { samples: ranks.concat(), rounds }))
    }

    /// Rounds of all ranks, each with the time of the rank that took longest.
    fn slowest<P: Port>(
        &self,
        port: &mut P,
        one: impl FnMut(&mut P, Option<u64>) -> Result<f64, Failure>,
    ) -> Result<Option<Measured>, Failure> {
        let all: Vec<usize> = (0..port.size()).collect();
        let (rounds, times) = self.rounds(port, &all, one)?;
        let Some(each) = gather(port, &all, &times)? else { return Ok(None) };
        let slowest = |round: usize| each.iter().map(|times| times[round]).fold(0.0, f64::max) * 1e6;
        Ok(Some(Measured { samples: (0..rounds.measured).map(slowest).collect(), rounds }))
    }

    /// What so many windows in so many seconds come to, in the pattern's unit.
    fn figure(&self, windows: usize, seconds: f64) -> f64 {
        let messages = (windows * self.window) as f64;
        match self.plan.pattern {
            Pattern::Rate => messages / seconds / 1e6,
            _ => messages * self.bytes as f64 / seconds / 1e6,
        }
    }

    /// Makes all rounds of a size on the ranks that take part, rank 0 among them; the seconds of the measured ones. What
    /// one round is told is the number by which its messages are to be marked and compared, if they are.
    fn rounds<P: Port>(
        &self,
        port: &mut P,
        ranks: &[usize],
        mut one: impl FnMut(&mut P, Option<u64>) -> Result<f64, Failure>,
    ) -> Result<(Rounds, Vec<f64>), Failure> {
        one(port, Some(1))?;
        let mut shortest = f64::INFINITY;
        for _ in 0..3 {
            let begun = Instant::now();
            one(port, None)?;
            shortest = shortest.min(begun.elapsed().as_secs_f64());
        }
        let rounds = agree(port, ranks, self.plan.rounds_of(shortest))?;
        let mut number = 1;
        let mut checked = || {
            number += 1;
            self.plan.check.then_some(number)
        };
        for _ in 0..rounds.warm_up {
            one(port, checked())?;
        }
        let mut times = Vec::with_capacity(rounds.measured);
        for _ in 0..rounds.measured {
            times.push(one(port, checked())?);
        }
        Ok((rounds, times))
    }
}

/// This process's memory in 10^6 bytes: pages of its own, and of pages that several processes have, its share (`Pss` of
/// proc_pid_smaps(5)).
fn resident_share() -> Result<f64, Failure> {
    let path = "/proc/self/smaps_rollup";
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).ok_or_else(|| format!("{path} has no Pss"))?;
    let kibibytes: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kibibytes * 1024.0 / 1e6)
}

/// Rank 0's decision, on all ranks that take part.
fn agree<P: Port>(port: &mut P, ranks: &[usize], mine: Rounds) -> Result<Rounds, Failure> {
    let mut words = [0; 16];
    if port.rank() != 0 {
        port.receive(&mut words, 0)?;
        let word = |at: usize| words[at..].first_chunk().map_or(0, |chunk| u64::from_le_bytes(*chunk));
        return Ok(Rounds { warm_up: usize::try_from(word(0))?, measured: usize::try_from(word(8))? });
    }
    words[..8].copy_from_slice(&(mine.warm_up as u64).to_le_bytes());
    words[8..].copy_from_slice(&(mine.measured as u64).to_le_bytes());
    for rank in ranks.iter().filter(|rank| **rank != 0) {
        port.send(&words, *rank)?;
    }
    Ok(mine)
}

/// The times of these ranks, as many on each, rank 0's first; on rank 0 only.
fn gather<P: Port>(port: &mut P, ranks: &[usize], mine: &[f64]) -> Result<Option<Vec<Vec<f64>>>, Failure> {
    let rank = port.rank();
    if rank != 0 {
        if ranks.contains(&rank) {
            let bytes: Vec<u8> = mine.iter().flat_map(|time| time.to_le_bytes()).collect();
            port.send(&bytes, 0)?;
        }
        return Ok(None);
    }
    let mut all = vec![mine.to_vec()];
    let mut bytes = vec![0; mine.len() * 8];
    for other in ranks.iter().filter(|other| **other != 0) {
        port.receive(&mut bytes, *other)?;
        all.push(bytes.as_chunks().0.iter().map(|chunk| f64::from_le_bytes(*chunk)).collect());
    }
    Ok(Some(all))
}

/// The word at a place of a message with a mark (splitmix64): no two places and no two marks look alike.
fn word(mark: u64, place: u64) -> u64 {
    let mut z = mark.wrapping_mul(0xA076_1D64_78BD_642F) ^ place.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

fn stamp(message: &mut [u8], mark: u64) {
    for (place, chunk) in (0..).zip(message.chunks_mut(8)) {
        chunk.copy_from_slice(&word(mark, place).to_le_bytes()[..chunk.len()]);
    }
}

fn intact(message: &[u8], mark: u64) -> Result<(), Failure> {
    let damaged =
        (0..).zip(message.chunks(8)).find(|(place, chunk)| **chunk != word(mark, *place).to_le_bytes()[..chunk.len()]);
    match damaged {
        None => Ok(()),
        Some((place, _)) => {
            Err(format!("a message of {} bytes came damaged at byte {} or soon after", message.len(), place * 8).into())
        }
    }
}

/// The mark of a message of a window.
fn mark_in_window(round: u64, index: u64) -> u64 {
    round << 32 | index
}

fn stamp_window(windows: &mut [Window], round: Option<u64>) {
    let Some(round) = round else { return };
    for (index, buffer) in (0..).zip(windows.iter_mut().flat_map(|window| &mut window.buffers)) {
        stamp(buffer, mark_in_window(round, index));
    }
}

fn intact_window(windows: &[Window], round: Option<u64>) -> Result<(), Failure> {
    let Some(round) = round else { return Ok(()) };
    let mut messages = (0..).zip(windows.iter().flat_map(|window| &window.buffers));
    messages.try_for_each(|(index, buffer)| intact(buffer, mark_in_window(round, index)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::own::Own;

    /// A library that changes one byte of every message of a window.
    struct Damaging(Own);

    impl Port for Damaging {
        fn rank(&self) -> usize {
            self.0.rank()
        }
        fn size(&self) -> usize {
            self.0.size()
        }
        fn send(&mut self, data: &[u8], to: usize) -> Result<(), Failure> {
            self.0.send(data, to)
        }
        fn receive(&mut self, room: &mut [u8], from: usize) -> Result<(), Failure> {
            self.0.receive(room, from)
        }
        fn windows(&mut self, receives: &mut [Window], sends: &mut [Window]) -> Result<(), Failure> {
            self.0.windows(receives, sends)?;
            for buffer in receives.iter_mut().flat_map(|window| &mut window.buffers) {
                buffer[0] ^= 1;
            }
            Ok(())
        }
        fn barrier(&mut self) -> Result<(), Failure> {
            self.0.barrier()
        }
        fn all_reduce(&mut self, data: &[f32], result: &mut [f32]) -> Result<(), Failure> {
            self.0.all_reduce(data, result)
        }
        fn expose(&mut self, bytes: usize) -> Result<(), Failure> {
            self.0.expose(bytes)
        }
        fn put(&mut self, window: &Window) -> Result<(), Failure> {
            self.0.put(window)
        }
        fn exposed(&mut self) -> Result<Vec<u8>, Failure> {
            let mut there = self.0.exposed()?;
            there[0] ^= 1;
            Ok(there)
        }
    }

    fn plan(pattern: Pattern) -> Plan {
        Plan { pattern, sizes: vec![], rounds: 20, warm_up: 2, seconds: 5.0, window: 4, check: true, transport: None }
    }

    #[test]
    fn every_pattern_gives_a_sample_a_round_on_rank_0_and_none_elsewhere() {
        let patterns = [
            (Pattern::Latency, 2),
            (Pattern::Latency, 3),
            (Pattern::Bandwidth, 2),
            (Pattern::Bandwidth, 3),
            (Pattern::Bibw, 2),
            (Pattern::Rate, 2),
            (Pattern::Rate, 4),
            (Pattern::Incast, 2),
            (Pattern::Incast, 4),
            (Pattern::Ring, 2),
            (Pattern::Ring, 5),
            (Pattern::Barrier, 2),
            (Pattern::Barrier, 5),
            (Pattern::AllReduce, 2),
            (Pattern::AllReduce, 5),
            (Pattern::Put, 2),
            (Pattern::Put, 3),
        ];
        for (pattern, ranks) in patterns {
            for bytes in [0, 1, 13, 5000] {
                let results = spmd::local::run(ranks, |world| {
                    let measured =
                        measure(&mut Own::new(world.communicator()), &plan(pattern), bytes).expect("it runs");
                    measured.map(|measured| (measured.samples.len(), measured.samples.iter().all(|s| s.is_finite())))
                });
                assert_eq!(results[0], Some((20, true)), "{pattern:?} on {ranks} ranks, {bytes} bytes");
                assert!(results[1..].iter().all(Option::is_none));
            }
        }
    }

    #[test]
    fn memory_gives_a_sample_a_rank() {
        let results = spmd::local::run(3, |world| {
            let measured = measure(&mut Own::new(world.communicator()), &plan(Pattern::Memory), 64).expect("it runs");
            measured.map(|measured| measured.samples)
        });
        // The ranks are threads here: all see the memory of one process.
        let samples = results[0].as_ref().expect("rank 0 has them");
        assert!(samples.len() == 3 && samples.iter().all(|sample| *sample > 0.1), "{samples:?}");
        assert!(results[1..].iter().all(Option::is_none));
    }

    #[test]
    fn a_damaged_message_ends_the_measurement() {
        let results = spmd::local::run(2, |world| {
            measure(&mut Damaging(Own::new(world.communicator())), &plan(Pattern::Bandwidth), 64).map(drop)
        });
        let error = results[1].as_ref().expect_err("the receiver looks").to_string();
        assert_eq!(error, "a message of 64 bytes came damaged at byte 0 or soon after");
        let results = spmd::local::run(2, |world| {
            measure(&mut Damaging(Own::new(world.communicator())), &plan(Pattern::Put), 64).map(drop)
        });
        let error = results[1].as_ref().expect_err("the target looks").to_string();
        assert_eq!(error, "a message of 64 bytes came damaged at byte 0 or soon after");
    }

    #[test]
    fn a_mark_is_found_again_and_any_other_is_not() {
        for bytes in [1, 7, 8, 9, 4096] {
            let mut message = vec![0; bytes];
            stamp(&mut message, 7);
            assert!(intact(&message, 7).is_ok());
            assert!(intact(&message, 8).is_err());
            message[bytes - 1] ^= 0x80;
            assert!(intact(&message, 7).is_err(), "{bytes}");
        }
    }

    #[test]
    fn numbers_of_ranks_that_do_not_fit_are_refused() {
        assert!(fits(Pattern::Barrier, 1).is_err());
        assert!(fits(Pattern::Rate, 3).is_err());
        assert!(fits(Pattern::Rate, 4).is_ok());
    }
}

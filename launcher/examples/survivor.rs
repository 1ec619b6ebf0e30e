//! Ranks for the launcher's tests of losses.
//!
//! `survivor shrink RANK:MILLISECONDS…`: these ranks kill themselves at these times; the others exchange numbers, all with
//! all, shrink their communicator when they hear of a loss, and tell who is left.
//!
//! `survivor chain MILLISECONDS`: the last rank kills itself at that time. Of the others one waits for it, and the others wait
//! for each other; they go on without it, and add up their ranks.
//!
//! `survivor sums MILLISECONDS RANK CALL ELEMENTS`: all ranks make this collective call (`all_reduce`, `broadcast` from the
//! rank that dies, `barrier`) over and over until RANK kills itself at that time; then they go on without it and add up.
//!
//! `survivor first MILLISECONDS RANK`: all ranks reduce in memory until RANK kills itself at that time; each of the others says whom
//! it has lost, and ends at once, so that some are gone before others look.
//!
//! `survivor blind MILLISECONDS`: the last rank kills itself at that time, while the others do something with it over and over
//! that waits for nothing and needs no answer: small messages, changes of its memory. They tell how long after the death
//! they heard of it.
//!
//! `survivor early`: rank 0 leaves in order before anybody has talked to it; the others then do.
//!
//! `survivor compute SECONDS MEGABYTES`: rank 1 computes for that long while rank 0 sends it more than the network holds.

use spmd::{SignalOp, SymmetricHeap, prelude::*};
use spmd_collectives::prelude::*;
use std::time::{Duration, Instant};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let world = World::init()?;
    match arguments.get(1).map(String::as_str) {
        Some("shrink") => shrink(&world, &arguments[2..]),
        Some("chain") => chain(&world, Duration::from_millis(arguments[2].parse()?)),
        Some("sums") => sums(&world, &arguments[2..]),
        Some("first") => first(&world, Duration::from_millis(arguments[2].parse()?), arguments[3].parse()?),
        Some("blind") => blind(&world, Duration::from_millis(arguments[2].parse()?)),
        Some("early") => early(world),
        Some("compute") => compute(&world, arguments[2].parse()?, arguments[3].parse()?),
        _ => Err("survivor shrink|chain|sums|first|blind|early|compute".into()),
    }
}

fn shrink(world: &World, deaths: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    for death in deaths {
        let (rank, after) = death.split_once(':').ok_or("RANK:MILLISECONDS")?;
        if rank.parse() == Ok(world.rank()) {
            let after = Duration::from_millis(after.parse()?);
            std::thread::spawn(move || die_after(after));
        }
    }
    let left_in_the_end = world.size() - deaths.len();
    let mut comm = world.communicator();
    let mut rounds_of_the_last = 0;
    let mut number = 0;
    while rounds_of_the_last < 20 {
        match round(&comm, number) {
            Ok(()) => number += 1,
            Err(Error::PeerLost { .. } | Error::Revoked { .. }) => {
                comm = comm.shrink()?;
                number = 0;
            }
            Err(other) => return Err(other.into()),
        }
        if comm.size() == left_in_the_end {
            rounds_of_the_last += 1;
        }
    }
    let members: Vec<usize> = (0..comm.size()).map(|member| comm.world_rank(member)).collect();
    println!("rank {} of {members:?}", world.rank());
    Ok(())
}

/// As if by the kernel: nothing is said to anybody.
fn die_after(time: Duration) {
    std::thread::sleep(time);
    let _ = std::process::Command::new("kill").args(["-KILL", &std::process::id().to_string()]).status();
}

fn chain(world: &World, death: Duration) -> Result<(), Box<dyn std::error::Error>> {
    let comm = world.communicator();
    let (rank, last) = (comm.rank(), comm.size() - 1);
    let others = comm.split((rank < last).then_some(0), 0)?;
    let Some(others) = others else {
        die_after(death);
        return Err("it is dead".into());
    };
    let mut sum = [0];
    // Only one hears that the last rank is lost, and wakes those that wait for it, on either communicator.
    let error = if rank == 0 {
        others.all_reduce(&mut sum, Sum).unwrap_err().into()
    } else {
        comm.recv(&mut [0_u8], rank + 1, 0).unwrap_err()
    };
    if rank + 1 == last {
        assert!(matches!(error, Error::PeerLost { peer, .. } if peer == last), "{error}");
        others.revoke()?;
    }
    assert!(error.is_loss(), "{error}");
    let left = comm.shrink()?;
    sum = [rank];
    left.all_reduce(&mut sum, Sum)?;
    let members: Vec<usize> = (0..left.size()).map(|member| left.world_rank(member)).collect();
    println!("rank {rank} of {members:?}: {}", sum[0]);
    Ok(())
}

fn sums(world: &World, arguments: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let [after, victim, call, elements] = arguments else { return Err("MILLISECONDS RANK CALL ELEMENTS".into()) };
    let (after, victim, elements) = (Duration::from_millis(after.parse()?), victim.parse()?, elements.parse()?);
    if world.rank() == victim {
        std::thread::spawn(move || die_after(after));
    }
    let comm = world.communicator();
    let mut data = vec![0_u64; elements];
    let mut once = || -> Result<(), Error> {
        match call.as_str() {
            "all_reduce" => comm.all_reduce(&mut data, Sum)?,
            "broadcast" => comm.broadcast(&mut data, victim)?,
            _ => comm.barrier()?,
        }
        Ok(())
    };
    let error = loop {
        if let Err(error) = once() {
            break error;
        }
    };
    if !error.is_loss() {
        return Err(error.into());
    }
    let left = comm.shrink()?;
    let mut sum = [world.rank()];
    left.all_reduce(&mut sum, Sum)?;
    println!("rank {}: {}", world.rank(), sum[0]);
    Ok(())
}

fn first(world: &World, death: Duration, victim: usize) -> Result<(), Box<dyn std::error::Error>> {
    if world.rank() == victim {
        std::thread::spawn(move || die_after(death));
    }
    let comm = world.communicator();
    let error = loop {
        if let Err(error) = comm.all_reduce(&mut [1_u64], Sum) {
            break Error::from(error);
        }
    };
    println!("{error}");
    std::process::exit(5)
}

fn blind(world: &World, death: Duration) -> Result<(), Box<dyn std::error::Error>> {
    const PATIENCE: Duration = Duration::from_secs(20);
    let comm = world.communicator();
    let (rank, last) = (comm.rank(), comm.size() - 1);
    let heap = SymmetricHeap::new(&comm, 4096)?;
    let words = heap.alloc::<u64>(64)?;
    let others = comm.split((rank < last).then_some(0), 0)?;
    comm.barrier()?;
    let begun = Instant::now();
    if rank == last {
        std::thread::spawn(move || die_after(death));
        loop {
            // It takes what comes, so that nobody waits for room.
            let _ = comm.recv_vec::<u8>(Any, Any)?;
        }
    }
    let operations: [(&str, &dyn Fn() -> spmd::Result<()>); 8] = [
        ("send", &|| comm.send(&[1_u8], last, 0)),
        ("isend", &|| comm.isend(vec![1_u8], last, 0)?.wait().map(drop)),
        ("put", &|| words.put(&[1, 2], last)),
        ("put and quiet", &|| words.put(&[1, 2], last).and_then(|()| heap.quiet())),
        ("put, fence, signal", &|| {
            words.put(&[1, 2], last)?;
            heap.fence();
            words.signal(5, SignalOp::Add(1), last)
        }),
        ("put_signal", &|| words.put_signal(&[1], last, &words, 5, SignalOp::Set(1))),
        ("get", &|| words.get(&mut [0; 2], last)),
        ("fetch_add", &|| words.fetch_add(7, 1, last).map(drop)),
    ];
    // Each rank begins with another one.
    for at in 0..operations.len() {
        let (name, operation) = operations[(at + rank) % operations.len()];
        let error = loop {
            match operation() {
                Err(error) => break error,
                Ok(()) if begun.elapsed() > death + PATIENCE => return Err(format!("{name} goes on for ever").into()),
                Ok(()) => std::thread::sleep(Duration::from_micros(200)),
            }
        };
        if !matches!(error, Error::PeerLost { peer, .. } if peer == last) {
            return Err(format!("{name}: {error}").into());
        }
        if at == 0 {
            println!("rank {rank} heard {}", begun.elapsed().saturating_sub(death).as_millis());
        }
    }
    // Whoever shrinks first ends the communicator for those that are still at it.
    if let Some(others) = others {
        others.barrier()?;
    }
    let left = comm.shrink()?;
    let mut sum = [rank];
    left.all_reduce(&mut sum, Sum)?;
    println!("rank {rank}: {}", sum[0]);
    Ok(())
}

fn early(world: World) -> Result<(), Box<dyn std::error::Error>> {
    let comm = world.communicator();
    if comm.rank() == 0 {
        return Ok(());
    }
    drop(comm);
    // Until its process has ended, and before the launcher has told of it.
    std::thread::sleep(Duration::from_millis(60));
    let comm = world.communicator();
    let error = loop {
        if let Err(error) = comm.send(&vec![1_u8; 100_000], 0, 0) {
            break error;
        }
    };
    println!("rank {}: {error}", comm.rank());
    Ok(())
}

/// Every rank tells every other one a number. An error as soon as any of them is lost.
fn round(comm: &Communicator, number: i32) -> spmd::Result<()> {
    let others: Vec<usize> = (0..comm.size()).filter(|other| *other != comm.rank()).collect();
    let mut receives = others
        .iter()
        .map(|&other| Ok((other, comm.irecv(vec![0_u64; 3000], other, number)?)))
        .collect::<spmd::Result<Vec<_>>>()?;
    // Small ones and large ones in turn.
    let length = if number % 2 == 0 { 1 } else { 3000 };
    for &other in &others {
        drop(comm.isend(vec![comm.rank() as u64; length], other, number)?);
    }
    while !receives.is_empty() {
        let mut still = Vec::new();
        for (other, receive) in receives {
            match receive.test()? {
                Ok((got, status)) => {
                    assert_eq!(status.elements::<u64>(), length);
                    assert!(got[..length].iter().all(|word| *word == other as u64), "{got:?} from {other}");
                }
                Err(again) => still.push((other, again)),
            }
        }
        receives = still;
        std::thread::yield_now();
    }
    Ok(())
}

fn compute(world: &World, seconds: u64, megabytes: usize) -> Result<(), Box<dyn std::error::Error>> {
    let comm = world.communicator();
    let block: Vec<u64> = (0..1 << 12).collect();
    if world.rank() == 0 {
        comm.send(&[0_u8], 1, 0)?;
        let since = Instant::now();
        for number in 0..32 * megabytes as u64 {
            let block: Vec<u64> = block.iter().map(|word| word ^ number).collect();
            comm.send(&block, 1, 1)?;
        }
        println!("sent in {} s", since.elapsed().as_secs());
    } else {
        comm.recv(&mut [0_u8], 0, 0)?;
        std::thread::sleep(Duration::from_secs(seconds));
        let mut got = vec![0_u64; block.len()];
        for number in 0..32 * megabytes as u64 {
            comm.recv(&mut got, 0, 1)?;
            assert!(got.iter().zip(&block).all(|(got, word)| *got == word ^ number), "block {number}");
        }
        println!("received all");
    }
    Ok(())
}

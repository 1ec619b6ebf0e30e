//! A rank for the launcher's tests: enters `World::init` and then does what its first argument says.

use spmd::prelude::*;
use spmd_collectives::prelude::*;
use std::time::Duration;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let action = std::env::args().nth(1).unwrap_or_default();
    let rank = std::env::var("SPMD_RANK").unwrap_or_default();
    // Before `init`, by one rank only.
    match (action.as_str(), rank.as_str()) {
        ("never-init", "1") => return Ok(()),
        ("late", "1") => std::thread::sleep(Duration::from_secs(600)),
        _ => {}
    }
    let mut builder = World::builder();
    if action == "disagree" && rank == "1" {
        builder = builder.low_latency_size_hint(8192);
    }
    let world = builder.init()?;
    match (action.as_str(), world.rank()) {
        ("sum", _) => {
            // A ring of messages: every rank hears from its left neighbour.
            let comm = world.communicator();
            let (right, left) = ((comm.rank() + 1) % comm.size(), (comm.rank() + comm.size() - 1) % comm.size());
            let mut got = [0_u64];
            comm.send_receive(&[world.rank() as u64], right, 1, &mut got, left, 1)?;
            println!("rank {} of {} heard {}", comm.rank(), comm.size(), got[0]);
        }
        ("collectives", rank) => {
            // Among all, one of them twice, and among those with even and with odd numbers.
            let comm = world.communicator();
            for _ in 0..2 {
                comm.all_gather(&[rank as u64; 100])?;
            }
            comm.gather(&[1_u8; 10], 0)?;
            let half = comm.split(Some(if rank % 2 == 0 { 0 } else { 1 }), 0)?;
            half.ok_or("every rank has a half")?.all_gather(&[1_u32; 3])?;
        }
        ("placement", _) => {
            let placement = world.placement();
            println!("rank {} runs on {:?} {:?}", world.rank(), placement.cpus, placement.nic);
        }
        // Rank 1 makes all others wait: in an operation, for a message, for the receiver of one.
        ("hang", 1) => {
            for _ in 0..16 {
                world.communicator().barrier()?;
            }
            println!("ready");
            std::thread::sleep(Duration::from_secs(600));
        }
        ("hang", rank) => {
            let comm = world.communicator();
            for _ in 0..16 {
                comm.barrier()?;
            }
            println!("ready");
            match rank {
                0 => comm.all_reduce(&mut [1_u64], Sum)?,
                2 => {
                    comm.recv(&mut [0_u8], 1, 5)?;
                }
                3 => comm.send(&[0_u8; 1 << 20], 1, 6)?,
                _ => return Ok(()),
            }
        }
        // Rank 1 dies; the others hear of it and go on without it.
        ("survive", 1) => {
            std::thread::sleep(Duration::from_millis(100));
            std::process::abort();
        }
        ("survive", rank) => {
            let comm = world.communicator();
            // A receive from any rank must hear of it, too: its message might have been the lost rank's.
            let from = if rank == 0 { Source::Rank(1) } else { Source::Any };
            match comm.recv(&mut [0_u8], from, 0) {
                Err(Error::PeerLost { peer: 1, reason, .. }) => println!("rank {rank} knows: {reason}"),
                other => println!("rank {rank}: {other:?}"),
            }
            let mut got = [0_usize];
            let other = 2 - comm.rank();
            comm.send_receive(&[rank], other, 1, &mut got, other, 1)?;
            println!("rank {rank} heard {}", got[0]);
        }
        // Rank 0 leaves at once; the others wait for what it never sends, and for what nobody can send any more.
        ("gone", 0) => {}
        ("gone", 1) => {
            let waited = world.communicator().recv(&mut [0_u8], 0, 0);
            println!("rank 1: {}", waited.unwrap_err());
        }
        ("gone", rank) => {
            let waited = world.communicator().recv(&mut [0_u8], Any, 0);
            println!("rank {rank}: {}", waited.unwrap_err());
        }
        // Every rank says something, and then all of them die at once.
        ("last-words", rank) => {
            println!("out {rank}");
            eprint!("err {rank}");
            world.communicator().barrier()?;
            std::process::abort();
        }
        ("abort", 1) => world.abort(42, "the input makes no sense"),
        ("leave", 1) => std::process::exit(0),
        ("fail", 1) => std::process::exit(9),
        ("abort" | "leave" | "fail" | "wait", _) => {
            println!("ready");
            std::thread::sleep(Duration::from_secs(600));
        }
        _ => println!("rank {} of {}", world.rank(), world.size()),
    }
    Ok(())
}

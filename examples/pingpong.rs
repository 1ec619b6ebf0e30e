//! Latency between the first rank and the last, by message size; every message is checked at both ends.
//!
//!     rsrun -n 2 target/release/examples/pingpong

use spmd::prelude::*;
use spmd_collectives::prelude::*;
use spmd_examples::latency;
use std::time::Instant;

const TAG: i32 = 0;

fn main() -> spmd::Result<()> {
    let world = World::init()?;
    let comm = world.communicator();
    let (rank, size) = (comm.rank(), comm.size());
    let (first, last) = (0, size - 1);
    if rank == first {
        println!("ranks {first} and {last}\n{}", latency::HEAD);
    }
    for bytes in latency::SIZES {
        let mut times = Vec::new();
        let mut sum = latency::CHECKSUM_START;
        let mut received = vec![0_u8; bytes];
        for round in 0..latency::WARM_UP + latency::rounds(bytes) {
            let message = latency::payload(bytes, round);
            let begun = Instant::now();
            if size == 1 {
                comm.send_receive(&message[..], first, TAG, &mut received[..], first, TAG)?;
            } else if rank == first {
                comm.send(&message[..], last, TAG)?;
                comm.recv(&mut received[..], last, TAG)?;
            } else if rank == last {
                comm.recv(&mut received[..], first, TAG)?;
                comm.send(&received[..], first, TAG)?;
            } else {
                continue;
            }
            let time = begun.elapsed();
            assert!(received == message, "message {round} of {bytes} bytes came damaged");
            sum = latency::checksum(sum, &received);
            if round >= latency::WARM_UP {
                times.push(time);
            }
        }
        if rank == first {
            println!("{}", latency::line(bytes, times, sum));
        }
        comm.barrier()?;
    }
    Ok(())
}

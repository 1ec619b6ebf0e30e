//! `pingpong` over MPI, for the cross-check: the same messages, the same table, the same checksums.
//!
//!     mpirun -n 2 target/release/examples/mpi_pingpong

use mpi::point_to_point::Status;
use mpi::traits::*;
use spmd_examples::latency;
use std::time::Instant;

fn main() {
    let universe = mpi::initialize().expect("MPI starts once");
    let world = universe.world();
    let (rank, size) = (world.rank(), world.size());
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
                mpi::request::scope(|scope| {
                    let receive = world.this_process().immediate_receive_into(scope, &mut received[..]);
                    world.this_process().send(&message[..]);
                    receive.wait();
                });
            } else if rank == first {
                world.process_at_rank(last).send(&message[..]);
                let _: Status = world.process_at_rank(last).receive_into(&mut received[..]);
            } else if rank == last {
                let _: Status = world.process_at_rank(first).receive_into(&mut received[..]);
                world.process_at_rank(first).send(&received[..]);
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
        world.barrier();
    }
}

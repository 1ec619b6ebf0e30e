//! How the clocks of hosts differ: measured once, when ranks that record join their world.
//!
//! The lowest rank of every other host asks rank 0 for its time, several times; the fastest answer counts (Cristian,
//! "Probabilistic clock synchronization", 1989): the offset is then wrong by at most half that round trip. Clocks that
//! run at different speeds drift on: two ordinary quartz clocks by up to 100 us a second.

use super::{Clock, now};
use crate::{comm::Communicator, error::Result};

/// Questions of each host. The first ones make the connection.
const ROUNDS: usize = 16;

/// Measures this rank's host against rank 0's. Collective over the world. `None`: another rank of this host does it.
pub(crate) fn measure(world: &Communicator) -> Result<Option<Clock>> {
    let comm = world.duplicate()?;
    let (rank, home) = (comm.rank(), comm.host_of(0));
    let leads = |rank: usize| (0..rank).all(|other| comm.host_of(other) != comm.host_of(rank));
    if rank == 0 {
        let leaders: Vec<usize> = (1..comm.size()).filter(|rank| comm.host_of(*rank) != home && leads(*rank)).collect();
        for leader in leaders {
            for _ in 0..ROUNDS {
                comm.recv(&mut [0_u64], leader, 0)?;
                comm.send(&[now()], leader, 0)?;
            }
        }
        return Ok(Some(Clock { offset: 0, accuracy: 0 }));
    }
    if comm.host_of(rank) == home || !leads(rank) {
        return Ok(None);
    }
    let mut best: Option<Clock> = None;
    for _ in 0..ROUNDS {
        let asked = now();
        comm.send(&[asked], 0, 0)?;
        let mut theirs = [0_u64];
        comm.recv(&mut theirs, 0, 0)?;
        let answered = now();
        let (round_trip, middle) = (answered - asked, asked + (answered - asked) / 2);
        let clock = Clock { offset: theirs[0].cast_signed() - middle.cast_signed(), accuracy: round_trip / 2 };
        if best.is_none_or(|best| clock.accuracy < best.accuracy) {
            best = Some(clock);
        }
    }
    Ok(best)
}

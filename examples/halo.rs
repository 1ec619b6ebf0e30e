//! A heat equation on a plate that is cut into strips of rows, one a rank: each step, neighbours exchange the rows at
//! their common border. At the end rank 0 collects the plate and compares it with one computed alone, bit by bit.
//!
//!     rsrun -n 4 target/release/examples/halo

use spmd::prelude::*;
use spmd_examples::heat::{ROWS, Row, STEPS, cold_edge, initial_row, serial, step};
use spmd_examples::share;

const UPWARDS: i32 = 1;
const DOWNWARDS: i32 = 2;
const RESULT: i32 = 3;

fn main() -> spmd::Result<()> {
    let world = World::init()?;
    let comm = world.communicator();
    // More ranks than rows: the last ranks have nothing to do.
    let working = comm.size().min(ROWS);
    if comm.rank() >= working {
        return Ok(());
    }
    let own = share(ROWS, comm.rank(), working);
    let above = comm.rank().checked_sub(1);
    let below = Some(comm.rank() + 1).filter(|rank| *rank < working);

    let mut rows: Vec<Row> = own.map(initial_row).collect();
    for _ in 0..STEPS {
        let (first, last) = exchange(&comm, &rows, above, below)?;
        rows = step(&rows, &first, &last);
    }

    if comm.rank() != 0 {
        return comm.send(&rows.concat(), 0, RESULT);
    }
    let mut plate = rows.concat();
    for rank in 1..working {
        let (strip, _) = comm.recv_vec::<f64>(rank, RESULT)?;
        plate.extend(strip);
    }
    let alone = serial().concat();
    let differ = plate.iter().zip(&alone).filter(|(one, other)| one.to_bits() != other.to_bits()).count();
    assert!(plate.len() == alone.len() && differ == 0, "{differ} of {} cells differ", alone.len());
    let ranks = if working == 1 { "1 rank".to_string() } else { format!("{working} ranks") };
    println!("{} cells after {STEPS} steps on {ranks}: the same bits as on one", plate.len());
    Ok(())
}

/// Sends the first row up and the last one down; returns the rows above and below, or the plate's cold edge.
fn exchange(comm: &Communicator, rows: &[Row], above: Option<usize>, below: Option<usize>) -> spmd::Result<(Row, Row)> {
    let mut sends = Vec::new();
    if let Some(above) = above {
        sends.push(comm.isend(rows[0].clone(), above, UPWARDS)?);
    }
    if let Some(below) = below {
        sends.push(comm.isend(rows[rows.len() - 1].clone(), below, DOWNWARDS)?);
    }
    let first = match above {
        Some(above) => comm.recv_vec(above, DOWNWARDS)?.0,
        None => cold_edge(),
    };
    let last = match below {
        Some(below) => comm.recv_vec(below, UPWARDS)?.0,
        None => cold_edge(),
    };
    for send in sends {
        send.wait()?;
    }
    Ok((first, last))
}

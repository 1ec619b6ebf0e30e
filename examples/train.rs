//! Data-parallel training: a classifier of handwritten digits by softmax regression.
//!
//!     rsrun -n 8 target/release/examples/train [EPOCHS]
//!
//! Every rank computes the gradient over its share of the images; `all_reduce` adds the gradients up, and every rank
//! takes the same step, so that all hold the same weights to the last bit.

use spmd::prelude::*;
use spmd_collectives::prelude::*;
use spmd_examples::softmax::{EPOCHS, Model, epoch_line, final_line, good_enough};
use spmd_examples::{digits, share};

fn main() -> spmd::Result<()> {
    let world = World::init()?;
    let comm = world.communicator();
    let (rank, size) = (comm.rank(), comm.size());

    let epochs = match std::env::args().nth(1) {
        Some(text) => text.parse().unwrap_or_else(|_| world.abort(64, &format!("EPOCHS is a number, not `{text}`"))),
        None => EPOCHS,
    };
    let digits = digits::load();
    let train = &digits.train[share(digits.train.len(), rank, size)];
    let held_out = &digits.held_out[share(digits.held_out.len(), rank, size)];
    let mut model = Model::default();
    let (mut loss, mut correct) = (0.0, [0]);
    for epoch in 1..=epochs {
        let mut sums = model.sums(train);
        comm.all_reduce(&mut sums, Sum)?;
        loss = model.step(&sums, digits.train.len());
        correct = [model.correct(held_out)];
        comm.all_reduce(&mut correct, Sum)?;
        if rank == 0 {
            println!("{}", epoch_line(epoch, loss, correct[0], digits.held_out.len()));
        }
    }

    // Lowest and highest bit pattern of each weight over all ranks: equal when the weights are.
    let (mut lowest, mut highest) = (model.bits(), model.bits());
    comm.all_reduce(&mut lowest, Min)?;
    comm.all_reduce(&mut highest, Max)?;
    assert!(lowest == highest, "the ranks' weights differ");
    let all = digits.held_out.len();
    // Fewer epochs than the usual number may end anywhere.
    let enough = epochs < EPOCHS || good_enough(correct[0], all);
    assert!(enough, "only {} of {all} rows right after {epochs} epochs", correct[0]);
    if rank == 0 {
        println!("{}", final_line(size, loss, correct[0], all));
    }
    Ok(())
}

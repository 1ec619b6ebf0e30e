//! Data-parallel training: a classifier of handwritten digits by softmax regression.
//!
//!     rsrun -n 8 target/release/examples/train [EPOCHS] [--top-k SHARE]
//!
//! Every rank computes the gradient over its share of the images; `all_reduce` adds the gradients up, and every rank
//! takes the same step, so that all hold the same weights to the last bit. With `--top-k` only that share of the entries,
//! the largest ones, goes between hosts (or groups, `--set collectives.group_size=K`) in each step; the rest is added to
//! the next.

use spmd::prelude::*;
use spmd_collectives::compress::{Compressed, TopK};
use spmd_collectives::prelude::*;
use spmd_examples::softmax::{EPOCHS, Model, WEIGHTS, epoch_line, final_line, good_enough};
use spmd_examples::{digits, share};

fn main() -> spmd::Result<()> {
    let world = World::init()?;
    let comm = world.communicator();
    let (rank, size) = (comm.rank(), comm.size());

    let (epochs, top_k) = arguments().unwrap_or_else(|wrong| world.abort(64, &wrong));
    let mut compressed = match top_k {
        Some(keep) => Some(Compressed::new(&comm, WEIGHTS, TopK { keep, ..TopK::default() })?),
        None => None,
    };
    let digits = digits::load();
    let train = &digits.train[share(digits.train.len(), rank, size)];
    let held_out = &digits.held_out[share(digits.held_out.len(), rank, size)];
    let mut model = Model::default();
    let (mut loss, mut correct) = (0.0, [0]);
    for epoch in 1..=epochs {
        let mut sums = model.sums(train);
        match &mut compressed {
            Some(compressed) => {
                let (gradient, loss) = sums.split_at_mut(WEIGHTS);
                compressed.all_reduce(gradient)?;
                comm.all_reduce(loss, Sum)?;
            }
            None => comm.all_reduce(&mut sums, Sum)?,
        }
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
        if let Some(compressed) = compressed {
            let (sent, whole) = (compressed.traffic().bytes, epochs * WEIGHTS * size_of::<f64>());
            println!("sent to other groups: {sent} bytes of gradients, all of them are {whole}");
        }
    }
    Ok(())
}

/// The number of epochs, and the share of the gradient that goes between groups.
fn arguments() -> Result<(usize, Option<f64>), String> {
    let (mut epochs, mut top_k) = (EPOCHS, None);
    let mut arguments = std::env::args().skip(1);
    while let Some(text) = arguments.next() {
        if text == "--top-k" {
            let share = arguments.next().unwrap_or_default();
            top_k = Some(share.parse().map_err(|_| format!("--top-k takes a share, as 0.05, not `{share}`"))?);
        } else {
            epochs = text.parse().map_err(|_| format!("EPOCHS is a number, not `{text}`"))?;
        }
    }
    Ok((epochs, top_k))
}

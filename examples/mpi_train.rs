//! `train` over MPI, for the cross-check: the same shares, the same mathematics, the same lines.
//!
//!     mpirun -n 4 target/release/examples/mpi_train

use mpi::collective::SystemOperation;
use mpi::traits::*;
use spmd_examples::softmax::{EPOCHS, Model, epoch_line, final_line, good_enough};
use spmd_examples::{digits, share};

fn main() {
    let universe = mpi::initialize().expect("MPI starts once");
    let world = universe.world();
    let rank = usize::try_from(world.rank()).expect("a rank is not negative");
    let size = usize::try_from(world.size()).expect("a size is not negative");

    let digits = digits::load();
    let train = &digits.train[share(digits.train.len(), rank, size)];
    let held_out = &digits.held_out[share(digits.held_out.len(), rank, size)];
    let mut model = Model::default();
    let (mut loss, mut correct) = (0.0, 0);
    for epoch in 1..=EPOCHS {
        let own = model.sums(train);
        let mut sums = vec![0.0; own.len()];
        world.all_reduce_into(&own[..], &mut sums[..], SystemOperation::sum());
        loss = model.step(&sums, digits.train.len());
        world.all_reduce_into(&model.correct(held_out), &mut correct, SystemOperation::sum());
        if rank == 0 {
            println!("{}", epoch_line(epoch, loss, correct, digits.held_out.len()));
        }
    }
    let bits = model.bits();
    let (mut lowest, mut highest) = (bits.clone(), bits.clone());
    world.all_reduce_into(&bits[..], &mut lowest[..], SystemOperation::min());
    world.all_reduce_into(&bits[..], &mut highest[..], SystemOperation::max());
    assert!(lowest == highest, "the ranks' weights differ");
    assert!(good_enough(correct, digits.held_out.len()), "{correct} of {}", digits.held_out.len());
    if rank == 0 {
        println!("{}", final_line(size, loss, correct, digits.held_out.len()));
    }
}

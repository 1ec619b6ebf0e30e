//! How fast values are combined in cache, against copying as many bytes: `cargo bench -p spmd-collectives`.
//!
//! A sum loads two values for each that it stores, a copy one; processors that load two vectors a cycle can do both at
//! the same rate, which is the limit here.

use half::bf16;
use spmd::element::Element;
use spmd_collectives::operators::{Max, Op, Sum};
use spmd_collectives::schedule::Side;
use std::hint::black_box;
use std::time::Instant;

/// Small enough that operand and result stay in the first-level cache.
const BYTES: usize = 12 << 10;
const ROUNDS: usize = 20_000;
const TURNS: usize = 9;

/// The best of several turns, in bytes combined a nanosecond (GB/s).
fn rate(mut work: impl FnMut()) -> f64 {
    let turn = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| work());
        start.elapsed().as_secs_f64()
    };
    let best = (0..TURNS).map(|_| turn(&mut work)).fold(f64::INFINITY, f64::min);
    #[allow(clippy::cast_precision_loss)]
    let bytes = (BYTES * ROUNDS) as f64;
    bytes / best * 1e-9
}

fn combined<T: Element>(op: &dyn Op<T>) -> f64 {
    let mut into = vec![T::zeroed(); BYTES / size_of::<T>()];
    let operand = into.clone();
    rate(|| op.apply(black_box(&mut into), black_box(&operand), Side::Right))
}

fn main() {
    let mut into = vec![0u8; BYTES];
    let source = into.clone();
    let copy = rate(|| black_box(&mut into).copy_from_slice(black_box(&source)));
    println!("copy in cache              {copy:8.1} GB/s");
    let show = |name: &str, rate: f64| println!("{name:<26} {rate:8.1} GB/s, {:.2} of the copy", rate / copy);
    show("f32 sum", combined::<f32>(&Sum));
    show("f32 max", combined::<f32>(&Max));
    show("f64 sum", combined::<f64>(&Sum));
    show("i32 sum", combined::<i32>(&Sum));
    let ours = combined::<bf16>(&Sum);
    show("bf16 sum", ours);
    show("f16 sum", combined::<half::f16>(&Sum));
    let (mut into, operand) = (vec![bf16::ONE; BYTES / 2], vec![bf16::ONE; BYTES / 2]);
    let plain = rate(|| {
        for (into, &operand) in black_box(&mut into).iter_mut().zip(black_box(&operand)) {
            *into += operand;
        }
    });
    println!("bf16 sum, crate half       {plain:8.1} GB/s; ours is {:.1} times as fast", ours / plain);
}

//! Every collective against what a loop over all ranks gives, on a communicator of whatever kind.

#![allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "ranks and lengths of tests are small")]
#![allow(dead_code, reason = "no test needs all of it")]

use num_complex::Complex;
use spmd::Communicator;
use spmd_collectives::algorithms::Collective;
use spmd_collectives::operators::Op;
use spmd_collectives::prelude::*;

/// Every collective with these lengths and roots. Where the algorithm keeps rank order, as `keeps_order` says, also with
/// operators that need it. Returns what floats came to: on this rank, and what must be the same on all ranks.
pub(crate) fn every_collective(
    comm: &Communicator,
    lengths: &[usize],
    roots: &[usize],
    keeps_order: impl Fn(Collective) -> bool,
) -> [u64; 2] {
    let mut bits = [Digest::default(), Digest::default()];
    for &length in lengths {
        for &root in roots {
            broadcast(comm, length, root);
            reduce(comm, length, root);
            gather_and_scatter(comm, length, root);
            collectives_of_varied_lengths(comm, length, root);
            if keeps_order(Collective::Reduce) {
                reduce_in_rank_order(comm, length, root);
            }
        }
        all_reduce(comm, length);
        if keeps_order(Collective::AllReduce) {
            all_reduce_in_rank_order(comm, length);
        }
        all_gather_and_all_to_all(comm, length);
        reduce_scatter(comm, length);
        if keeps_order(Collective::ReduceScatter) {
            reduce_scatter_in_rank_order(comm, length);
        }
        scan_and_exscan(comm, length);
        comm.barrier().unwrap();
        sums_of_floats(comm, length, &mut bits);
    }
    bits.map(|digest| digest.0)
}

/// A number for the bits of floats (64-bit FNV-1a).
#[derive(Clone, Copy)]
pub(crate) struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl Digest {
    fn add(&mut self, values: &[f32]) {
        for byte in values.iter().flat_map(|value| value.to_bits().to_le_bytes()) {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// What floats add up to in every collective that reduces; `all_reduce` also into what must be the same on all ranks.
fn sums_of_floats(comm: &Communicator, length: usize, [here, everywhere]: &mut [Digest; 2]) {
    let (rank, size) = (comm.rank(), comm.size());
    let mut sum = floats(rank, length);
    comm.all_reduce(&mut sum, Sum).unwrap();
    everywhere.add(&sum);
    here.add(&comm.reduce(&floats(rank, length), Sum, size - 1).unwrap().unwrap_or_default());
    here.add(&comm.reduce_scatter(&floats(rank, size * length), Sum).unwrap());
    let mut upto = floats(rank, length);
    comm.scan(&mut upto, Sum).unwrap();
    here.add(&upto);
    here.add(&comm.exscan(&floats(rank, length), Sum).unwrap().unwrap_or_default());
    // Whole numbers, whose sums are exact whatever the order.
    let pair = |rank: usize, index: usize| Complex::new((rank + index % 50) as f32, -(index as f32 % 9.0));
    let of = |rank: usize| -> Vec<Complex<f32>> { (0..length).map(|index| pair(rank, index)).collect() };
    let mut pairs = of(rank);
    comm.all_reduce(&mut pairs, Sum).unwrap();
    assert_eq!(pairs, reference(size, of, |a, b| a + b));
    extremes(comm, length);
}

/// Minima and maxima of floats do not depend on the order, NaN and signed zeros included: IEEE 754-2019 `minimum`, `maximum`.
fn extremes(comm: &Communicator, length: usize) {
    let value = |rank: usize, index: usize| match (rank + index) % 7 {
        0 => -0.0,
        1 => 0.0,
        2 if index.is_multiple_of(5) => f64::NAN,
        other => other as f64 * if rank.is_multiple_of(2) && !index.is_multiple_of(3) { -1.0 } else { 1.0 },
    };
    let of = |rank: usize| -> Vec<f64> { (0..length).map(|index| value(rank, index)).collect() };
    let bits = |values: &[f64]| -> Vec<u64> { values.iter().map(|value| value.to_bits()).collect() };
    let mut least = of(comm.rank());
    comm.all_reduce(&mut least, Min).unwrap();
    assert_eq!(bits(&least), bits(&reference(comm.size(), of, |a, b| Min.combine(a, b))));
    let mut greatest = of(comm.rank());
    comm.all_reduce(&mut greatest, Max).unwrap();
    assert_eq!(bits(&greatest), bits(&reference(comm.size(), of, |a, b| Max.combine(a, b))));
}

/// Lengths around the number of ranks, where blocks become empty or uneven, and around the eager limit (8 KiB).
pub(crate) fn lengths(size: usize) -> Vec<usize> {
    let mut lengths = vec![0, 1, size - 1, size, size + 1, 1000, 1023, 1024, 1025];
    lengths.sort_unstable();
    lengths.dedup();
    lengths
}

/// What rank `rank` contributes: no two elements alike.
pub(crate) fn integers(rank: usize, length: usize) -> Vec<i64> {
    (0..length as i64).map(|index| (rank as i64 + 1) * 1_000_003 + index * 7_919).collect()
}

/// Values whose sum depends on the order: of very different size, and of both signs.
pub(crate) fn floats(rank: usize, length: usize) -> Vec<f32> {
    let mut state = (rank as u32).wrapping_mul(2_654_435_761) ^ 12_345;
    let next = |_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let exponent = 10f32.powi((state >> 28) as i32 - 8);
        (state >> 8 & 0xffff) as f32 * exponent * if state & 0x80 == 0 { 1.0 } else { -1.0 }
    };
    (0..length).map(next).collect()
}

/// Matrices of two rows and columns, whose product depends on the order.
pub(crate) fn matrices(rank: usize, length: usize) -> Vec<[u32; 4]> {
    (0..length as u32).map(|index| [rank as u32 + 2, index, 1, rank as u32 * 3 + 1]).collect()
}

pub(crate) fn product(a: [u32; 4], b: [u32; 4]) -> [u32; 4] {
    let entry =
        |row: usize, column: usize| a[row].wrapping_mul(b[column]).wrapping_add(a[row + 1].wrapping_mul(b[column + 2]));
    [entry(0, 0), entry(0, 1), entry(2, 0), entry(2, 1)]
}

/// The contributions of all ranks combined from left to right.
pub(crate) fn reference<T: Copy>(size: usize, of: impl Fn(usize) -> Vec<T>, op: impl Fn(T, T) -> T) -> Vec<T> {
    let first = of(0);
    (1..size).fold(first, |sum, rank| sum.into_iter().zip(of(rank)).map(|(a, b)| op(a, b)).collect())
}

/// The contributions of all ranks, one after another.
pub(crate) fn concatenated(size: usize, length: usize) -> Vec<i64> {
    (0..size).flat_map(|rank| integers(rank, length)).collect()
}

pub(crate) fn broadcast(comm: &Communicator, length: usize, root: usize) {
    let mut data = if comm.rank() == root { integers(root, length) } else { vec![-1; length] };
    comm.broadcast(&mut data, root).unwrap();
    assert_eq!(data, integers(root, length));
}

pub(crate) fn reduce(comm: &Communicator, length: usize, root: usize) {
    let (rank, size) = (comm.rank(), comm.size());
    let here = |expected: Vec<i64>| (rank == root).then_some(expected);
    let sum = comm.reduce(&integers(rank, length), Sum, root).unwrap();
    assert_eq!(sum, here(reference(size, |rank| integers(rank, length), i64::wrapping_add)));
    let mut greatest = vec![0; length];
    let place = (rank == root).then_some(&mut greatest[..]);
    comm.reduce_into(&integers(rank, length), place, Max, root).unwrap();
    assert_eq!(greatest, here(reference(size, |rank| integers(rank, length), i64::max)).unwrap_or(vec![0; length]));
}

pub(crate) fn reduce_in_rank_order(comm: &Communicator, length: usize, root: usize) {
    let result = comm.reduce(&matrices(comm.rank(), length), custom(product), root).unwrap();
    let expected = reference(comm.size(), |rank| matrices(rank, length), product);
    assert_eq!(result, (comm.rank() == root).then_some(expected));
}

pub(crate) fn all_reduce(comm: &Communicator, length: usize) {
    let (rank, size) = (comm.rank(), comm.size());
    let mut data = integers(rank, length);
    comm.all_reduce(&mut data, Sum).unwrap();
    assert_eq!(data, reference(size, |rank| integers(rank, length), i64::wrapping_add));
    let mut least = vec![0; length];
    comm.all_reduce_into(&integers(rank, length), &mut least, Min).unwrap();
    assert_eq!(least, reference(size, |rank| integers(rank, length), i64::min));
}

pub(crate) fn all_reduce_in_rank_order(comm: &Communicator, length: usize) {
    let mut data = matrices(comm.rank(), length);
    comm.all_reduce(&mut data, custom(product)).unwrap();
    assert_eq!(data, reference(comm.size(), |rank| matrices(rank, length), product));
}

pub(crate) fn gather_and_scatter(comm: &Communicator, length: usize, root: usize) {
    let (rank, size) = (comm.rank(), comm.size());
    let all = concatenated(size, length);
    let gathered = comm.gather(&integers(rank, length), root).unwrap();
    assert_eq!(gathered, (rank == root).then(|| all.clone()));
    let mut block = vec![0; length];
    comm.scatter((rank == root).then_some(&all[..]), &mut block, root).unwrap();
    assert_eq!(block, integers(rank, length));
}

pub(crate) fn all_gather_and_all_to_all(comm: &Communicator, length: usize) {
    let (rank, size) = (comm.rank(), comm.size());
    assert_eq!(comm.all_gather(&integers(rank, length)).unwrap(), concatenated(size, length));
    let received = comm.all_to_all(&integers(rank, size * length)).unwrap();
    let expected: Vec<i64> =
        (0..size).flat_map(|from| integers(from, size * length)[rank * length..][..length].to_vec()).collect();
    assert_eq!(received, expected);
}

pub(crate) fn reduce_scatter(comm: &Communicator, length: usize) {
    let (rank, size) = (comm.rank(), comm.size());
    let expected = reference(size, |rank| integers(rank, size * length), i64::wrapping_add);
    let block = comm.reduce_scatter(&integers(rank, size * length), Sum).unwrap();
    assert_eq!(block, expected[rank * length..][..length]);
}

pub(crate) fn reduce_scatter_in_rank_order(comm: &Communicator, length: usize) {
    let (rank, size) = (comm.rank(), comm.size());
    let block = comm.reduce_scatter(&matrices(rank, size * length), custom(product)).unwrap();
    let expected = reference(size, |rank| matrices(rank, size * length), product);
    assert_eq!(block, expected[rank * length..][..length]);
}

pub(crate) fn scan_and_exscan(comm: &Communicator, length: usize) {
    let rank = comm.rank();
    let own = matrices(rank, length);
    let mut upto = own.clone();
    comm.scan(&mut upto, custom(product)).unwrap();
    assert_eq!(upto, reference(rank + 1, |rank| matrices(rank, length), product));
    let mut greatest = vec![0; length];
    comm.scan_into(&integers(rank, length), &mut greatest, Max).unwrap();
    assert_eq!(greatest, reference(rank + 1, |rank| integers(rank, length), i64::max));
    let before = comm.exscan(&own, custom(product)).unwrap();
    assert_eq!(before, (rank > 0).then(|| reference(rank, |rank| matrices(rank, length), product)));
}

/// How many elements rank `from` has for rank `to`: many different numbers, every fourth of them 0.
pub(crate) fn share(from: usize, to: usize, length: usize) -> usize {
    match (from * 7 + to * 3) % 4 {
        0 => 0,
        some => length / some + from % 3,
    }
}

pub(crate) fn collectives_of_varied_lengths(comm: &Communicator, length: usize, root: usize) {
    let (rank, size) = (comm.rank(), comm.size());
    let counts: Vec<usize> = (0..size).map(|rank| share(rank, root, length)).collect();
    let all: Vec<i64> = (0..size).flat_map(|rank| integers(rank, counts[rank])).collect();
    let mine = integers(rank, counts[rank]);
    let gathered = (all, counts);
    let (all, counts) = (&gathered.0, &gathered.1);
    let at_root = (rank == root).then(|| gathered.clone());
    assert_eq!(comm.gather_v(&mine, root).unwrap(), at_root);
    let block = comm.scatter_v((rank == root).then_some((&all[..], &counts[..])), root).unwrap();
    assert_eq!(block, mine);
    assert_eq!(comm.all_gather_v(&mine).unwrap(), gathered);
    let to = |rank: usize| -> Vec<usize> { (0..size).map(|to| share(rank, to, length)).collect() };
    let sent = integers(rank, to(rank).iter().sum());
    let mut expected = Vec::new();
    for from in 0..size {
        let start = to(from)[..rank].iter().sum();
        expected.extend(&integers(from, to(from).iter().sum())[start..][..to(from)[rank]]);
    }
    let received = (expected, (0..size).map(|from| share(from, rank, length)).collect::<Vec<_>>());
    assert_eq!(comm.all_to_all_v(&sent, &to(rank)).unwrap(), received);
    // All under way at once, and waited for from the last to the first.
    let gathering = comm.igather_v(mine.clone(), root).unwrap();
    let scattering = comm.iscatter_v(at_root.clone(), root).unwrap();
    let gathering_all = comm.iall_gather_v(mine.clone()).unwrap();
    let exchanging = comm.iall_to_all_v(sent.clone(), to(rank)).unwrap();
    assert_eq!(exchanging.wait().unwrap(), received);
    assert_eq!(gathering_all.wait().unwrap(), gathered);
    assert_eq!(scattering.wait().unwrap(), mine);
    assert_eq!(gathering.wait().unwrap(), at_root);
    // Lengths are settled once, what is in the buffers is not: the second start has other numbers.
    let mut gathering = comm.gather_v_init(mine.clone(), root).unwrap();
    let mut scattering = comm.scatter_v_init(at_root.clone(), root).unwrap();
    let mut gathering_all = comm.all_gather_v_init(mine.clone()).unwrap();
    let mut exchanging = comm.all_to_all_v_init(sent, to(rank)).unwrap();
    let root_s = |of_root: &[i64]| if rank == root { of_root.to_vec() } else { Vec::new() };
    let more = |numbers: &[i64], step: i64| numbers.iter().map(|number| number + step).collect::<Vec<_>>();
    for step in 0..2 {
        let requests = (gathering.start(), scattering.start(), gathering_all.start(), exchanging.start());
        (exchanging, gathering_all) = (requests.3.unwrap().wait().unwrap(), requests.2.unwrap().wait().unwrap());
        (scattering, gathering) = (requests.1.unwrap().wait().unwrap(), requests.0.unwrap().wait().unwrap());
        assert_eq!((gathering.result(), exchanging.result()), (&*root_s(&more(all, step)), &*more(&received.0, step)));
        assert_eq!((scattering.result(), gathering_all.result()), (&*more(&mine, step), &*more(all, step)));
        for data in [gathering.data_mut(), scattering.data_mut(), gathering_all.data_mut(), exchanging.data_mut()] {
            data.iter_mut().for_each(|number| *number += 1);
        }
    }
    assert_eq!((gathering_all.counts(), exchanging.counts()), (&counts[..], &received.1[..]));
    assert_eq!((gathering.counts().len(), scattering.counts()), (root_s(&vec![0; size]).len(), &[mine.len()][..]));
}

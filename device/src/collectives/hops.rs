//! All-reduce in two hops: which ranks are a group, what memory the kernel needs in both heaps, and its shape. Pure.
//!
//! Knows layouts and numbers only, the same as the part "two hops" of `kernels/collectives.cu`.

#![expect(unsafe_code, reason = "says that a structure may be passed to a kernel")]

use bytemuck::{Pod, Zeroable};
use cudarc::driver::DeviceRepr;
use spmd_collectives::groups::Groups;

/// The most blocks of a kernel: a proxy carries out what they ask for one after the other.
const BLOCKS: u32 = 32;
/// Threads of a block.
pub(super) const THREADS: u32 = 512;
/// `ROWS` of the kernels: pieces of each kind that a block has.
const ROWS: usize = 4;
/// Bytes of a heap that pieces may take, where that leaves them a size worth it.
const BUDGET: usize = 16 << 20;
const LARGEST_PIECE: usize = 64 << 10;
const SMALLEST_PIECE: usize = 1 << 10;
/// Fewer bytes than this are not worth another block, each of which gives the proxy one more descriptor.
const WORTH_A_BLOCK: usize = 8 << 10;

/// Bytes that the proxy carries in the time of one trip more between groups (docs/device.md).
const WORTH_A_TRIP: usize = 64 << 10;

/// Blocks of a kernel, and bytes of a piece and of a group's slice of one; no slices: 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HopsShape {
    pub(super) blocks: u32,
    pub(super) piece: u64,
    pub(super) slice: u64,
}

/// What a kernel gets (`hops_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct HopsArgument {
    pub(super) group: u32,
    pub(super) groups: u32,
    pub(super) shares: u32,
    pub(super) blocks: u32,
    pub(super) piece: u64,
    pub(super) ranks: u64,
    pub(super) steps: u64,
    pub(super) near: u64,
    pub(super) far: u64,
}

// SAFETY: plain numbers in the layout that kernels know it by.
unsafe impl DeviceRepr for HopsArgument {}

/// Groups of ranks that map each other, and how they share the work: the same on every rank.
#[derive(Clone, Debug)]
pub(crate) struct Hops {
    groups: Groups,
    /// Ranks of each group that talk to the other groups.
    shares: usize,
    /// The most ranks of a group.
    most: usize,
    /// The most bytes of a share in one step.
    piece: usize,
}

impl Hops {
    pub(crate) fn new(groups: Groups) -> Self {
        let members = || (0..groups.count()).map(|group| groups.members(group).len());
        let (shares, most) = (members().min().unwrap_or(1).max(1), members().max().unwrap_or(1));
        // Of the heap that needs more.
        let pieces = ROWS * BLOCKS as usize * (most + 1 + shares).max(1 + groups.count());
        let piece = (BUDGET / pieces).clamp(SMALLEST_PIECE, LARGEST_PIECE) / 256 * 256;
        Hops { groups, shares, most, piece }
    }

    pub(crate) fn groups(&self) -> &Groups {
        &self.groups
    }

    /// Bytes in the memory that the ranks of a group map.
    pub(crate) fn near_bytes(&self) -> usize {
        memory(self.most + self.shares, self.most + 1 + self.shares, self.piece)
    }

    /// Bytes in the memory that all ranks reach: none where there is one group.
    pub(crate) fn far_bytes(&self) -> usize {
        let groups = self.groups.count();
        if groups == 1 { 0 } else { memory(2 * groups, 1 + groups, self.piece) }
    }

    /// The ranks that talk to other groups: `shares` of each.
    pub(crate) fn talkers(&self) -> Vec<u32> {
        let number = |rank: &usize| u32::try_from(*rank).unwrap_or(u32::MAX);
        (0..self.groups.count())
            .flat_map(|group| self.groups.members(group)[..self.shares].iter().map(number))
            .collect()
    }

    /// Words that count the steps of blocks.
    pub(crate) fn counters() -> usize {
        BLOCKS as usize
    }

    /// The argument of rank `rank`; addresses are those of the talkers, the counters, and the memory in both heaps.
    pub(crate) fn argument(&self, rank: usize, [ranks, steps, near, far]: [u64; 4]) -> HopsArgument {
        let number = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
        HopsArgument {
            group: number(self.groups.of(rank)),
            groups: number(self.groups.count()),
            shares: number(self.shares),
            blocks: BLOCKS,
            piece: self.piece as u64,
            ranks,
            steps,
            near,
            far,
        }
    }

    /// For `bytes` bytes and at most `most` blocks: no more than are worth it, and a piece for each if that suffices.
    pub(crate) fn shape(&self, bytes: usize, is_reduce: bool, most: u32) -> HopsShape {
        let share = bytes.div_ceil(self.shares);
        let blocks = u32::try_from(share.div_ceil(WORTH_A_BLOCK)).unwrap_or(u32::MAX).clamp(1, most.min(BLOCKS));
        let piece = share.div_ceil(blocks as usize).next_multiple_of(16).min(self.piece);
        let is_sliced = !is_reduce && self.saved_by_slices(share) > WORTH_A_TRIP;
        let slice = if is_sliced { piece.div_ceil(self.groups.count()).next_multiple_of(16) } else { 0 };
        HopsShape { blocks, piece: piece as u64, slice: slice as u64 }
    }

    /// Bytes that a rank need not send when each group combines a slice of its share: it sends two slices to each other group
    /// instead of all of the share.
    fn saved_by_slices(&self, share: usize) -> usize {
        let groups = self.groups.count();
        if groups < 3 { 0 } else { (groups - 1).saturating_mul(share - (2 * share).div_ceil(groups).min(share)) }
    }
}

/// Signals and pieces of all blocks.
fn memory(signals: usize, pieces: usize, piece: usize) -> usize {
    let blocks = BLOCKS as usize;
    (blocks * signals * 8).next_multiple_of(16) + ROWS * blocks * pieces * piece
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_has_as_many_talkers_and_the_memory_stays_within_its_budget() {
        let uneven = Hops::new(Groups::by_label([0, 0, 0, 1, 1, 0, 1]));
        assert_eq!((uneven.shares, uneven.most), (3, 4));
        assert_eq!(uneven.talkers(), [0, 1, 2, 3, 4, 6]);
        for (size, width) in [(2, 1), (2, 2), (4, 2), (8, 8), (16, 8), (64, 4), (7, 3), (100, 1)] {
            let hops = Hops::new(Groups::every(size, width));
            assert!(hops.piece.is_multiple_of(16) && hops.piece >= SMALLEST_PIECE, "{size} {width}: {}", hops.piece);
            assert!(hops.near_bytes() <= BUDGET + (64 << 10), "{size} {width}: {}", hops.near_bytes());
            assert!(hops.far_bytes() <= BUDGET + (64 << 10), "{size} {width}: {}", hops.far_bytes());
            assert_eq!(hops.far_bytes() == 0, hops.groups.count() == 1);
        }
    }

    #[test]
    fn small_data_goes_in_one_block_and_large_data_in_all_with_the_largest_pieces() {
        let hops = Hops::new(Groups::every(4, 2));
        let shape = |bytes| {
            let shape = hops.shape(bytes, false, 132);
            (shape.blocks, shape.piece)
        };
        assert_eq!(shape(1), (1, 16));
        assert_eq!(shape(16 << 10), (1, 8 << 10));
        assert_eq!(shape(32 << 10), (2, 8 << 10));
        assert_eq!(shape(1 << 30), (32, hops.piece as u64));
        for bytes in [1, 15, 17, 4096, 100_001, 1 << 20, 3 << 20] {
            let (blocks, piece) = shape(bytes);
            assert!(piece.is_multiple_of(16) && piece <= hops.piece as u64, "{bytes}");
            assert!((1..=BLOCKS).contains(&blocks), "{bytes}");
            assert!(hops.shape(bytes, false, 3).blocks <= 3, "{bytes}");
        }
    }

    #[test]
    fn many_groups_share_much_data_and_slices_fit_where_pieces_would_be() {
        let slice = |groups, bytes, is_reduce| Hops::new(Groups::apart(groups)).shape(bytes, is_reduce, 132).slice;
        assert_eq!(slice(2, 1 << 30, false), 0, "two groups would send as much, and once more");
        assert_eq!((slice(3, 64 << 10, false), slice(3, 1 << 20, true)), (0, 0));
        assert!(slice(3, 1 << 20, false) > 0 && slice(8, 64 << 10, false) > 0);
        for groups in [3, 4, 7, 64, 1000] {
            for bytes in [100_000, 1 << 20, 1 << 28] {
                let hops = Hops::new(Groups::apart(groups));
                let shape = hops.shape(bytes, false, 132);
                assert!(shape.slice * groups as u64 >= shape.piece, "{groups} {bytes}");
                assert!(2 * shape.slice * groups as u64 <= (hops.piece * groups) as u64, "{groups} {bytes}");
            }
        }
    }
}

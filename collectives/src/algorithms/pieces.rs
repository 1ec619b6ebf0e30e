//! Into how many pieces algorithms cut the data, and what stages cost that work on them at the same time.

use super::Load;
use crate::price::Model;

/// Into how many pieces data is cut: segments that travel in one message, and chunks that a group combines at once, each
/// of which is one segment or more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pieces {
    pub(super) segments: f64,
    pub(super) chunks: f64,
}

impl Pieces {
    /// Of an algorithm that makes no difference.
    pub(super) fn alike(pieces: f64) -> Pieces {
        Pieces { segments: pieces, chunks: pieces }
    }

    /// Chunks for a group, where the data is in `segments`: `sqrt(n (beta + gamma) / (latency + overhead))` of what a message
    /// costs inside.
    pub(super) fn in_two_hops(segments: f64, load: &Load<'_>) -> Pieces {
        let Model { latency, overhead, per_byte, per_byte_reduced } = load.inside;
        let chunks = (load.bytes * (per_byte + per_byte_reduced) / (latency + overhead)).sqrt();
        Pieces { segments, chunks: chunks.clamp(1.0, segments.max(1.0)) }
    }
}

/// The pieces of an algorithm that does not cut the data.
pub(super) fn whole(_: &Model, _: &Load<'_>) -> Pieces {
    Pieces::alike(1.0)
}

/// Stages that work at the same time, each on another piece of the data: seconds of each stage for so many bytes, and
/// whether these are one of several pieces.
pub(super) struct Pipeline<F>(pub(super) F);

impl<F: Fn(f64, bool) -> [f64; 3]> Pipeline<F> {
    /// The number of pieces that ends soonest: `sqrt(n (sum of the betas - beta_m) / alpha_m)`, m being the slowest stage.
    pub(super) fn pieces(&self, bytes: f64) -> f64 {
        let (start, whole) = ((self.0)(0.0, true), (self.0)(bytes, true));
        let (mut slowest, mut others) = (0, 0.0);
        for stage in 0..whole.len() {
            if whole[stage] > whole[slowest] {
                slowest = stage;
            }
            others += whole[stage] - start[stage];
        }
        others -= whole[slowest] - start[slowest];
        (others / start[slowest].max(f64::MIN_POSITIVE)).sqrt().clamp(1.0, bytes.max(1.0))
    }

    /// The time of so many bytes in the best number of pieces.
    pub(super) fn cost(&self, bytes: f64) -> f64 {
        self.cost_in(self.pieces(bytes), bytes)
    }

    /// The time of so many bytes in so many pieces: the first through all stages, the others through the slowest.
    pub(super) fn cost_in(&self, pieces: f64, bytes: f64) -> f64 {
        // Half a piece more is rounded up to two.
        let stages = (self.0)(bytes / pieces, pieces >= 1.5);
        stages.iter().sum::<f64>() + (pieces - 1.0) * stages.iter().fold(0.0, |slowest: f64, &stage| slowest.max(stage))
    }
}

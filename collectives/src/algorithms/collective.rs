//! The collective operations that there are, with the buffers that their schedules use.

use super::{
    Algorithm, all_gather, all_reduce, all_to_all, barrier, broadcast, gather, reduce, reduce_scatter, scan, scatter,
};
use std::fmt;

/// A collective operation, with the buffers that its schedules use. `n` stands for
/// [`Shape::elements`](super::Shape::elements), p for the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Collective {
    /// No rank leaves before every rank has entered. No buffers.
    Barrier,
    /// The root's output goes to every rank's output. Output n.
    Broadcast,
    /// All inputs are combined into the root's output. Input n; output n at the root, none elsewhere.
    Reduce,
    /// All outputs are combined in place, and everyone has the result. Output n.
    AllReduce,
    /// The root gets every rank's input, in rank order. Input n; output p n at the root, none elsewhere.
    Gather,
    /// Every rank gets every rank's input, in rank order. Input n, output p n.
    AllGather,
    /// Each rank gets its block of the root's input. Input p n at the root, none elsewhere; output n.
    Scatter,
    /// Block j of rank i's input becomes block i of rank j's output. Input p n, output p n.
    AllToAll,
    /// All inputs are combined, and rank i gets block i of the result. Input p n, output n.
    ReduceScatter,
    /// Each rank's output becomes what the outputs up to it combine to, in rank order. Output n.
    Scan,
    /// Each rank gets what the inputs before it combine to, in rank order. Input n; output n, none at rank 0.
    Exscan,
}

impl Collective {
    /// All of them.
    pub const ALL: [Collective; 11] = [
        Collective::Barrier,
        Collective::Broadcast,
        Collective::Reduce,
        Collective::AllReduce,
        Collective::Gather,
        Collective::AllGather,
        Collective::Scatter,
        Collective::AllToAll,
        Collective::ReduceScatter,
        Collective::Scan,
        Collective::Exscan,
    ];

    /// Its name, as in the configuration key `collectives.NAME`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Collective::Barrier => "barrier",
            Collective::Broadcast => "broadcast",
            Collective::Reduce => "reduce",
            Collective::AllReduce => "all_reduce",
            Collective::Gather => "gather",
            Collective::AllGather => "all_gather",
            Collective::Scatter => "scatter",
            Collective::AllToAll => "all_to_all",
            Collective::ReduceScatter => "reduce_scatter",
            Collective::Scan => "scan",
            Collective::Exscan => "exscan",
        }
    }

    /// The algorithms there are, simplest first.
    #[must_use]
    pub fn algorithms(self) -> &'static [Algorithm] {
        match self {
            Collective::Barrier => barrier::ALGORITHMS,
            Collective::Broadcast => broadcast::ALGORITHMS,
            Collective::Reduce => reduce::ALGORITHMS,
            Collective::AllReduce => all_reduce::ALGORITHMS,
            Collective::Gather => gather::ALGORITHMS,
            Collective::AllGather => all_gather::ALGORITHMS,
            Collective::Scatter => scatter::ALGORITHMS,
            Collective::AllToAll => all_to_all::ALGORITHMS,
            Collective::ReduceScatter => reduce_scatter::ALGORITHMS,
            Collective::Scan => scan::ALGORITHMS,
            Collective::Exscan => scan::EXCLUSIVE,
        }
    }

    /// Whether one rank is the root.
    #[must_use]
    pub fn is_rooted(self) -> bool {
        matches!(self, Collective::Broadcast | Collective::Reduce | Collective::Gather | Collective::Scatter)
    }

    /// Whether values are combined by an operator.
    #[must_use]
    pub fn reduces(self) -> bool {
        matches!(
            self,
            Collective::Reduce
                | Collective::AllReduce
                | Collective::ReduceScatter
                | Collective::Scan
                | Collective::Exscan
        )
    }
}

impl fmt::Display for Collective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

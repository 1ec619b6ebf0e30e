//! Ranks that have dropped their `World`: those that still run are told, gathered over a moment. Shared memory and open
//! connections say it themselves; this is for ranks that never had a connection to whom they wait for.

use super::{Job, Phase, Rank};
use spmd::bootstrap::messages::ToAgent;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// How long farewells are gathered: most jobs end within it and need none of this.
const GATHER: Duration = Duration::from_millis(250);

/// What the running ranks have not been told yet.
#[derive(Debug, Default)]
pub(super) struct Farewells {
    ranks: Vec<u32>,
    due: Option<Instant>,
}

impl Job {
    /// A rank has dropped its `World`.
    pub(super) fn finalized(&mut self, now: Instant, rank: usize) {
        self.ranks[rank].finalized = true;
        self.farewells.ranks.extend(u32::try_from(rank));
        self.farewells.due.get_or_insert(now + GATHER);
    }

    /// When the running ranks are to be told.
    pub(super) fn farewells_due(&self) -> Option<Instant> {
        self.farewells.due.filter(|_| matches!(self.phase, Phase::Running | Phase::Settling(_)))
    }

    /// Tells the hosts where ranks still run.
    pub(super) fn tell_farewells(&mut self, now: Instant) {
        if self.farewells_due().is_none_or(|due| due > now) {
            return;
        }
        let ranks = std::mem::take(&mut self.farewells).ranks;
        let runs = |rank: &Rank| !rank.finalized && !rank.exited;
        let with_ranks: BTreeSet<usize> = self.ranks.iter().filter(|rank| runs(rank)).map(|rank| rank.host).collect();
        let hosts = self.started().into_iter().filter(|host| with_ranks.contains(host)).collect();
        self.send_all(hosts, ToAgent::RanksFinished { ranks });
    }
}

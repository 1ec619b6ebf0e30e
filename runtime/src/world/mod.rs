//! The world: all ranks of a job, from `init` to drop.

mod join;
mod leave;
mod plan;
mod settings;

pub(crate) use join::Joining;
pub(crate) use plan::Plan;

use crate::{
    bootstrap::{
        messages::{FromRank, Insight},
        node::Placement,
        rank::Control,
    },
    comm::{
        Communicator, Shared,
        choices::{Choices, Sink},
    },
    config::{self, Snapshot, Value, keys},
    error::{Context, Error, Result},
    explain::{Explanation, Group, Peers},
    hint::SizeHint,
    local::Crew,
    statistics::Statistics,
    trace::{Clock, RankTrace},
    transport::choice,
};
use settings::counts;
use std::{collections::HashSet, sync::Arc};

/// All ranks of the job. Make it first, drop it last: dropping it waits until everything this rank sends is on its way.
#[derive(Debug)]
pub struct World {
    communicator: Communicator,
    shared: Arc<Shared>,
    lifeline: Lifeline,
    placement: Placement,
    /// How this host's clock differs from rank 0's, if this rank has measured it.
    clock: Option<Clock>,
}

/// What ends this rank when the rest of the job fails.
#[derive(Clone, Debug)]
pub(crate) enum Lifeline {
    /// The agent of this host.
    Agent(Arc<Control>),
    /// The other threads of this process.
    Threads(Arc<Crew>),
    /// There is nobody else.
    Alone,
}

/// What a program sets in code, before it joins the world.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    settings: Vec<(&'static str, String)>,
}

/// Program settings after they have been checked.
type Settings = Vec<(String, Value)>;

impl Builder {
    /// Messages are at most this many bytes (see the key `low_latency.size_hint`).
    #[must_use]
    pub fn low_latency_size_hint(mut self, bytes: u64) -> Self {
        self.settings.push((keys::LOW_LATENCY_SIZE_HINT.name, bytes.to_string()));
        self
    }

    /// Joins the world.
    ///
    /// # Errors
    /// As for [`World::init`]; when a setting is out of range; when ranks set different values.
    pub fn init(self) -> Result<World> {
        let settings = self
            .settings
            .iter()
            .map(|(name, text)| config::program_setting(name, text))
            .collect::<std::result::Result<_, _>>()
            .map_err(|error| Error::Setting { reason: error.to_string() })?;
        World::from_launcher(settings)
    }
}

impl World {
    /// Joins the world that `rsrun` started; a world of size 1 when there is none.
    ///
    /// Returns only when every rank has joined and all work with the same configuration.
    ///
    /// # Errors
    /// When the launcher's hand-over is missing or of another version, when ranks disagree, when the process is already
    /// in a world, or was started by another launcher.
    pub fn init() -> Result<Self> {
        Builder::default().init()
    }

    /// Sets values in code, then joins.
    #[must_use]
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The communicator of all ranks.
    #[must_use]
    pub fn communicator(&self) -> Communicator {
        self.communicator.clone()
    }

    /// This process's rank, `0..size()`.
    #[must_use]
    pub fn rank(&self) -> usize {
        self.communicator.rank()
    }

    /// The number of ranks.
    #[must_use]
    pub fn size(&self) -> usize {
        self.communicator.size()
    }

    /// The configuration of the job, the same on every rank.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.shared.snapshot
    }

    /// Where this rank sits: the processors it was bound to, its network device and its GPU, as the launcher chose them.
    #[must_use]
    pub fn placement(&self) -> &Placement {
        &self.placement
    }

    /// The size hint of the world's communicator: what the program set in code, else the configuration's, and what it
    /// comes to on each transport. Other communicators may have another one.
    #[must_use]
    pub fn low_latency_size_hint(&self) -> SizeHint {
        self.communicator.low_latency_size_hint()
    }

    /// Which way this rank's messages take, by peer and size, and why. `rsrun --explain` prints it.
    #[must_use]
    pub fn explain(&self) -> Explanation {
        let (rank, shared) = (self.rank(), &self.shared);
        let hint = self.low_latency_size_hint();
        let engine = shared.runtime.lock();
        let here = shared.host_of[rank];
        let allowed = shared.snapshot.get(keys::TRANSPORT_ALLOW);
        let rdma = crate::verbs::has_device();
        let mut groups: Vec<(Group, HashSet<u32>)> = Vec::new();
        for peer in 0..self.size() {
            let (limits, host) = (*engine.limits(peer), shared.host_of[peer]);
            let port = engine.port(peer);
            let same_host = host == here;
            let mut choice = (peer != rank).then(|| choice::choose(same_host, rdma, &allowed));
            if let (Some(choice), Some(why)) = (&mut choice, engine.fallen_back(peer)) {
                choice.fall_back(why);
            }
            let alike = |group: &Group| {
                group.limits == limits && group.same_host == same_host && group.choice == choice && group.port == port
            };
            match groups.iter_mut().find(|(group, _)| alike(group)) {
                Some((group, hosts)) => {
                    group.ranks.push(peer);
                    hosts.insert(host);
                    group.hosts = hosts.len();
                }
                None => groups.push((
                    Group { ranks: vec![peer], hosts: 1, same_host, limits, port, choice },
                    HashSet::from([host]),
                )),
            }
        }
        drop(engine);
        let peers = groups.into_iter().map(|(group, _)| Peers::new(group, &hint, &shared.snapshot)).collect();
        Explanation { rank, size: self.size(), host: shared.hosts[here as usize].name.clone(), hint, peers }
    }

    /// Ends the whole job with this exit code, on all ranks, without waiting for anything. `code` is 1 to 255.
    pub fn abort(&self, code: i32, message: &str) -> ! {
        let rank = self.rank();
        match &self.lifeline {
            Lifeline::Agent(control) => {
                self.tell(false);
                // When the agent is gone, it has taken the job with it.
                let _ = control.say(&FromRank::Abort { code, message: message.to_string() });
            }
            Lifeline::Threads(_) | Lifeline::Alone => eprintln!("rank {rank} aborts: {message}"),
        }
        std::process::exit(code)
    }

    /// What this rank has sent, received and waited for so far. Counters are always kept; `rsrun --stats` prints those of
    /// all ranks at the end.
    #[must_use]
    pub fn statistics(&self) -> Statistics {
        self.shared.runtime.lock().statistics(false)
    }

    /// What this rank has recorded so far; `None` when the key `report.trace` is empty. `rsrun --trace` writes what all
    /// ranks have recorded into one file.
    #[must_use]
    pub fn trace(&self) -> Option<RankTrace> {
        let host = &self.shared.hosts[self.shared.host_of[self.rank()] as usize].name;
        self.shared.runtime.recorder().map(|recorder| recorder.take(self.rank(), host, self.clock))
    }

    /// Tells the launcher what it asked for, and the file where there is none. `complete`: nothing more is counted.
    fn tell(&self, complete: bool) {
        if let Some(choices) = self.shared.choices.get() {
            choices.flush();
        }
        let Lifeline::Agent(control) = &self.lifeline else { return };
        // When the agent is gone, it has taken the job with it.
        let say = |insight| drop(control.say(&FromRank::Insight(insight)));
        if counts(self.snapshot()) {
            say(Insight::Statistics(Box::new(self.shared.runtime.lock().statistics(complete))));
        }
        if let Some(trace) = self.trace() {
            trace.parts().for_each(|part| say(Insight::Trace(Box::new(part))));
        }
    }

    /// What the key `report.explain` asks of rank 0, and of libraries on all ranks.
    fn say_explanation(&self) -> Result<()> {
        let (path, is_first) = (self.snapshot().get(keys::REPORT_EXPLAIN), self.rank() == 0);
        let sink = match (path.as_str(), &self.lifeline) {
            ("off", _) => return Ok(()),
            ("text", _) => {
                if is_first {
                    eprint!("{}", self.explain());
                }
                return Ok(());
            }
            (_, Lifeline::Agent(control)) => {
                if is_first {
                    control.say(&FromRank::Insight(Insight::Explanation(self.explain().to_json())))?;
                }
                Sink::Launcher(control.clone())
            }
            (_, Lifeline::Threads(_) | Lifeline::Alone) if !is_first => return Ok(()),
            (_, Lifeline::Threads(_) | Lifeline::Alone) => {
                let explanation = self.explain().to_json();
                let path = std::path::absolute(&path).context(format!("report.explain = {path}"))?;
                Sink::File { path, explanation }
            }
        };
        let choices = Choices::new(sink)?;
        self.shared.choices.get_or_init(|| choices);
        Ok(())
    }
}

//! Ranks as threads of one process: the whole runtime without a launcher, for tests and first steps.

use crate::{
    bootstrap::{
        messages::{Boot, Host, JobKey, Release},
        node::{Chosen, Devices, Placement},
    },
    config::{self, CommandLineSetting, Layers, Snapshot, keys},
    engine::News,
    error::{Context, Error, Result},
    memory::Segment,
    world::{Joining, Lifeline, Plan, World},
};
use rustix::event::{EventfdFlags, eventfd};
use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

/// Runs `ranks` ranks as threads and returns what each gave, in rank order.
///
/// ```
/// use spmd::prelude::*;
///
/// let sums = spmd::local::run(4, |world| {
///     let comm = world.communicator();
///     let right = (comm.rank() + 1) % comm.size();
///     let left = (comm.rank() + 3) % comm.size();
///     let mut from_left = [0_usize];
///     comm.send_receive(&[comm.rank()], right, 0, &mut from_left, left, 0).unwrap();
///     from_left[0]
/// });
/// assert_eq!(sums, [3, 0, 1, 2]);
/// ```
///
/// # Panics
/// When a rank panics, or the ranks cannot be made; [`Cluster::run`] gives an error for the latter.
pub fn run<R: Send>(ranks: usize, program: impl Fn(&World) -> R + Sync) -> Vec<R> {
    Cluster::new(ranks).run(program).unwrap_or_else(|error| panic!("spmd::local::run({ranks}, …): {error}"))
}

/// Threads as ranks, with settings.
#[derive(Clone, Debug)]
pub struct Cluster {
    ranks: usize,
    hosts: usize,
    settings: Vec<CommandLineSetting>,
    devices: Vec<Option<Chosen>>,
}

impl Cluster {
    /// A cluster of `ranks` ranks on one host.
    #[must_use]
    pub fn new(ranks: usize) -> Self {
        Cluster { ranks, hosts: 1, settings: Vec::new(), devices: Vec::new() }
    }

    /// Pretends that a launcher has chosen these network devices for the ranks, in order; none for those that follow.
    #[must_use]
    pub fn devices(mut self, devices: impl IntoIterator<Item = Option<Chosen>>) -> Self {
        self.devices = devices.into_iter().collect();
        self
    }

    /// Pretends that the ranks are spread over this many hosts, in blocks: between hosts they use TCP.
    #[must_use]
    pub fn hosts(mut self, hosts: usize) -> Self {
        self.hosts = hosts.clamp(1, self.ranks.max(1));
        self
    }

    /// Sets a configuration key, as `rsrun --set key=value` does.
    #[must_use]
    pub fn set(mut self, key: &str, value: &str) -> Self {
        self.settings.push(CommandLineSetting { option: "--set".into(), key: key.into(), value: value.into() });
        self
    }

    /// Runs the program on every rank and returns what each gave, in rank order.
    ///
    /// # Errors
    /// When a setting is wrong or the ranks cannot be made. No program runs then.
    ///
    /// # Panics
    /// With the panic of the first rank that panics. The others get an error from calls that wait for it.
    pub fn run<R: Send>(&self, program: impl Fn(&World) -> R + Sync) -> Result<Vec<R>> {
        let worlds = self.join()?;
        std::thread::scope(|scope| {
            let program = &program;
            let threads: Vec<_> = worlds
                .into_iter()
                .map(|world| {
                    std::thread::Builder::new()
                        .name(format!("rank {}", world.rank()))
                        .spawn_scoped(scope, move || {
                            let result = program(&world);
                            drop(world);
                            result
                        })
                        .context("starting a thread")
                })
                .collect::<Result<_>>()?;
            let results: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
            Ok(results
                .into_iter()
                .map(|result| result.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect())
        })
    }

    /// All ranks, ready to run.
    fn join(&self) -> Result<Vec<World>> {
        let layers = Layers { command_line: self.settings.clone(), ..Layers::default() };
        let snapshot = config::resolve(&layers).map_err(|error| Error::Setting { reason: error.to_string() })?;
        if self.ranks == 0 {
            return Ok(Vec::new());
        }
        let per_host = self.ranks.div_ceil(self.hosts);
        let host_of: Vec<u32> = (0..self.ranks).map(|rank| narrow(rank / per_host)).collect();
        let hosts: Vec<Host> =
            (0..=host_of[self.ranks - 1]).map(|host| Host { name: format!("local{host}"), group: None }).collect();
        let segments = (0..hosts.len())
            .map(|host| {
                let local = host_of.iter().filter(|other| **other == narrow(host)).count();
                HostMemory::new(local, &snapshot)
            })
            .collect::<Result<Vec<_>>>()?;
        let mut key = [0; 32];
        rustix::rand::getrandom(&mut key, rustix::rand::GetRandomFlags::empty()).context("drawing a job key")?;
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let devices = Devices::of_ranks((0..self.ranks).map(|rank| self.devices.get(rank)?.as_ref()));
        let boots: Vec<Boot> = (0..self.ranks)
            .map(|rank| Boot {
                job: "local".into(),
                key: JobKey(key),
                snapshot: snapshot.clone(),
                rank: narrow(rank),
                host_of: host_of.clone(),
                hosts: hosts.clone(),
                segment_fd: -1,
                wake_fds: Vec::new(),
                oversubscribed: self.ranks > processors,
                reached_at: None,
                placement: Placement::default(),
                devices: devices.clone(),
                survives: false,
            })
            .collect();
        let plans = boots.iter().map(|boot| Plan::new(boot, true)).collect::<Result<Vec<_>>>()?;
        let crew = Arc::new(Crew::new(self.ranks, segments.iter().map(|host| host.segment.clone()).collect())?);
        let release = Release { addresses: plans.iter().map(Plan::addresses).collect() };
        boots
            .into_iter()
            .zip(plans)
            .map(|(boot, plan)| {
                let memory = &segments[boot.host_of[boot.rank as usize] as usize];
                let segment = Some(memory.share()?);
                World::join(Joining {
                    boot,
                    plan,
                    segment,
                    release: release.clone(),
                    lifeline: Lifeline::Threads(crew.clone()),
                    settings: Vec::new(),
                })
            })
            .collect()
    }
}

/// Ends all ranks when one of them panics, as the agent does for processes.
#[derive(Debug)]
pub(crate) struct Crew {
    failed: OnceLock<usize>,
    /// For every rank whether it has dropped its world.
    finished: Vec<AtomicBool>,
    /// Readable for ever once a rank has failed: it wakes every rank that sleeps.
    bell: OwnedFd,
    segments: Vec<Arc<Segment>>,
}

impl Crew {
    fn new(ranks: usize, segments: Vec<Arc<Segment>>) -> Result<Self> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context("making an eventfd")?;
        let finished = (0..ranks).map(|_| AtomicBool::new(false)).collect();
        Ok(Crew { failed: OnceLock::new(), finished, bell, segments })
    }

    pub(crate) fn fail(&self, rank: usize) {
        let _ = self.failed.set(rank);
        // Cannot fail: the counter goes up by one a rank.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
        self.segments.iter().for_each(|segment| segment.tell_news());
    }

    /// A rank has dropped its world. The others learn of it when they next call or look: nobody is woken for this.
    pub(crate) fn finish(&self, rank: usize) {
        self.finished[rank].store(true, Ordering::Release);
        self.segments.iter().for_each(|segment| segment.tell_news());
    }

    pub(crate) fn listen(&self) -> Vec<News> {
        let failed = self.failed.get().map(|rank| Error::Aborted { reason: format!("rank {rank} has panicked") });
        let finished = self.finished.iter().enumerate().filter(|(_, finished)| finished.load(Ordering::Acquire));
        failed.map(News::Fatal).into_iter().chain(finished.map(|(peer, _)| News::Finished { peer })).collect()
    }

    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}

/// What the agent makes once a host.
struct HostMemory {
    segment: Arc<Segment>,
    wake: Vec<OwnedFd>,
}

impl HostMemory {
    fn new(ranks: usize, snapshot: &Snapshot) -> Result<Self> {
        let ring = usize::try_from(snapshot.get(keys::SHM_RING_BYTES)).unwrap_or(usize::MAX);
        let segment = Segment::create(ranks, ring).and_then(Segment::map).context("making the shared segment")?;
        let wake = (0..ranks)
            .map(|_| eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context("making an eventfd"))
            .collect::<Result<_>>()?;
        Ok(HostMemory { segment: Arc::new(segment), wake })
    }

    fn share(&self) -> Result<(Arc<Segment>, Vec<OwnedFd>)> {
        let wake = self.wake.iter().map(|fd| fd.try_clone().context("sharing an eventfd")).collect::<Result<_>>()?;
        Ok((self.segment.clone(), wake))
    }
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).expect("there are never 4 billion threads")
}

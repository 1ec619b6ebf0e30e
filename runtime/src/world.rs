//! The world: all ranks of a job, from `init` to drop.

use crate::{
    bootstrap::{
        messages::{Boot, FromRank, Hello, Host, Insight, JobKey, Release},
        node::{Devices, Placement},
        rank::{self, Control},
    },
    comm::{Communicator, Near, Requested, Shared},
    config::{self, Snapshot, Value, keys},
    engine::{Engine, FIRST_FREE_TOKEN, Routes, Runtime, Waiting, operation::NoBuffers},
    error::{Context, Error, Result},
    explain::{Explanation, Group, Peers},
    hint::SizeHint,
    local::Crew,
    memory::{Activity, Segment},
    protocol::DirectRead,
    statistics::Statistics,
    trace::{self, Clock, RankTrace, Recorder},
    transport::{
        choice,
        faulty::{self, Faults},
        loopback::Loopback,
        shm::{Own, SharedMemory},
        tcp::{self, Tcp, addresses},
        verbs::{self, Verbs},
    },
};
use rustix::event::{EventfdFlags, epoll, eventfd};
use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr, TcpListener},
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Where a launcher watches, the loss of a peer is reported only after this: the launcher knows the cause, ends the job
/// and reports the rank that failed first, not those that noticed.
const KEEP_BACK: Duration = Duration::from_secs(3);
/// From this size on, ranks that share processors read messages out of each other's memory: two on one processor exchange
/// 16 KiB in 6 us instead of 23, 64 KiB in 9 instead of 63, and 1 MiB in 94 instead of 77 (P99 120 instead of 1,600).
const DIRECT_READ: usize = 16 << 10;
/// A drop that waits longer than this for its peers says so.
const PATIENCE: Duration = Duration::from_secs(5);
/// For so long a drop asks all the time whether its last bytes have been taken.
const BRISK: Duration = Duration::from_millis(20);

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
            let same_host = host == here;
            let mut choice = (peer != rank).then(|| choice::choose(same_host, rdma, &allowed));
            if let (Some(choice), Some(why)) = (&mut choice, engine.fallen_back(peer)) {
                choice.fall_back(why);
            }
            let alike =
                |group: &Group| group.limits == limits && group.same_host == same_host && group.choice == choice;
            match groups.iter_mut().find(|(group, _)| alike(group)) {
                Some((group, hosts)) => {
                    group.ranks.push(peer);
                    hosts.insert(host);
                    group.hosts = hosts.len();
                }
                None => groups
                    .push((Group { ranks: vec![peer], hosts: 1, same_host, limits, choice }, HashSet::from([host]))),
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

    fn from_launcher(settings: Settings) -> Result<Self> {
        static JOINED: AtomicBool = AtomicBool::new(false);
        if JOINED.swap(true, Ordering::SeqCst) {
            return Err(Error::Bootstrap { reason: "this process has already joined a world".into() });
        }
        let Some((boot, control)) = rank::born_with()? else { return World::alone(settings) };
        let control = Arc::new(control);
        let (segment, wake) = Control::descriptors(&boot)?;
        let plan = Plan::new(&boot, false)?;
        let hello = Hello {
            pid: std::process::id(),
            snapshot: boot.snapshot.hash(),
            program: settings.clone(),
            addresses: plan.addresses(),
        };
        let segment = Arc::new(Segment::map(segment).context("mapping the shared segment")?);
        let place = place(&boot);
        segment.publish(place, Activity::Init);
        let release = control.agree(hello)?;
        segment.publish(place, Activity::Computing);
        let mut world = World::join(Joining {
            boot,
            plan,
            segment: Some((segment, wake)),
            release,
            lifeline: Lifeline::Agent(control),
            settings,
        })?;
        if world.shared.runtime.recorder().is_some() {
            world.clock = trace::clock::measure(&world.communicator)?;
        }
        Ok(world)
    }

    /// A world of size 1.
    fn alone(settings: Settings) -> Result<Self> {
        let host = Host { name: rustix::system::uname().nodename().to_string_lossy().into_owned(), group: None };
        let boot = Boot {
            job: String::new(),
            key: JobKey([0; 32]),
            snapshot: Snapshot::defaults(),
            rank: 0,
            host_of: vec![0],
            hosts: vec![host],
            segment_fd: -1,
            wake_fds: Vec::new(),
            oversubscribed: false,
            reached_at: None,
            placement: Placement::default(),
            devices: Devices::default(),
            survives: false,
        };
        let plan = Plan::new(&boot, false)?;
        let release = Release { addresses: vec![Vec::new()] };
        World::join(Joining { boot, plan, segment: None, release, lifeline: Lifeline::Alone, settings })
    }

    /// Builds a rank out of everything that was agreed.
    pub(crate) fn join(joining: Joining) -> Result<Self> {
        let Joining { boot, plan, segment, release, lifeline, settings } = joining;
        let (rank, size) = (boot.rank as usize, boot.host_of.len());
        let board = segment.as_ref().map(|(segment, _)| (segment.clone(), place(&boot)));
        let eager = (to_usize(boot.snapshot.get(keys::EAGER_LIMIT)), keys::EAGER_LIMIT.name);
        let poller = Arc::new(epoll::create(epoll::CreateFlags::CLOEXEC).context("making an epoll instance")?);
        let mut routes = Routes { routes: Vec::new(), to: vec![0; size] };
        let faults = Faults::named(&boot.snapshot, rank, size);
        routes.add(Box::new(Loopback::new(rank)), eager, &[rank]);
        let mut near = None;
        if let (Some((segment, wake)), false) = (segment, plan.near.is_empty()) {
            near = Some(Near { segment: segment.clone(), ranks: plan.near.clone() });
            let place = plan.near.iter().position(|near| *near == rank).unwrap_or(0);
            let own = Own {
                place,
                direct_read: direct_read(&boot),
                sleeps_often: waiting(&boot.snapshot, boot.oversubscribed).sleeps_often(),
            };
            let shm = SharedMemory::new(segment, own, &plan.near, size, wake);
            epoll::add(
                &poller,
                shm.descriptor(),
                epoll::EventData::new_u64(crate::engine::WAKE_TOKEN),
                epoll::EventFlags::IN,
            )
            .context("watching the eventfd")?;
            let others: Vec<usize> = plan.near.iter().copied().filter(|near| *near != rank).collect();
            routes.add(faulty::maybe(faults, Box::new(shm)), eager, &others);
        }
        if let Some((listener, own)) = plan.listener {
            let mut addresses = addresses::worth_trying(&release.addresses, &boot.host_of);
            addresses[rank] = own;
            let tcp = Tcp::new(
                tcp::Settings {
                    rank,
                    key: boot.key.clone(),
                    addresses,
                    lanes: to_usize(boot.snapshot.get(keys::TCP_SOCKETS)),
                    connect_timeout: boot.snapshot.get(keys::TCP_CONNECT_TIMEOUT),
                    reconnect: boot.snapshot.get(keys::TCP_RECONNECT),
                    silence: boot.snapshot.get(keys::HEARTBEAT_TIMEOUT),
                    buffer: to_usize(boot.snapshot.get(keys::TCP_BUFFER_BYTES)),
                    window: to_usize(boot.snapshot.get(keys::TCP_RESEND_BYTES)),
                    first_token: FIRST_FREE_TOKEN,
                },
                listener,
                poller.clone(),
            )?;
            let tcp_eager = (to_usize(boot.snapshot.get(keys::TCP_EAGER_LIMIT)), keys::TCP_EAGER_LIMIT.name);
            if allows(&boot.snapshot, "verbs") {
                let verbs = Verbs::new(
                    &verbs::Settings {
                        rank,
                        size,
                        place: place(&boot),
                        snapshot: &boot.snapshot,
                        hint: size_hint(&settings, &boot.snapshot).bytes,
                        near: boot.placement.nic.as_ref().map(|nic| nic.name.as_str()),
                        reached_at: boot.reached_at,
                        fallback: allows(&boot.snapshot, "tcp"),
                    },
                    tcp,
                )?;
                let mut eager = tcp_eager;
                if let Some(descriptor) = verbs.descriptor() {
                    epoll::add(
                        &poller,
                        descriptor,
                        epoll::EventData::new_u64(crate::engine::COMPLETION_TOKEN),
                        epoll::EventFlags::IN,
                    )
                    .context("watching the completion channel")?;
                    eager = (to_usize(boot.snapshot.get(keys::VERBS_EAGER_LIMIT)), keys::VERBS_EAGER_LIMIT.name);
                }
                routes.add(faulty::maybe(faults, Box::new(verbs)), eager, &plan.far);
            } else {
                routes.add(faulty::maybe(faults, Box::new(tcp)), tcp_eager, &plan.far);
            }
        }
        let (watched, keep_back) = match &lifeline {
            Lifeline::Agent(control) if boot.survives => (Some(control.descriptor().as_fd()), Duration::ZERO),
            Lifeline::Agent(control) => (Some(control.descriptor().as_fd()), KEEP_BACK),
            Lifeline::Threads(crew) => (Some(crew.descriptor()), Duration::ZERO),
            Lifeline::Alone => (None, Duration::ZERO),
        };
        if let Some(watched) = watched {
            epoll::add(
                &poller,
                watched,
                epoll::EventData::new_u64(crate::engine::CONTROL_TOKEN),
                epoll::EventFlags::IN,
            )
            .context("watching the control socket")?;
        }
        let hosts = boot.host_of.iter().map(|host| boot.hosts[*host as usize].name.clone()).collect();
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context("making an eventfd")?;
        epoll::add(&poller, &bell, epoll::EventData::new_u64(crate::engine::BELL_TOKEN), epoll::EventFlags::IN)
            .context("watching an eventfd")?;
        let window = to_usize(boot.snapshot.get(keys::EAGER_WINDOW));
        let mut engine = Engine::new(rank, hosts, routes, window, keep_back, bell);
        if !boot.snapshot.get(keys::REPORT_TRACE).is_empty() {
            engine.record(Arc::new(Recorder::new(size, to_usize(boot.snapshot.get(keys::TRACE_EVENTS)))));
        }
        if let (Lifeline::Agent(control), true) = (&lifeline, counts(&boot.snapshot)) {
            let control = control.clone();
            // When the agent is gone, it has taken the job with it.
            engine.report(move |counted| {
                let _ = control.say(&FromRank::Insight(Insight::Statistics(Box::new(counted))));
            });
        }
        let listener = lifeline.clone();
        let listen = Box::new(move || match &listener {
            Lifeline::Agent(control) => control.listen(),
            Lifeline::Threads(crew) => crew.listen(),
            Lifeline::Alone => Vec::new(),
        });
        let hint = size_hint(&settings, &boot.snapshot);
        let waiting = waiting(&boot.snapshot, boot.oversubscribed);
        let shared = Arc::new(Shared {
            runtime: Runtime::new(engine, poller, waiting, listen, board),
            snapshot: boot.snapshot,
            hosts: boot.hosts,
            host_of: boot.host_of,
            devices: boot.devices,
            near,
        });
        let communicator = Communicator::world(shared.clone(), rank, hint);
        // Threads have one clock; processes measure once they have joined.
        let clock = matches!(lifeline, Lifeline::Threads(_)).then_some(Clock { offset: 0, accuracy: 0 });
        let world = World { communicator, shared, lifeline, placement: boot.placement, clock };
        world.say_explanation();
        Ok(world)
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

    /// Tells the launcher what it asked for. `complete`: nothing more is counted.
    fn tell(&self, complete: bool) {
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

    /// What the key `report.explain` asks rank 0 to print.
    fn say_explanation(&self) {
        if self.rank() == 0 {
            match self.snapshot().get(keys::REPORT_EXPLAIN).as_str() {
                "text" => eprint!("{}", self.explain()),
                "json" => eprintln!("{}", self.explain().to_json()),
                _ => {}
            }
        }
    }

    /// Waits until everything that this rank sends is on its way, and says farewell.
    fn leave(&self) -> Result<()> {
        let runtime = &self.shared.runtime;
        let since = Instant::now();
        let mut said = false;
        let mut say = |what| {
            if !said && since.elapsed() > PATIENCE {
                said = true;
                eprintln!("rank {}: dropping the World waits for {what}", self.rank());
            }
        };
        runtime.lock().leave();
        runtime.wait(Activity::Leaving, &mut NoBuffers, |engine, _| {
            let unsent = engine.has_unsent();
            if unsent {
                say("messages that nobody has received yet");
            }
            (!unsent).then_some(Ok(()))
        })?;
        // A peer that is gone acknowledges nothing, but then its loss is found out.
        let begun = Instant::now();
        while !runtime.lock().finish()? {
            say("bytes that no peer's kernel has taken yet");
            runtime.poke()?;
            if begun.elapsed() < BRISK {
                rustix::thread::sched_yield();
            } else {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        runtime.publish(Activity::Finalized);
        match &self.lifeline {
            Lifeline::Agent(control) => control.say(&FromRank::Finalized),
            Lifeline::Threads(crew) => {
                crew.finish(self.rank());
                Ok(())
            }
            Lifeline::Alone => Ok(()),
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // While unwinding nothing is waited for, but nobody shall wait for this rank either.
            let mut engine = self.shared.runtime.lock();
            engine.withdraw_all();
            let _ = engine.finish();
            engine.fail(Error::WorldDropped { rank: self.rank() });
            drop(engine);
            self.tell(true);
            if let Lifeline::Threads(crew) = &self.lifeline {
                crew.fail(self.rank());
            }
            return;
        }
        if let Err(error) = self.leave() {
            eprintln!("rank {}: dropping the World: {error}", self.rank());
        }
        // A communicator may outlive the world, but is of no use any more.
        self.shared.runtime.lock().fail(Error::WorldDropped { rank: self.rank() });
        self.tell(true);
    }
}

/// Everything a rank is built of.
pub(crate) struct Joining {
    pub(crate) boot: Boot,
    pub(crate) plan: Plan,
    pub(crate) segment: Option<(Arc<Segment>, Vec<OwnedFd>)>,
    pub(crate) release: Release,
    pub(crate) lifeline: Lifeline,
    pub(crate) settings: Settings,
}

/// Which ranks are reached how.
pub(crate) struct Plan {
    /// The ranks of this host, by place, when shared memory may be used; ourselves included.
    near: Vec<usize>,
    /// The ranks that are reached over TCP.
    far: Vec<usize>,
    listener: Option<(TcpListener, Vec<SocketAddr>)>,
}

impl Plan {
    /// `one_machine`: all hosts of the job are this machine, so loopback reaches everyone.
    pub(crate) fn new(boot: &Boot, one_machine: bool) -> Result<Self> {
        let rank = boot.rank as usize;
        let allowed = boot.snapshot.get(keys::TRANSPORT_ALLOW);
        let here = boot.host_of[rank];
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for (other, &host) in boot.host_of.iter().enumerate().filter(|(other, _)| *other != rank) {
            let choice = choice::choose(host == here, crate::verbs::has_device(), &allowed);
            match choice.transport {
                Some("shm") => near.push(other),
                Some(_) => far.push(other),
                None => {
                    let host = &boot.hosts[host as usize].name;
                    let advice = choice.advice();
                    return Err(Error::Bootstrap {
                        reason: format!(
                            "rank {other} on host {host} is reached by no transport of transport.allow = {allowed}: {advice}"
                        ),
                    });
                }
            }
        }
        if let Some(after) = near.iter().position(|other| *other > rank).or((!near.is_empty()).then_some(near.len())) {
            near.insert(after, rank);
        }
        let listener = if far.is_empty() { None } else { Some(listen(boot, one_machine)?) };
        Ok(Plan { near, far, listener })
    }

    /// The addresses under which others reach this rank.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.listener.as_ref().map(|(_, addresses)| addresses.clone()).unwrap_or_default()
    }
}

fn listen(boot: &Boot, one_machine: bool) -> Result<(TcpListener, Vec<SocketAddr>)> {
    let one_host = one_machine || boot.host_of.iter().all(|host| *host == boot.host_of[0]);
    let wanted = boot.snapshot.get(keys::TCP_INTERFACES);
    let chosen: Vec<IpAddr> = addresses::choose(&addresses::interfaces()?, &wanted, boot.reached_at, one_host)?;
    if chosen.is_empty() {
        return Err(Error::Bootstrap {
            reason: "this host has no network address that other hosts can reach (see tcp.interfaces)".into(),
        });
    }
    tcp::listen(&chosen)
}

/// Whether `transport.allow` has this word.
fn allows(snapshot: &Snapshot, name: &str) -> bool {
    snapshot.get(keys::TRANSPORT_ALLOW).split(',').any(|word| word.trim() == name)
}

/// This rank's place among those of its host.
fn place(boot: &Boot) -> usize {
    let rank = boot.rank as usize;
    boot.host_of[..rank].iter().filter(|host| **host == boot.host_of[rank]).count()
}

/// Whether messages within a host are read out of the sender's memory, and from which size on.
fn direct_read(boot: &Boot) -> DirectRead {
    match boot.snapshot.get(keys::SHM_DIRECT_READ).as_str() {
        "always" => DirectRead::From(1),
        "auto" if boot.oversubscribed => DirectRead::From(DIRECT_READ),
        "auto" => DirectRead::No("both ranks have a processor, and copy faster together through the lane"),
        _ => DirectRead::No("shm.direct_read = never"),
    }
}

fn waiting(snapshot: &Snapshot, oversubscribed: bool) -> Waiting {
    match snapshot.get(keys::WAIT_POLICY).as_str() {
        "spin" => Waiting::Spin,
        "yield" => Waiting::Yield,
        "sleep" => Waiting::SpinThenSleep(Duration::ZERO),
        _ if oversubscribed => Waiting::YieldThenSleep,
        _ => Waiting::SpinThenSleep(snapshot.get(keys::WAIT_SPIN)),
    }
}

/// The size hint of the world: what the program set in code, else the configuration's.
fn size_hint(settings: &Settings, snapshot: &Snapshot) -> Requested {
    let key = keys::LOW_LATENCY_SIZE_HINT;
    if let Some((_, Value::Bytes(bytes))) = settings.iter().rev().find(|(name, _)| name == key.name) {
        return Requested { bytes: to_usize(*bytes), source: "World::builder".to_string() };
    }
    let entry = snapshot.entries().iter().find(|entry| entry.key == key.name);
    let source = entry.map_or_else(String::new, |entry| entry.source.to_string());
    Requested { bytes: to_usize(snapshot.get(key)), source }
}

/// Whether the launcher wants to know what ranks have counted.
fn counts(snapshot: &Snapshot) -> bool {
    !snapshot.get(keys::REPORT_STATISTICS).is_empty()
}

/// A size from the snapshot; its range fits on every 64-bit machine.
fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

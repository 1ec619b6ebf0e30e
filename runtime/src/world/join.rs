//! Joining the world: with what the launcher hands over, or alone, a rank is built of its parts.

use super::{
    Lifeline, Settings, World,
    plan::Plan,
    settings::{allows, counts, direct_read, place, size_hint, to_usize, waiting},
};
use crate::{
    bootstrap::{
        messages::{Boot, FromRank, Hello, Host, Insight, JobKey, Release},
        node::{Devices, Placement},
        rank::{self, Control},
    },
    comm::{Communicator, Near, Shared},
    config::{Snapshot, keys},
    engine::{Engine, FIRST_FREE_TOKEN, Routes, Runtime},
    error::{Context, Error, Result},
    memory::{Activity, Segment},
    trace::{self, Clock, Recorder},
    transport::{
        faulty::{self, Faults},
        loopback::Loopback,
        shm::{Own, SharedMemory},
        tcp::{self, Tcp, addresses},
        verbs::{self, Verbs},
    },
};
use rustix::event::{EventfdFlags, epoll, eventfd};
use std::{
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

/// Where a launcher watches, the loss of a peer is reported only after this: the launcher knows the cause, ends the job
/// and reports the rank that failed first, not those that noticed.
const KEEP_BACK: Duration = Duration::from_secs(3);

/// Everything a rank is built of.
pub(crate) struct Joining {
    pub(crate) boot: Boot,
    pub(crate) plan: Plan,
    pub(crate) segment: Option<(Arc<Segment>, Vec<OwnedFd>)>,
    pub(crate) release: Release,
    pub(crate) lifeline: Lifeline,
    pub(crate) settings: Settings,
}

impl World {
    pub(super) fn from_launcher(settings: Settings) -> Result<Self> {
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
            choices: OnceLock::new(),
        });
        let communicator = Communicator::world(shared.clone(), rank, hint);
        // Threads have one clock; processes measure once they have joined.
        let clock = matches!(lifeline, Lifeline::Threads(_)).then_some(Clock { offset: 0, accuracy: 0 });
        let world = World { communicator, shared, lifeline, placement: boot.placement, clock };
        world.say_explanation()?;
        Ok(world)
    }
}

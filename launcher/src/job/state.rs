//! The state of one job: events in, actions out.
//!
//! Pure: no process, no socket, no clock (every call is told the time). All decisions of the launcher are made here:
//! when to connect, map, start, release and stop, and which failure is the one that counts.

mod ending;
mod events;
mod farewells;
mod input;
mod placing;
mod ranks;
mod report;
mod signals;
mod sweep;
#[cfg(test)]
mod tests;
mod tree;

use super::apps::{self, PlannedApp};
use crate::exit::{ExitCode, Failure};
use crate::hosts::HostSpec;
use crate::placement;
use farewells::Farewells;
pub use placing::Ending;
use ranks::Rank;
use report::Report;
use signals::Signals;
use spmd::bootstrap::messages::{Exit, FromAgent, Host, Start, StdinTarget, ToAgent};
use spmd::bootstrap::node::{Detail, Devices, Node, Placement};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};
pub use tree::Tree;

/// What the user asked for, resolved: all that the state machine needs to know.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The hosts in order.
    pub hosts: Vec<HostSpec>,
    /// How many ranks there are, and where they are to sit.
    pub placement: placement::Request,
    /// What placement must know of each host; `None`: nothing beyond the number of cores.
    pub detail: Option<Detail>,
    /// Topologies from files: these hosts are not contacted. Not for jobs that run.
    pub topologies: Vec<Option<Node>>,
    /// What is shown before and after the start.
    pub shown: crate::report::Options,
    /// Whether the job runs at all.
    pub ending: Ending,
    /// The hosts were named by the user: their slots are a limit, and two names for one machine are an error.
    pub hosts_named: bool,
    /// Several hosts may be one machine, because the user's own command starts the agents.
    pub same_machine_allowed: bool,
    /// The programs; they decide what `ranks` is.
    pub apps: Vec<PlannedApp>,
    /// What every agent is told; the fields about hosts and programs are filled in here.
    pub start: Start,
    /// The hash of `start.snapshot`.
    pub snapshot_hash: [u8; 32],
    /// How many connections are made at once.
    pub window: usize,
    /// How hosts are reached through each other; `None`: all directly.
    pub tree: Option<Tree>,
    /// How long until a host must have said hello.
    pub connect_timeout: Duration,
    /// How long until every rank must be in `World::init`, from the first one on; `None`: no limit.
    pub start_timeout: Option<Duration>,
    /// How long ranks have between SIGTERM and SIGKILL.
    pub grace: Duration,
    /// How long the whole job may take.
    pub timeout: Option<Duration>,
    /// A rank that fails does not end the others.
    pub keep_going: bool,
    /// Somebody types the standard input.
    pub interactive: bool,
}

/// What happens. Hosts are indices into [`Plan::hosts`].
#[derive(Debug)]
pub enum Event {
    /// A link says what it is doing.
    Stage(usize, String),
    /// An agent said something.
    Frame(usize, FromAgent),
    /// The link that ends now leads to a host where nobody has seen to it that nothing is left.
    Unguarded(usize),
    /// A link is down; why, unless that was expected.
    Ended(usize, Failure),
    /// The launcher got a signal.
    Signal(i32),
    /// The launcher's standard input: a piece, or empty at its end.
    Stdin(Vec<u8>),
    /// The launcher's standard output takes nothing any more: its reader is gone (`EPIPE`), or another reason.
    OutputBroken(rustix::io::Errno),
    /// Output cannot be kept as asked for.
    OutputFailed(String),
    /// So many bytes of a rank's output have been written.
    OutputTaken(u32, u32),
    /// Time has passed.
    Tick,
}

/// What is to be done.
#[derive(Clone, Debug)]
pub enum Action {
    /// Connect to a host.
    Connect(usize),
    /// Let the agent of the first host connect to the others.
    Reach(usize, Vec<usize>),
    /// Send a message to the agents of these hosts.
    Send(Vec<usize>, ToAgent),
    /// Give up the link to a host.
    Close(usize),
    /// Let the agent of the first host give up its connection to the second.
    Leave(usize, usize),
    /// The ranks are placed: their hosts, by rank.
    Placed(Vec<usize>),
    /// Tell the user.
    Notice(String),
    /// Show the user what was asked for.
    Report(String),
    /// The hosts as a picture.
    Picture(String),
    /// Show the user where every rank is: some lines.
    Show(String),
    /// Stop this process, as the terminal asked for; SIGCONT continues it.
    StopSelf,
    /// Read so many more bytes of standard input.
    ReadStdin(u32),
    /// Read no more of it.
    StopStdin,
    /// The job is over: see [`Job::outcome`].
    Finish,
}

/// What became of one rank; times since the beginning of the job.
#[derive(Clone, Debug)]
pub struct RankEnd<'a> {
    /// The name of its host.
    pub host: &'a str,
    /// Its process there, if it was started.
    pub pid: Option<u32>,
    /// How it ended, if its agent said so.
    pub exit: Option<Exit>,
    /// When it was started.
    pub started: Option<Duration>,
    /// When it ended.
    pub ended: Option<Duration>,
}

/// How long after a rank's ordinary exit code something more telling (a killed rank, a lost agent) may still take its
/// place as the reason: ranks that lose a peer fail too, and their report may arrive first.
const SETTLE: Duration = Duration::from_millis(100);
/// How long after the grace an agent may take to confirm that nothing is left.
const CONFIRM: Duration = Duration::from_millis(900);

#[derive(Clone, Debug, PartialEq)]
enum Link {
    /// Not needed, given up, or ended.
    Gone,
    /// Waits for its turn.
    Waiting,
    /// Until when the agent must have said hello.
    Connecting(Instant),
    /// The agent said hello.
    Ready,
    /// The agent has the job.
    Started,
    /// The agent has confirmed that nothing is left.
    Done,
    /// The agent and its guard were lost; until when another agent may take to end what they left.
    Sweeping(Instant),
}

#[derive(Clone, Debug)]
struct HostState {
    link: Link,
    /// The host through which it is reached; `None`: directly.
    parent: Option<usize>,
    stage: String,
    /// See [`Event::Unguarded`].
    unguarded: bool,
    /// From its hello.
    cores: u32,
    machine: String,
    /// 0: it has not said hello.
    agent_pid: u32,
    /// What it looks like, when that was asked for.
    node: Option<Box<Node>>,
}

impl HostState {
    /// Whether its agent has said hello and is connected.
    fn is_there(&self) -> bool {
        self.agent_pid != 0 && !matches!(self.link, Link::Gone | Link::Waiting)
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// Connecting to hosts.
    Connecting,
    /// Ranks run, or will in a moment.
    Running,
    /// A rank failed; until this time a more telling reason may come.
    Settling(Instant),
    /// Everything is being ended; agents that have not confirmed it by then are given up.
    Stopping(Instant),
    /// [`Action::Finish`] was given.
    Finished,
}

/// The state machine.
#[derive(Debug)]
pub struct Job {
    plan: Plan,
    hosts: Vec<HostState>,
    ranks: Vec<Rank>,
    placed: placement::Plan,
    /// How many ranks have been started.
    spawned: usize,
    phase: Phase,
    outcome: Option<Failure>,
    released: bool,
    first_hello: Option<Instant>,
    begun: Instant,
    interrupts: u32,
    strays: HashSet<(usize, String)>,
    signals: Signals,
    report: Option<Report>,
    /// The user was told that a host is not reached as planned.
    went_direct: bool,
    /// Ranks that failed while the others went on.
    failed: usize,
    farewells: Farewells,
    /// How many bytes of standard input have been asked for.
    input_asked: u64,
    actions: Vec<Action>,
}

impl Job {
    /// A job that has not begun.
    pub fn new(plan: Plan, now: Instant) -> Self {
        let host = HostState {
            link: Link::Gone,
            parent: None,
            stage: "waiting for its turn".to_string(),
            unguarded: false,
            cores: 0,
            machine: String::new(),
            agent_pid: 0,
            node: None,
        };
        let topologies = plan.topologies.clone();
        let mut job = Self {
            hosts: vec![host; plan.hosts.len()],
            plan,
            ranks: Vec::new(),
            placed: placement::Plan::default(),
            spawned: 0,
            phase: Phase::Connecting,
            outcome: None,
            released: false,
            first_hello: None,
            begun: now,
            interrupts: 0,
            strays: HashSet::new(),
            signals: Signals::default(),
            report: None,
            went_direct: false,
            failed: 0,
            farewells: Farewells::default(),
            input_asked: 0,
            actions: Vec::new(),
        };
        job.know(topologies);
        job
    }

    /// The first actions.
    pub fn begin(&mut self, now: Instant) -> Vec<Action> {
        if let Err(failure) = self.check_slots() {
            self.fail(now, failure);
            // Nothing runs, so that no event would come that ends the job.
            self.check_end();
            return std::mem::take(&mut self.actions);
        }
        let needed = self.needed();
        for (host, spec) in self.hosts.iter_mut().zip(&self.plan.hosts).take(needed) {
            if spec.slots != Some(0) && host.node.is_none() {
                host.link = Link::Waiting;
            }
        }
        self.plant();
        self.connect_next(now);
        if self.hosts.iter().any(|host| host.node.is_some()) {
            self.start_when_ready(now);
            self.check_end();
        }
        std::mem::take(&mut self.actions)
    }

    /// What follows from an event.
    pub fn handle(&mut self, now: Instant, event: Event) -> Vec<Action> {
        if self.phase != Phase::Finished {
            self.on_event(now, event);
            self.on_time(now);
            self.check_end();
        } else if matches!(event, Event::OutputBroken(_) | Event::Signal(libc::SIGINT | libc::SIGTERM | libc::SIGHUP)) {
            // The job is over, but what it wrote is not all written, or will not be: that is no success.
            self.on_event(now, event);
        }
        std::mem::take(&mut self.actions)
    }

    /// When [`Event::Tick`] is due, if nothing happens before.
    pub fn deadline(&self) -> Option<Instant> {
        if self.signals.is_stopped() || self.phase == Phase::Finished {
            return None;
        }
        let connecting = self.hosts.iter().filter_map(|h| match h.link {
            Link::Connecting(until) | Link::Sweeping(until) => Some(until),
            _ => None,
        });
        let phase = match self.phase {
            Phase::Settling(until) | Phase::Stopping(until) => Some(until),
            _ => None,
        };
        let report = self.report.as_ref().map(|report| report.until);
        let running =
            [self.start_deadline(), self.job_deadline(), report, self.signals.deadline(), self.farewells_due()];
        connecting.chain(phase).chain(running.into_iter().flatten()).min()
    }

    /// A host of the plan.
    pub fn spec(&self, host: usize) -> &HostSpec {
        &self.plan.hosts[host]
    }

    /// What became of every rank.
    pub fn ranks(&self) -> Vec<RankEnd<'_>> {
        let since = |time: Option<Instant>| Some(time?.saturating_duration_since(self.begun));
        let ranks = self.ranks.iter().map(|rank| RankEnd {
            host: self.host_name(rank.host),
            pid: Some(rank.pid).filter(|pid| *pid != 0),
            exit: rank.exit,
            started: since(rank.started),
            ended: since(rank.ended),
        });
        ranks.collect()
    }

    /// Why the job failed; `None` when every rank exited with 0.
    pub fn outcome(&self) -> Option<&Failure> {
        self.outcome.as_ref()
    }

    fn start_deadline(&self) -> Option<Instant> {
        let waiting = !self.released && self.phase == Phase::Running && !self.is_reported();
        self.first_hello.filter(|_| waiting)?.checked_add(self.plan.start_timeout?)
    }

    fn job_deadline(&self) -> Option<Instant> {
        let ending = matches!(self.phase, Phase::Stopping(_) | Phase::Finished) || self.is_reported();
        self.begun.checked_add(self.plan.timeout.filter(|_| !ending)?)
    }

    fn start_when_ready(&mut self, now: Instant) {
        if self.hosts.iter().all(|h| matches!(h.link, Link::Ready | Link::Gone)) {
            self.start(now);
        }
    }

    /// All hosts have said hello: map the ranks and tell the agents.
    fn start(&mut self, now: Instant) {
        if let Err(failure) = self.check_machines() {
            return self.fail(now, failure);
        }
        let seats = match self.place() {
            Ok(seats) => seats,
            Err(failure) => return self.fail(now, failure),
        };
        if self.plan.ending != Ending::Run {
            return self.only_show(now, seats);
        }
        let placed: Vec<usize> = seats.seats.iter().map(|seat| seat.host).collect();
        // Ranks know only the hosts that have ranks.
        let used: Vec<usize> = placed.iter().copied().collect::<BTreeSet<usize>>().into_iter().collect();
        let index: HashMap<usize, u32> = used.iter().copied().zip(0..).collect();
        let mut start = self.plan.start.clone();
        start.hosts = used
            .iter()
            .map(|h| Host { name: self.plan.hosts[*h].name.clone(), group: self.plan.hosts[*h].group.clone() })
            .collect::<Vec<_>>()
            .into();
        start.host_of = placed.iter().map(|host| index[host]).collect();
        let groups = start.hosts.iter().map(|host| host.group.as_deref());
        if let Err(failure) = crate::settings::check_levels(&start.snapshot, groups) {
            return self.fail(now, failure);
        }
        if self.plan.detail.is_some() {
            let chosen = seats.seats.iter().map(|seat| seat.placement.nic.as_ref());
            start.devices = Devices::of_ranks(chosen).into();
        }
        let mut placements: Vec<Vec<Placement>> = vec![Vec::new(); self.hosts.len()];
        if self.plan.detail.is_some() {
            seats.seats.iter().for_each(|seat| placements[seat.host].push(seat.placement.clone()));
        }
        let size = u32::try_from(placed.len()).unwrap_or(u32::MAX);
        if let StdinTarget::Rank(rank) = start.stdin
            && rank >= size
            && rank != 0
        {
            let text = format!("--stdin {rank}: there is no such rank, the last one is {}", size.saturating_sub(1));
            return self.fail(now, Failure::new(ExitCode::Usage, text));
        }
        start.prompts = match start.stdin {
            _ if size == 1 => Some(0),
            StdinTarget::Rank(rank) if self.plan.interactive => Some(rank),
            _ => None,
        };
        start.survives = self.plan.keep_going;
        self.actions.push(Action::Placed(placed.clone()));
        let apps = apps::of_ranks(&self.plan.apps, placed.len());
        for host in &used {
            let here = placed.iter().zip(&apps).filter(|(placed, _)| *placed == host);
            (start.apps, start.app_of) = apps::slice(&self.plan.apps, here.map(|(_, app)| *app));
            let own = Start {
                host: index[host],
                oversubscribed: seats.oversubscribed[*host],
                placements: std::mem::take(&mut placements[*host]),
                ..start.clone()
            };
            self.send(*host, ToAgent::Start(Box::new(own)));
        }
        self.ranks = placed.iter().map(|host| Rank::new(*host)).collect();
        self.show_plan(seats);
        for host in index.into_keys() {
            self.hosts[host].link = Link::Started;
        }
        self.release_idle();
        self.phase = Phase::Running;
    }

    fn send(&mut self, host: usize, message: ToAgent) {
        self.actions.push(Action::Send(vec![host], message));
    }

    /// The same message for several agents; a tree carries it once over each connection.
    fn send_all(&mut self, hosts: Vec<usize>, message: ToAgent) {
        if !hosts.is_empty() {
            self.actions.push(Action::Send(hosts, message));
        }
    }

    fn host_name(&self, host: usize) -> &str {
        &self.plan.hosts[host].name
    }
}

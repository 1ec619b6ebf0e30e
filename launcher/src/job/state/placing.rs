//! Where ranks sit: hosts are asked what they look like, the plan is made, and what the kernel made of it is compared.

use super::{Action, HostState, Job, Link};
use crate::exit::{ExitCode, Failure};
use crate::hosts::HostSpec;
use crate::placement::{self, MapBy};
use crate::report::{self, Topic};
use spmd::bootstrap::messages::ToAgent;
use spmd::bootstrap::node::{Node, cpu_list};
use std::collections::HashMap;
use std::time::Instant;

/// What a job is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ending {
    /// To run.
    #[default]
    Run,
    /// To show where ranks would sit.
    Plan,
    /// To show what hosts look like.
    Topology,
}

impl Job {
    /// The hosts as placement sees them; those that are not there have no slots.
    fn places<'a>(&'a self) -> Vec<placement::Host<'a>> {
        let counted = !matches!(self.plan.placement.map, MapBy::PerResource(..));
        let slots = |spec: &HostSpec, state: &HostState| match self.plan.placement.ranks {
            // Without hosts this machine takes them all.
            Some(ranks) if !self.plan.hosts_named && counted => Some(ranks),
            _ if state.link == Link::Gone && state.node.is_none() => Some(0),
            _ => spec.slots,
        };
        let hosts = self.plan.hosts.iter().zip(&self.hosts);
        let place = |(spec, state): (&'a HostSpec, &'a HostState)| placement::Host {
            name: &spec.name,
            place: &spec.place,
            slots: slots(spec, state),
            cores: state.cores,
            machine: kernel(&state.machine),
            node: state.node.as_deref(),
        };
        hosts.map(place).collect()
    }

    /// Whether the slots that the user gave are enough, when all hosts have some: nobody is contacted in vain.
    pub(super) fn check_slots(&self) -> Result<(), Failure> {
        let simple = matches!(self.plan.placement.map, MapBy::Spread | MapBy::Slot | MapBy::Node);
        if simple && self.plan.hosts_named && self.plan.hosts.iter().all(|host| host.slots.is_some()) {
            let hosts = self.plan.hosts.iter().map(|spec| placement::Host {
                name: &spec.name,
                place: &spec.place,
                slots: spec.slots,
                ..placement::Host::default()
            });
            placement::check_slots(&hosts.collect::<Vec<_>>(), &self.plan.placement)?;
        }
        Ok(())
    }

    /// How many hosts, in order, may be needed.
    pub(super) fn needed(&self) -> usize {
        let slots: Vec<Option<u32>> = self.plan.hosts.iter().map(|host| host.slots).collect();
        match self.plan.placement.map {
            MapBy::Node | MapBy::PerResource(..) | MapBy::Rankfile(_) => slots.len(),
            _ => crate::map::needed(&slots, self.plan.placement.ranks),
        }
    }

    /// A host said hello: it is ready, unless it must still say what it looks like.
    pub(super) fn greeted(&mut self, host: usize) {
        match self.plan.detail {
            Some(detail) => {
                self.hosts[host].stage = "reading its topology".to_string();
                self.send(host, ToAgent::Describe(detail));
            }
            None => self.hosts[host].link = Link::Ready,
        }
    }

    /// A host said what it looks like. Without that nothing can be bound there, but the job can run.
    pub(super) fn described(&mut self, now: Instant, host: usize, node: Result<Box<Node>, String>) {
        let state = &mut self.hosts[host];
        if !matches!(state.link, Link::Connecting(_)) {
            return;
        }
        state.link = Link::Ready;
        match node {
            Ok(node) => state.node = Some(node),
            Err(reason) => {
                let name = self.host_name(host).to_string();
                self.actions.push(Action::Notice(format!("host {name}: ranks are not bound there: {reason}")));
            }
        }
        self.connect_next(now);
        self.start_when_ready(now);
    }

    /// Two names for one machine would use its cores twice.
    pub(super) fn check_machines(&self) -> Result<(), Failure> {
        if self.plan.same_machine_allowed {
            return Ok(());
        }
        let mut seen: HashMap<&str, usize> = HashMap::new();
        for (index, host) in self.hosts.iter().enumerate().filter(|(_, h)| h.link == Link::Ready) {
            if let Some(first) = seen.insert(&host.machine, index) {
                let (a, b) = (&self.plan.hosts[first], &self.plan.hosts[index]);
                return Err(Failure::new(
                    ExitCode::Data,
                    format!(
                        "{} ({}) and {} ({}) are the same machine: name it once, with all its slots",
                        a.name, a.place, b.name, b.place
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Decides where every rank sits.
    pub(super) fn place(&mut self) -> Result<placement::Plan, Failure> {
        if self.plan.ending == Ending::Topology {
            return Ok(placement::Plan::default());
        }
        placement::plan(&self.places(), &self.plan.placement)
    }

    /// Shows what was asked for, and what the user should know.
    pub(super) fn show_plan(&mut self, seats: placement::Plan) {
        self.actions.extend(seats.warnings.iter().cloned().map(Action::Notice));
        let topics = &self.plan.shown.topics;
        self.placed = seats;
        if !topics.is_empty() {
            let text = report::render(&self.view(None), &self.plan.shown);
            self.actions.push(Action::Report(text));
        }
    }

    fn view<'a>(&'a self, kernel: Option<&'a [&'a str]>) -> report::View<'a> {
        report::View { hosts: self.places(), plan: &self.placed, snapshot: &self.plan.start.snapshot, kernel }
    }

    /// A rank runs: when all do, the kernel's view of them is compared with the plan.
    pub(super) fn spawned(&mut self, rank: usize, pid: u32, cpus: String) {
        self.ranks[rank].pid = pid;
        self.ranks[rank].cpus = cpus;
        self.spawned += 1;
        if self.spawned != self.ranks.len() {
            return;
        }
        let kernel: Vec<&str> = self.ranks.iter().map(|rank| rank.cpus.as_str()).collect();
        if self.plan.shown.topics.contains(&Topic::Bindings) {
            let options = report::Options { topics: vec![Topic::Bindings], ..self.plan.shown.clone() };
            let text = report::render(&self.view(Some(&kernel)), &options);
            self.actions.push(Action::Report(text));
        }
        let differs = |(seat, is): &(&placement::Seat, &&str)| {
            let planned = &seat.placement.cpus;
            !planned.is_empty() && !is.is_empty() && cpu_list(planned) != **is
        };
        let different: Vec<_> =
            (0..).zip(self.placed.seats.iter().zip(&kernel)).filter(|(_, pair)| differs(pair)).collect();
        if let Some((first, (seat, is))) = different.first() {
            let more = match different.len() - 1 {
                0 => String::new(),
                more => format!("; so do {more} more ranks"),
            };
            let text = format!(
                "rank {first} on host {} was to run on hardware threads {}, but the kernel lets it run on {is}{more}",
                self.host_name(seat.host),
                cpu_list(&seat.placement.cpus)
            );
            self.actions.push(Action::Notice(text));
        }
    }

    /// Topologies that came from files stand for hosts that are not contacted.
    pub(super) fn know(&mut self, nodes: Vec<Option<Node>>) {
        for (at, (state, node)) in self.hosts.iter_mut().zip(nodes).enumerate() {
            if let Some(node) = node {
                state.machine = format!("file-{at}");
                let allowed = node.cores.iter().filter(|core| core.threads.iter().any(|thread| thread.allowed)).count();
                state.cores = u32::try_from(allowed).unwrap_or(u32::MAX);
                state.node = Some(Box::new(node));
            }
        }
    }

    /// Shows the plan and ends, without starting anything.
    pub(super) fn only_show(&mut self, now: Instant, plan: placement::Plan) {
        self.show_plan(plan);
        if self.plan.shown.svg {
            let picture = crate::topo::svg::draw(&self.view(None));
            self.actions.push(Action::Picture(picture));
        }
        self.stop(now, libc::SIGTERM);
    }
}

/// The kernel that runs a machine, out of the words that identify it: what shares a kernel shares its processors, also
/// with other networks and process numbers.
fn kernel(machine: &str) -> &str {
    match *machine.split(' ').collect::<Vec<_>>() {
        [boot, _network, _processes] if !boot.is_empty() => boot,
        _ => machine,
    }
}

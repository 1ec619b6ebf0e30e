//! Carries out what the state machine decides: links, signals, input, output, time.
//!
//! One thread runs the loop; all others only send it events.

use super::insight::Collector;
use super::lines::Chunk;
use super::preflight;
use super::prepare::{self, internal};
use super::signals;
use super::sink::{Sink, SinkEvent};
use super::state::{Action, Ending, Event, Job};
use super::status::{Destination, Status};
use super::stdin::Stdin;
use super::watch::Watch;
use crate::cli::Run;
use crate::connect::{self, How, Link, LinkEvent};
use crate::exit::{ExitCode, Failure};
use crate::report::Format;
use crate::{progress, settings, sys};
use rustix::process::{Resource, Signal, getpid, getrlimit, kill_process};
use spmd::bootstrap::frame;
use spmd::bootstrap::messages::{FromAgent, ToAgent};
use spmd::bootstrap::onward::FromBelow;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How long links that were closed may take to end: a local agent needs as long as its ranks.
const LINKS_END: Duration = Duration::from_millis(2500);

/// What reaches the loop.
enum Message {
    Job(Event),
    /// What came by way of another host's agent.
    Below(usize, Event),
    Continued,
    Drained,
}

/// Runs a job to its end.
///
/// # Errors
/// The one failure that counts.
pub fn run(run: &Run) -> Result<(), Failure> {
    sys::survive_file_limits();
    let mut status = Status::begin();
    let Some(file) = &run.options.status_file else { return supervise(run, &mut status) };
    let shown = file.display();
    // Before anything runs: a job of hours whose end nobody learns of is worth nothing.
    let destination = Destination::find(file).map_err(|error| {
        Failure::new(
            ExitCode::Directory,
            format!("--status-file {shown} cannot be written: {error}; nothing was started"),
        )
    })?;
    let result = supervise(run, &mut status);
    match status.write(&destination, result.as_ref().err()) {
        Ok(()) => result,
        // The job's own failure is worth more.
        Err(error) => result.and(Err(internal(&format!("--status-file {shown}: {error}")))),
    }
}

fn supervise(run: &Run, status: &mut Status) -> Result<(), Failure> {
    let begun = Instant::now();
    let (sender, receiver) = channel();
    let open_files = sys::raise_open_files();
    let settings = settings::load(run.options.set.config.as_deref(), run.settings.clone())?;
    preflight::not_a_task_of_many(|name| std::env::var(name).ok())?;
    let (mut plan, missing) = prepare::plan(run, &settings)?;
    let how = prepare::how(&settings, open_files, &plan)?;
    plan.tree = prepare::tree(&settings, &how, &plan);
    let style = prepare::style(&run.options, plan.start.output_window)?;
    let insight = Collector::begin(&settings.snapshot)?;
    // Not before: while files are read, which may take for ever, a signal must end us as it ends any program.
    let signalled = sender.clone();
    signals::watch(move |signal| {
        let message = if signal == libc::SIGCONT { Message::Continued } else { Message::Job(Event::Signal(signal)) };
        signalled.send(message).is_ok()
    })
    .map_err(|e| internal(&format!("signals: {e}")))?;
    let report = sender.clone();
    let needed = prepare::needed(&plan);
    let direct = plan.tree.as_ref().map_or(needed, |tree| tree.radix.min(needed));
    preflight::open_files(direct, getrlimit(Resource::Nofile).current)?;
    let sink = Sink::start(style, move |event| {
        let _ = report.send(match event {
            SinkEvent::Broken(why) => Message::Job(Event::OutputBroken(why)),
            SinkEvent::Failed(reason) => Message::Job(Event::OutputFailed(reason)),
            SinkEvent::Taken { rank, bytes } => Message::Job(Event::OutputTaken(rank, bytes)),
            SinkEvent::Drained => Message::Drained,
        });
    })
    .map_err(|e| internal(&format!("output: {e}")))?;
    if rustix::process::geteuid().is_root() && !run.options.allow_run_as_root && progress::is_possible() {
        sink.notice("ranks run as root: what they break is the machine's (--allow-run-as-root: say nothing)");
    }
    for name in missing {
        sink.notice(&format!("-x {name}: this variable is not set here, so it is not set for the ranks either"));
    }
    let environment: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    preflight::notes(&environment, plan.hosts_named).iter().for_each(|note| sink.notice(note));
    status.job = Some(plan.start.job.clone());
    let shows = plan.ending != Ending::Run;
    let job = Job::new(plan, begun);
    let picture = run.options.placement.topo.clone().and_then(|topo| topo.svg);
    let supervisor = Supervisor {
        job,
        how,
        sink,
        stdin: Arc::default(),
        links: HashMap::new(),
        sender,
        watch: Watch::new(begun),
        progress: progress::is_possible().then(|| begun + progress::PATIENCE),
        report_phases: run.options.phases.then_some(run.options.placement.report_format),
        insight,
        shows,
        picture,
        failure: None,
    };
    supervisor.run(&receiver, status)
}

struct Supervisor {
    job: Job,
    how: How,
    sink: Arc<Sink>,
    stdin: Arc<Stdin>,
    links: HashMap<usize, Link>,
    sender: Sender<Message>,
    watch: Watch,
    /// When the progress line is due; none: not any more, or there is no terminal.
    progress: Option<Instant>,
    report_phases: Option<Format>,
    insight: Collector,
    /// Reports are what was asked for, and belong on standard output.
    shows: bool,
    /// Where the picture goes.
    picture: Option<PathBuf>,
    /// What could not be written.
    failure: Option<Failure>,
}

impl Supervisor {
    fn run(mut self, messages: &Receiver<Message>, status: &mut Status) -> Result<(), Failure> {
        let mut actions = self.job.begin(Instant::now());
        while !self.carry_out(actions) {
            let due = self.job.deadline().into_iter().chain(self.progress.filter(|_| !self.watch.is_over())).min();
            let message = match due {
                None => messages.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(until) => messages.recv_timeout(until.saturating_duration_since(Instant::now())),
            };
            let event = match message {
                Ok(Message::Job(event)) => {
                    if let Event::Ended(host, _) = &event {
                        self.links.remove(host);
                    }
                    event
                }
                // What is left of a way that was given up means nothing any more.
                Ok(Message::Below(host, _)) if !self.job.is_through(host) => Event::Tick,
                Ok(Message::Below(_, event)) => event,
                Ok(Message::Continued) => {
                    self.stdin.continued();
                    Event::Signal(libc::SIGCONT)
                }
                Ok(Message::Drained) | Err(_) => Event::Tick,
            };
            let event = self.insight.pick(event);
            let now = Instant::now();
            self.watch.event(now, &event);
            self.show_progress(now);
            actions = self.job.handle(now, event);
        }
        self.end(messages);
        status.ranks(&self.job);
        match self.job.outcome().or(self.failure.as_ref()) {
            None => Ok(()),
            Some(failure) => Err(failure.clone()),
        }
    }

    /// `true`: the job is over.
    fn carry_out(&mut self, actions: Vec<Action>) -> bool {
        let mut over = false;
        for action in actions {
            if !matches!(action, Action::Send(..)) {
                self.watch.action(Instant::now(), &action, 0);
            }
            match action {
                Action::Connect(host) => self.connect(host),
                Action::Reach(parent, hosts) => {
                    let named = hosts.iter().map(|host| (number(*host), self.job.spec(*host)));
                    let reach = self.how.reach(named);
                    self.send(&[parent], ToAgent::Reach(Box::new(reach)));
                }
                Action::Send(hosts, message) => self.send(&hosts, message),
                Action::Close(host) => {
                    if let Some(link) = self.links.get(&host) {
                        link.close();
                    }
                }
                Action::Leave(parent, host) => self.send(&[parent], ToAgent::Leave { host: number(host) }),
                Action::Placed(hosts) => {
                    self.sink.ranks(hosts.iter().map(|host| self.job.spec(*host).name.clone()).collect());
                }
                Action::Notice(text) => self.sink.notice(&text),
                Action::Report(text) if self.shows => self.failure = crate::print(&text).err(),
                Action::Report(text) => self.sink.show(text),
                Action::Picture(svg) => {
                    if let Some(path) = &self.picture
                        && let Err(error) = std::fs::write(path, svg)
                    {
                        let text = format!("the picture {} cannot be written: {error}", path.display());
                        self.failure = Some(Failure::new(ExitCode::Directory, text));
                    }
                }
                Action::Show(text) => self.sink.show(text),
                Action::StopSelf => {
                    // Takes effect at once, for every thread.
                    let _ = kill_process(getpid(), Signal::STOP);
                }
                Action::ReadStdin(bytes) => {
                    let sender = self.sender.clone();
                    let deliver = move |data| drop(sender.send(Message::Job(Event::Stdin(data))));
                    if let Err(error) = self.stdin.allow(bytes, deliver) {
                        self.sink.notice(&format!("standard input cannot be read: {error}"));
                    }
                }
                Action::StopStdin => self.stdin.stop(),
                Action::Finish => over = true,
            }
        }
        over
    }

    fn show_progress(&mut self, now: Instant) {
        let Some(due) = self.progress else { return };
        if self.watch.is_over() {
            progress::hide();
        } else if due <= now {
            let shown = progress::show(&self.watch.line(|host| &self.job.spec(host).name));
            self.progress = shown.then(|| now + progress::EVERY);
        }
    }

    /// Sends a message to the agents of these hosts: to those that are connected directly as it is, once over each
    /// connection for all others.
    fn send(&mut self, hosts: &[usize], message: ToAgent) {
        let body = match frame::encode(&message) {
            Ok(body) => body,
            Err(error) => {
                return hosts.iter().for_each(|host| self.report(Event::Ended(*host, internal(&error.to_string()))));
            }
        };
        let mut further: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        let mut frames = Vec::new();
        for host in hosts {
            match self.job.root(*host) {
                root if root == *host => frames.push((root, frame::framed(&body))),
                root => further.entry(root).or_default().push(number(*host)),
            }
        }
        let pass = |(root, hosts)| (root, frame::to_frame(&ToAgent::Below { hosts, message: body.clone() }));
        frames.extend(further.into_iter().map(pass));
        let mut bytes = 0;
        for (host, frame) in frames {
            match (self.links.get(&host), frame) {
                (Some(link), Ok(frame)) => {
                    bytes += frame.len();
                    link.send(frame);
                }
                (None, Ok(_)) => {}
                (_, Err(error)) => self.report(Event::Ended(host, internal(&error.to_string()))),
            }
        }
        self.watch.action(Instant::now(), &Action::Send(hosts.to_vec(), message), bytes);
    }

    fn connect(&mut self, host: usize) {
        let (sender, sink) = (self.sender.clone(), Arc::clone(&self.sink));
        let deliver = move |event| {
            if let Some(message) = message(host, event, &sink) {
                let _ = sender.send(message);
            }
        };
        match connect::open(self.job.spec(host), &self.how, deliver) {
            Ok(link) => drop(self.links.insert(host, link)),
            Err(error) => {
                let name = &self.job.spec(host).name;
                let failure = internal(&format!("host {name}: no thread can be started for its connection: {error}"));
                self.report(Event::Ended(host, failure));
            }
        }
    }

    fn report(&self, event: Event) {
        let _ = self.sender.send(Message::Job(event));
    }

    /// The job is decided: links end, then what they said is written out. Both may be cut short by a signal; links also
    /// by time.
    fn end(&mut self, messages: &Receiver<Message>) {
        self.links.values().for_each(Link::close);
        let until = Instant::now() + LINKS_END;
        while self.links.values().any(|link| !link.can_be_left()) {
            match messages.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Message::Job(Event::Ended(host, _))) => drop(self.links.remove(&host)),
                Ok(Message::Job(Event::Signal(_))) | Err(_) => break,
                Ok(Message::Job(event @ Event::Frame(..)) | Message::Below(_, event)) => drop(self.insight.pick(event)),
                Ok(Message::Job(event @ Event::OutputBroken(_))) => drop(self.job.handle(Instant::now(), event)),
                Ok(_) => {}
            }
        }
        progress::hide();
        match self.report_phases {
            Some(Format::Text) => self.sink.notice(&self.watch.report(Instant::now())),
            Some(Format::Json) => self.sink.show(format!("{}\n", self.watch.report_json(Instant::now()))),
            None => {}
        }
        match self.insight.end(self.job.ranks().len()) {
            Ok(text) if text.is_empty() => {}
            Ok(text) => self.sink.show(text),
            Err(failure) => self.failure = self.failure.take().or(Some(failure)),
        }
        self.sink.close(self.job.outcome().is_some());
        while let Ok(message) = messages.recv() {
            match message {
                Message::Drained => break,
                Message::Job(event @ Event::Signal(libc::SIGINT | libc::SIGTERM | libc::SIGHUP)) => {
                    self.job.handle(Instant::now(), event);
                    break;
                }
                Message::Job(event @ Event::OutputBroken(_)) => drop(self.job.handle(Instant::now(), event)),
                _ => {}
            }
        }
    }
}

/// What a link's event means for the loop; output of ranks goes to the sink at once.
fn message(host: usize, event: LinkEvent, sink: &Sink) -> Option<Message> {
    Some(match event {
        LinkEvent::Frame(FromAgent::Output { rank, stream, at, cut, data }) => {
            sink.write(Chunk { rank: Some(rank), stream, at, cut, data });
            return None;
        }
        LinkEvent::Frame(FromAgent::Below { host, said }) => {
            let host = host as usize;
            let event = match said {
                FromBelow::Stage(stage) => LinkEvent::Stage(stage),
                FromBelow::Unguarded => LinkEvent::Unguarded,
                FromBelow::Ended(reason) => LinkEvent::Ended(internal(&reason)),
                FromBelow::Message(bytes) => match frame::decode(&bytes) {
                    // One within another would never end.
                    Ok(FromAgent::Below { .. }) => return None,
                    Ok(frame) => LinkEvent::Frame(frame),
                    Err(error) => LinkEvent::Ended(internal(&error.to_string())),
                },
            };
            match message(host, event, sink)? {
                Message::Job(event) => Message::Below(host, event),
                other => other,
            }
        }
        LinkEvent::Stage(stage) => Message::Job(Event::Stage(host, stage)),
        LinkEvent::Frame(frame) => Message::Job(Event::Frame(host, frame)),
        LinkEvent::Unguarded => Message::Job(Event::Unguarded(host)),
        LinkEvent::Ended(failure) => Message::Job(Event::Ended(host, failure)),
    })
}

/// A host's number as agents know it.
fn number(host: usize) -> u32 {
    u32::try_from(host).unwrap_or(u32::MAX)
}

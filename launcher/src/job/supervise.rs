//! Carries out what the state machine decides: links, signals, input, output, time.
//!
//! One thread runs the loop; all others only send it events.

use super::apps;
use super::preflight;
use super::sink::{self, Sink, SinkEvent, Style};
use super::state::{Action, Ending, Event, Job, Plan};
use super::status::{Destination, Status};
use super::stdin::Stdin;
use super::watch::Watch;
use super::wishes::{self, Wishes};
use crate::agent::descendants;
use crate::cli::{self, OnFailure, Run};
use crate::connect::{self, How, Link, LinkEvent, SshClient};
use crate::exit::{ExitCode, Failure};
use crate::hosts::{self, HostSpec};
use crate::map;
use crate::report::Format;
use crate::settings::{self, Settings};
use crate::{progress, sys};
use rustix::process::{Resource, Signal, getpid, getrlimit, kill_process};
use spmd::bootstrap::frame;
use spmd::bootstrap::messages::{JobKey, Start, StdinTarget};
use spmd::config::keys;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How long links that were closed may take to end: a local agent needs as long as its ranks.
const LINKS_END: Duration = Duration::from_millis(2500);

/// What reaches the loop.
enum Message {
    Job(Event),
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
    let settings = settings::load(run.options.config.as_deref(), run.settings.clone())?;
    preflight::not_a_task_of_many(|name| std::env::var(name).ok())?;
    let (plan, missing) = plan(run, &settings)?;
    let how = how(&settings, open_files, &plan)?;
    let style = style(&run.options, plan.start.output_window)?;
    // Not before: while files are read, which may take for ever, a signal must end us as it ends any program.
    watch_signals(sender.clone()).map_err(|e| internal(&format!("signals: {e}")))?;
    let report = sender.clone();
    let slots: Vec<_> = plan.hosts.iter().map(|host| host.slots).collect();
    preflight::open_files(map::needed(&slots, plan.placement.ranks), getrlimit(Resource::Nofile).current)?;
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
        shows,
        picture,
        failure: None,
    };
    supervisor.run(&receiver, status)
}

fn internal(message: &str) -> Failure {
    Failure::new(ExitCode::Internal, message)
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
                Ok(Message::Continued) => {
                    self.stdin.continued();
                    Event::Signal(libc::SIGCONT)
                }
                Ok(Message::Drained) | Err(_) => Event::Tick,
            };
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
                Action::Send(host, message) => {
                    if let Some(link) = self.links.get(&host) {
                        match frame::to_frame(&message) {
                            Ok(bytes) => {
                                self.watch.action(Instant::now(), &Action::Send(host, message), bytes.len());
                                link.send(bytes);
                            }
                            Err(error) => self.report(Event::Ended(host, internal(&error.to_string()))),
                        }
                    }
                }
                Action::Close(host) => {
                    if let Some(link) = self.links.get(&host) {
                        link.close();
                    }
                }
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
                        self.failure = Some(Failure::new(ExitCode::Data, text));
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

    fn connect(&mut self, host: usize) {
        let sender = self.sender.clone();
        let deliver = move |event| {
            let event = match event {
                LinkEvent::Stage(stage) => Event::Stage(host, stage),
                LinkEvent::Frame(frame) => Event::Frame(host, frame),
                LinkEvent::Ended(failure) => Event::Ended(host, failure),
            };
            let _ = sender.send(Message::Job(event));
        };
        match connect::open(self.job.spec(host), &self.how, Arc::clone(&self.sink), deliver) {
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
        while !self.links.is_empty() {
            match messages.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(Message::Job(Event::Ended(host, _))) => drop(self.links.remove(&host)),
                Ok(Message::Job(Event::Signal(_))) | Err(_) => break,
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
        if let Some(job) = self.job.lost_agent() {
            descendants::end_job(job);
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

fn watch_signals(sender: Sender<Message>) -> std::io::Result<()> {
    let watched = [
        libc::SIGINT,
        libc::SIGTERM,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGUSR1,
        libc::SIGUSR2,
        libc::SIGTSTP,
        libc::SIGCONT,
        libc::SIGWINCH,
    ];
    // What rsrun was started to ignore stays ignored: `nohup rsrun`, or `rsrun &` in a shell without job control.
    let mut signals =
        signal_hook::iterator::Signals::new(watched.into_iter().filter(|signal| !sys::is_ignored(*signal)))?;
    std::thread::Builder::new().name("signals".to_string()).spawn(move || {
        for signal in signals.forever() {
            let message =
                if signal == libc::SIGCONT { Message::Continued } else { Message::Job(Event::Signal(signal)) };
            if sender.send(message).is_err() {
                return;
            }
        }
    })?;
    Ok(())
}

/// The plan of the job, and the names of `-x` variables that are not set here.
fn plan(run: &Run, settings: &Settings) -> Result<(Plan, Vec<String>), Failure> {
    let options = &run.options;
    let snapshot = &settings.snapshot;
    let mut hosts = match (&options.hostfile, options.host.as_slice()) {
        (Some(file), _) => hosts::file::read(file).map_err(|e| Failure::new(ExitCode::Data, e.to_string()))?,
        (None, []) => vec![HostSpec::this_machine()],
        (None, lists) => hosts::list::parse(lists).map_err(|e| Failure::new(ExitCode::Usage, e))?,
    };
    let (apps, missing) = apps::plan(&run.apps, run.ranks())?;
    let Wishes { request, detail, topologies, report, ending } = wishes::understand(run, &mut hosts)?;
    let key: [u8; 32] = crate::random(32).try_into().map_err(|_| internal("a key has 32 bytes"))?;
    let start = Start {
        job: crate::random_hex(8),
        key: JobKey(key),
        snapshot: snapshot.clone(),
        host_of: Vec::new(),
        hosts: Arc::default(),
        host: 0,
        apps: Vec::new(),
        app_of: Vec::new(),
        files_read: settings.files_read.clone(),
        variables_read: settings.variables_read.clone(),
        oversubscribed: false,
        placements: Vec::new(),
        stdin: options.stdin,
        prompts: None,
        output_window: output_window(run.ranks()),
        survives: false,
    };
    let plan = Plan {
        hosts_named: !hosts.iter().all(HostSpec::is_default),
        hosts,
        apps,
        placement: request,
        detail,
        topologies,
        shown: report,
        ending,
        same_machine_allowed: !snapshot.get(keys::LAUNCH_AGENT).is_empty(),
        snapshot_hash: snapshot.hash(),
        start,
        window: usize::try_from(snapshot.get(keys::LAUNCH_WINDOW)).unwrap_or(usize::MAX),
        connect_timeout: snapshot.get(keys::LAUNCH_CONNECT_TIMEOUT),
        start_timeout: Some(snapshot.get(keys::LAUNCH_START_TIMEOUT)).filter(|time| !time.is_zero()),
        grace: snapshot.get(keys::LAUNCH_GRACE),
        timeout: options.timeout,
        keep_going: options.on_failure == OnFailure::Continue,
        interactive: rustix::termios::isatty(rustix::stdio::stdin()),
    };
    Ok((plan, missing))
}

/// How many bytes of one rank's output may be under way. All ranks together: not much more than 16 MiB.
fn output_window(ranks: Option<u32>) -> u32 {
    ((16 << 20) / ranks.unwrap_or(64).max(1)).clamp(16 << 10, 256 << 10)
}

fn style(options: &cli::Options, window: u32) -> Result<Style, Failure> {
    let directory = options.output_dir.clone();
    if let Some(directory) = &directory {
        sink::prepare(directory, options.output_overwrite).map_err(|reason| {
            Failure::new(ExitCode::Directory, format!("--output-dir {}: {reason}", directory.display()))
        })?;
    }
    let tag = options.tag.unwrap_or_default();
    Ok(Style { tag, timestamp: options.timestamp, directory, copy: options.tee, window })
}

fn how(settings: &Settings, open_files: Option<u64>, plan: &Plan) -> Result<How, Failure> {
    let snapshot = &settings.snapshot;
    // One rank on this machine reads our input itself, as if there was no launcher. Not from a terminal: that gives its
    // input to one group of processes only, and ours it is that gets ^C.
    let direct = matches!(plan.start.stdin, StdinTarget::Rank(_)) && !plan.interactive;
    let stdin = if direct { rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).ok() } else { None };
    let executable: PathBuf =
        std::env::current_exe().map_err(|e| internal(&format!("the path of rsrun itself cannot be found: {e}")))?;
    Ok(How {
        agent_command: Some(snapshot.get(keys::LAUNCH_AGENT)).filter(|command| !command.is_empty()),
        ssh: match snapshot.get(keys::LAUNCH_SSH).as_str() {
            "builtin" => SshClient::Builtin,
            "command" => SshClient::Command,
            _ => SshClient::Auto,
        },
        timeout: snapshot.get(keys::LAUNCH_CONNECT_TIMEOUT),
        executable,
        stdin: stdin.map(Arc::new),
        open_files,
        own_hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
    })
}

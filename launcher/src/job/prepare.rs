//! What the command line and the settings mean for a job, before anything is started.
//!
//! Reads hostfiles and looks at this machine; connects to nobody and decides nothing that can change later.

use super::apps;
use super::sink::{self, Style};
use super::state::{Plan, Tree};
use super::wishes::{self, Wishes};
use crate::cli::{self, OnFailure, Run};
use crate::connect::{How, SshClient};
use crate::exit::{ExitCode, Failure};
use crate::hosts::{self, HostSpec};
use crate::map;
use crate::settings::Settings;
use spmd::bootstrap::messages::{JobKey, Start, StdinTarget};
use spmd::config::keys;
use std::path::PathBuf;
use std::sync::Arc;

/// Up to so many hosts `launch.tree=auto` connects to all of them directly: that needs no keys on other hosts.
const FLAT_UP_TO: usize = 512;

pub(super) fn internal(message: &str) -> Failure {
    Failure::new(ExitCode::Internal, message)
}

/// The plan of the job, and the names of `-x` variables that are not set here.
pub(super) fn plan(run: &Run, settings: &Settings) -> Result<(Plan, Vec<String>), Failure> {
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
        devices: Arc::default(),
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
        tree: None,
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

pub(super) fn style(options: &cli::Options, window: u32) -> Result<Style, Failure> {
    let directory = options.output_dir.clone();
    if let Some(directory) = &directory {
        sink::prepare(directory, options.output_overwrite).map_err(|reason| {
            Failure::new(ExitCode::Directory, format!("--output-dir {}: {reason}", directory.display()))
        })?;
    }
    let tag = options.tag.unwrap_or_default();
    Ok(Style { tag, timestamp: options.timestamp, directory, copy: options.tee, window })
}

/// How many of the hosts, in order, may be contacted.
pub(super) fn needed(plan: &Plan) -> usize {
    let slots: Vec<_> = plan.hosts.iter().map(|host| host.slots).collect();
    map::needed(&slots, plan.placement.ranks)
}

/// Whether hosts are reached through each other, and how.
pub(super) fn tree(settings: &Settings, how: &How, plan: &Plan) -> Option<Tree> {
    let wanted = match settings.snapshot.get(keys::LAUNCH_TREE).as_str() {
        "on" => true,
        "off" => false,
        _ => needed(plan) > FLAT_UP_TO,
    };
    let local = |host: &HostSpec| match &how.agent_command {
        Some(_) => host.is_default(),
        None => host.is_local(&how.own_hostname),
    };
    wanted.then(|| Tree {
        radix: usize::try_from(settings.snapshot.get(keys::LAUNCH_TREE_RADIX)).unwrap_or(usize::MAX),
        local: plan.hosts.iter().map(local).collect(),
    })
}

pub(super) fn how(settings: &Settings, open_files: Option<u64>, plan: &Plan) -> Result<How, Failure> {
    let snapshot = &settings.snapshot;
    // One rank on this machine reads our input itself, as if there was no launcher. Not from a terminal: that gives its
    // input to one group of processes only, and ours it is that gets ^C.
    let direct = matches!(plan.start.stdin, StdinTarget::Rank(_)) && !plan.interactive;
    let stdin = if direct { rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).ok() } else { None };
    let executable: PathBuf =
        std::env::current_exe().map_err(|e| internal(&format!("the path of rsrun itself cannot be found: {e}")))?;
    Ok(How {
        agent_command: Some(snapshot.get(keys::LAUNCH_AGENT)).filter(|command| !command.is_empty()),
        ssh: SshClient::named(&snapshot.get(keys::LAUNCH_SSH)),
        timeout: snapshot.get(keys::LAUNCH_CONNECT_TIMEOUT),
        patience: snapshot.get(keys::LAUNCH_WAIT_FOR_HOSTS),
        executable,
        stdin: stdin.map(Arc::new),
        open_files,
        own_hostname: rustix::system::uname().nodename().to_string_lossy().into_owned(),
    })
}

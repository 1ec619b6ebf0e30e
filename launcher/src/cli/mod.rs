//! The command line: options of MPI users' habit, then the program and its arguments.
//!
//! Pure apart from reading what clap needs: words in, [`Invocation`] or an error out.

mod apps;
mod foreign;
mod help;
mod insight;
pub mod job_file;
mod placement;
mod ranges;
mod simulate;
mod texts;
mod words;

pub use apps::{AppLine, AppOptions};
pub use insight::InsightOptions;
pub use placement::{PlacementOptions, Topo};
pub use ranges::Ranges;
pub use simulate::{Grouping, SimulateOptions};

use crate::exit::{ExitCode, Failure};
use crate::job::lines::Tag;
use clap::{ArgAction, Args, CommandFactory, FromArgMatches, Parser};
use spmd::bootstrap::messages::StdinTarget;
use spmd::config::CommandLineSetting;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

/// What the user wants.
#[derive(Debug)]
pub enum Invocation {
    /// Run a program.
    Run(Box<Run>),
    /// Print the configuration.
    Config(Box<ConfigOptions>),
    /// Simulate a collective.
    Simulate(Box<SimulateOptions>),
    /// Print this text and exit with 0.
    Text(String),
}

/// A job as the command line describes it.
#[derive(Debug)]
pub struct Run {
    /// The options before the program.
    pub options: Options,
    /// `--set`, `--mca` and options that stand for keys, in the order given.
    pub settings: Vec<CommandLineSetting>,
    /// The programs, at least one unless nothing runs; ranks are numbered through them in this order.
    pub apps: Vec<AppLine>,
}

impl Run {
    /// How many ranks all programs have together; `None`: one for each slot.
    pub fn ranks(&self) -> Option<u32> {
        match self.apps.as_slice() {
            [] => self.options.app.ranks,
            apps => apps.iter().try_fold(0_u32, |sum, app| Some(sum.saturating_add(app.options.ranks?))),
        }
    }
}

/// Options of a run. Every long option may also be written with one dash.
#[derive(Debug, Parser)]
#[command(name = "rsrun", version, about = help::ABOUT, after_help = help::after(), override_usage = help::USAGE)]
#[command(disable_help_subcommand = true, max_term_width = 110)]
pub struct Options {
    /// What each program may have of its own.
    #[command(flatten)]
    pub app: AppOptions,

    /// Take the programs from a job file (see below)
    #[arg(long = "app", value_name = "FILE", help_heading = help::PROGRAMS)]
    pub job_file: Option<PathBuf>,

    /// File with one host a line: HOST [slots=N] [group=NAME] ..., see below
    #[arg(help_heading = help::HOSTS, long, visible_alias = "machinefile", value_name = "FILE", conflicts_with = "host")]
    pub hostfile: Option<PathBuf>,

    /// Hosts, for example a:2,b (2 slots on a, as many on b as it has cores)
    #[arg(help_heading = help::HOSTS, short = 'H', long, value_name = "HOST[:SLOTS],...")]
    pub host: Vec<String>,

    /// Allow more ranks than slots
    #[arg(help_heading = help::HOSTS, long)]
    pub oversubscribe: bool,

    #[allow(missing_docs)]
    #[command(flatten, next_help_heading = "Settings")]
    pub set: SettingOptions,

    /// End the job after so long, with exit code 124 (seconds, or 90s, 5min, 2h)
    #[arg(help_heading = help::LIFE, long, value_name = "TIME", value_parser = words::time)]
    pub timeout: Option<Duration>,

    /// Command that starts the agent on a host instead of SSH; {host} is replaced, or the host appended
    #[arg(help_heading = help::HOSTS, long, value_name = "COMMAND")]
    pub launch_agent: Option<String>,

    /// When the job has ended, say how long each phase of its start took
    #[arg(long, help_heading = help::OUTPUT)]
    pub phases: bool,

    /// Say nothing when rsrun is run by root
    #[arg(long, help_heading = help::LIFE)]
    pub allow_run_as_root: bool,

    /// Who reads rsrun's standard input: a rank, all, or none
    #[arg(help_heading = help::OUTPUT, long, value_name = "RANK|all|none", default_value = "0", value_parser = words::stdin)]
    pub stdin: StdinTarget,

    /// Begin every line of output with its rank in brackets; with --tag=host also with its host
    #[arg(help_heading = help::OUTPUT, long, visible_alias = "tag-output", value_name = "rank|host", value_parser = words::tag)]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "rank")]
    pub tag: Option<Tag>,

    /// Begin every line of output with the time at which it left its rank (UTC)
    #[arg(help_heading = help::OUTPUT, long, visible_alias = "timestamp-output")]
    pub timestamp: bool,

    /// Write each rank's output to DIR/rank.0003/stdout and stderr, here on the launcher's host, instead of showing it
    #[arg(help_heading = help::OUTPUT, long, value_name = "DIR")]
    pub output_dir: Option<PathBuf>,

    /// With --output-dir: replace the output of an earlier job there
    #[arg(help_heading = help::OUTPUT, long, requires = "output_dir")]
    pub output_overwrite: bool,

    /// With --output-dir: show the output, too
    #[arg(help_heading = help::OUTPUT, long, requires = "output_dir")]
    pub tee: bool,

    /// What happens when a rank fails: the job ends, or the other ranks go on without it
    #[arg(help_heading = help::LIFE, long, value_name = "abort|continue", default_value = "abort", value_parser = words::on_failure)]
    pub on_failure: OnFailure,

    /// End the job when not every rank is in World::init so long after the first (key launch.start_timeout)
    #[arg(help_heading = help::LIFE, long, value_name = "TIME")]
    pub start_timeout: Option<String>,

    /// Write how the job and every rank ended to this file, as JSON
    #[arg(help_heading = help::LIFE, long, value_name = "FILE")]
    pub status_file: Option<PathBuf>,

    #[allow(missing_docs)]
    #[command(flatten, next_help_heading = "Insight")]
    pub insight: InsightOptions,

    #[allow(missing_docs)]
    #[command(flatten, next_help_heading = "Placement")]
    pub placement: PlacementOptions,
}

/// Settings of a job: the same wherever a job, or what it would do, is described.
#[derive(Clone, Debug, Default, Args)]
pub struct SettingOptions {
    /// Set a configuration key (see `rsrun config`)
    #[arg(long, value_name = "KEY=VALUE", action = ArgAction::Append)]
    pub set: Vec<String>,

    /// The same in two words, with names as Open MPI users know them
    #[arg(long, num_args = 2, value_names = ["KEY", "VALUE"], action = ArgAction::Append)]
    pub mca: Vec<String>,

    /// Configuration file of this job, over the system's and the user's
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// What happens when a rank fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// The job ends.
    Abort,
    /// The other ranks go on.
    Continue,
}

/// `rsrun config`: print the configuration that a run would have.
#[derive(Debug, Parser)]
#[command(name = "rsrun config", about = help::CONFIG_ABOUT, disable_version_flag = true, max_term_width = 110)]
#[command(override_usage = "rsrun config [OPTIONS] [KEY|GROUP]...")]
pub struct ConfigOptions {
    /// As JSON
    #[arg(long)]
    pub json: bool,

    /// Only keys that are not at their default
    #[arg(long)]
    pub changed: bool,

    #[allow(missing_docs)]
    #[command(flatten)]
    pub set: SettingOptions,

    /// What was set, in the order given.
    #[arg(skip)]
    pub settings: Vec<CommandLineSetting>,

    /// The keys to show with everything about them, or groups of keys (`verbs`); none: a table of all.
    #[arg(skip)]
    pub keys: Vec<String>,
}

/// Understands the command line (without the program's own name).
///
/// # Errors
/// A [`Failure`] with [`ExitCode::Usage`].
pub fn parse(words: Vec<OsString>) -> Result<Invocation, Failure> {
    if words.first().is_some_and(|word| word == "config") {
        let command = ConfigOptions::command();
        let split = words::split(&command, words[1..].to_vec());
        return Ok(match matches(command, "rsrun config", split.options)? {
            Ok(matches) => {
                let mut options = ConfigOptions::from_arg_matches(&matches).map_err(|e| usage(e.to_string()))?;
                options.settings = settings(&matches)?;
                options.keys = split.program.iter().map(|key| key.display().to_string()).collect();
                if let Some(option) = options.keys.iter().find(|key| key.starts_with('-')) {
                    return Err(usage(format!("write {option} before the keys (see rsrun config --help)")));
                }
                Invocation::Config(Box::new(options))
            }
            Err(text) => Invocation::Text(text),
        });
    }
    match words.first() {
        Some(word) if word == "completions" => return texts::completions(&words[1..]).map(Invocation::Text),
        Some(word) if word == "man" => return texts::manual(&words[1..]).map(Invocation::Text),
        Some(word) if word == "simulate" => return simulate(words[1..].to_vec()),
        Some(word) if word == "topo" => return topo(words[1..].to_vec()),
        _ => {}
    }
    let command = Options::command();
    let split = words::split(&command, words);
    let matches = match matches(command, "rsrun", split.options)? {
        Ok(matches) => matches,
        Err(text) => return Ok(Invocation::Text(text)),
    };
    let options = Options::from_arg_matches(&matches).map_err(|e| usage(e.to_string()))?;
    let mut settings = settings(&matches)?;
    if let Some(command) = &options.launch_agent {
        settings.push(launch_agent_setting(command));
    }
    if let Some(time) = &options.start_timeout {
        // A number alone is seconds, as with --timeout.
        let seconds = if time.parse::<f64>().is_ok() { "s" } else { "" };
        settings.push(CommandLineSetting {
            option: "--start-timeout".to_string(),
            key: "launch.start_timeout".to_string(),
            value: format!("{time}{seconds}"),
        });
    }
    settings.extend(options.insight.settings());
    if let (Some("-"), Some(file)) = (options.insight.stats.as_deref(), split.program.first())
        && std::path::Path::new(file).extension().is_some_and(|extension| extension == "json")
    {
        let file = file.display();
        return Err(usage(format!("{file} would be the program: write --stats={file} for the file of the statistics")));
    }
    if options.output_dir.is_some() && !options.tee && (options.tag.is_some() || options.timestamp) {
        return Err(usage(
            "--tag and --timestamp are for output that is shown, and --output-dir shows none: add --tee, or leave them out",
        ));
    }
    let apps = match &options.job_file {
        // Nothing runs: no program is needed.
        None if split.program.is_empty() && options.placement.dry_run => Vec::new(),
        None => apps::on_command_line(&options.app, split.program, split.marked)?,
        Some(file) => {
            if let Some(extra) = split.program.first() {
                return Err(usage(format!("{}: the programs are in the job file", extra.display())));
            }
            let text = crate::input::text(file).map_err(|reason| {
                Failure::new(ExitCode::Data, format!("the job file {} cannot be read: {reason}", file.display()))
            })?;
            job_file::with_options(job_file::parse(file, &text)?, &options.app)?
        }
    };
    let run = Run { options, settings, apps };
    if run.ranks().is_some_and(|ranks| ranks > words::MAX_RANKS) {
        return Err(usage(format!("all programs together have more than {} ranks", words::MAX_RANKS)));
    }
    Ok(Invocation::Run(Box::new(run)))
}

/// `rsrun simulate …`.
fn simulate(words: Vec<OsString>) -> Result<Invocation, Failure> {
    let command = SimulateOptions::command_line();
    let split = words::split(&command, words);
    if let Some(extra) = split.program.first() {
        return Err(usage(format!("unexpected `{}` after simulate (see rsrun simulate --help)", extra.display())));
    }
    Ok(match matches(command, "rsrun simulate", split.options)? {
        Ok(matches) => {
            let options = SimulateOptions::from_arg_matches(&matches).map_err(|e| usage(e.to_string()))?;
            Invocation::Simulate(Box::new(options))
        }
        Err(text) => Invocation::Text(text),
    })
}

/// `rsrun topo …`.
fn topo(words: Vec<OsString>) -> Result<Invocation, Failure> {
    let command = placement::TopoOptions::command();
    let split = words::split(&command, words);
    if let Some(extra) = split.program.first() {
        return Err(usage(format!("unexpected `{}` after topo (see rsrun topo --help)", extra.display())));
    }
    Ok(match matches(command, "rsrun topo", split.options)? {
        Ok(matches) => {
            let options = placement::TopoOptions::from_arg_matches(&matches).map_err(|e| usage(e.to_string()))?;
            Invocation::Run(Box::new(options.into_run(settings(&matches)?)))
        }
        Err(text) => Invocation::Text(text),
    })
}

fn launch_agent_setting(command: &str) -> CommandLineSetting {
    CommandLineSetting {
        option: "--launch-agent".to_string(),
        key: "launch.agent".to_string(),
        value: command.to_string(),
    }
}

fn usage(message: impl Into<String>) -> Failure {
    Failure::new(ExitCode::Usage, message)
}

/// clap's answer; the inner error is a text to print (`--help`, `--version`).
fn matches(
    command: clap::Command,
    name: &str,
    words: Vec<OsString>,
) -> Result<Result<clap::ArgMatches, String>, Failure> {
    use clap::error::ErrorKind;
    match command.try_get_matches_from(std::iter::once(OsString::from(name)).chain(words)) {
        Ok(matches) => Ok(Ok(matches)),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Ok(Err(error.render().to_string()))
        }
        Err(error) => Err(usage(match words::foreign(&error) {
            Some(message) => message,
            None => words::one_line(&error.render().to_string(), name),
        })),
    }
}

/// `--set` and `--mca` in the order in which they were given: the last one of a key wins.
fn settings(matches: &clap::ArgMatches) -> Result<Vec<CommandLineSetting>, Failure> {
    let mut found: Vec<(usize, CommandLineSetting)> = Vec::new();
    let all = |id: &str| -> Vec<(usize, String)> {
        let values = matches.get_many::<String>(id).into_iter().flatten().cloned();
        matches.indices_of(id).into_iter().flatten().zip(values).collect()
    };
    for (at, text) in all("set") {
        let Some((key, value)) = text.split_once('=') else {
            return Err(usage(format!("--set {text}: write --set key=value, for example --set shm.ring_bytes=128KiB")));
        };
        let (key, value) = (key.trim().to_string(), value.to_string());
        found.push((at, CommandLineSetting { option: "--set".to_string(), key, value }));
    }
    for pair in all("mca").chunks_exact(2) {
        let (key, value) = (pair[0].1.clone(), pair[1].1.clone());
        found.push((pair[0].0, CommandLineSetting { option: "--mca".to_string(), key, value }));
    }
    found.sort_by_key(|(at, _)| *at);
    Ok(found.into_iter().map(|(_, setting)| setting).collect())
}

/// Whether a variable means something to rsrun, so that no rank may be given it.
fn is_ours(name: &[u8]) -> bool {
    name.starts_with(b"SPMD_") || name.starts_with(spmd::config::ENVIRONMENT_PREFIX.as_bytes())
}

/// What is said of such a variable.
const OURS: &str = "variables that begin with SPMD_ or RSRUN_ are not for ranks: set keys with --set";

/// The variables of `-x`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Exports {
    /// Name and value, byte by byte: as written, or taken from here.
    pub variables: Vec<(Vec<u8>, Vec<u8>)>,
    /// Names that are to be taken from here and are not set here.
    pub missing: Vec<String>,
}

/// Understands `-x NAME[=VALUE]`.
///
/// # Errors
/// A name that is empty or not for ranks: [`ExitCode::Usage`].
pub fn exports(words: &[OsString]) -> Result<Exports, Failure> {
    use std::os::unix::ffi::{OsStrExt, OsStringExt};
    let mut exports = Exports::default();
    for word in words {
        let bytes = word.as_bytes();
        let (name, value) = match bytes.iter().position(|b| *b == b'=') {
            Some(at) => (&bytes[..at], Some(bytes[at + 1..].to_vec())),
            None => (bytes, std::env::var_os(OsStr::from_bytes(bytes)).map(OsStringExt::into_vec)),
        };
        if name.is_empty() {
            return Err(usage(format!("-x {}: the variable has no name", word.display())));
        }
        if is_ours(name) {
            return Err(usage(format!("-x {}: {OURS}", word.display())));
        }
        match value {
            Some(value) => exports.variables.push((name.to_vec(), value)),
            None => exports.missing.push(word.display().to_string()),
        }
    }
    Ok(exports)
}

#[cfg(test)]
mod tests;

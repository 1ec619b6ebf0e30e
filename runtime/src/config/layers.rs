//! The layers of configuration and how they become one snapshot.
//!
//! Pure: files come as text, the environment as a list. Every problem of every layer is found in one go.

use super::document::{self, Literal};
use super::error::{ConfigError, MAX_LINES, Place, Problem, Written};
use super::foreign;
use super::keys::{self, TABLE};
use super::snapshot::{Snapshot, Source, Value};
use super::spec::{KeySpec, Kind};
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

/// What the name of an environment variable of rsrun begins with: `RSRUN_SHM_RING_BYTES` is the key `shm.ring_bytes`.
pub const ENVIRONMENT_PREFIX: &str = "RSRUN_";

/// All layers over the built-in defaults, weakest first.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// The administrator's file.
    pub system: Option<FileLayer>,
    /// The user's file.
    pub user: Option<FileLayer>,
    /// The file of this job.
    pub job: Option<FileLayer>,
    /// The launcher's environment, all of it: variables that are not ours are skipped.
    pub environment: Vec<(OsString, OsString)>,
    /// The settings of the command line in the order given.
    pub command_line: Vec<CommandLineSetting>,
}

/// A configuration file that has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileLayer {
    /// The file, as it was opened.
    pub path: PathBuf,
    /// Its content: TOML.
    pub text: String,
}

/// One setting of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandLineSetting {
    /// The option as typed: `--set` or `--mca`, or an option that stands for a key.
    pub option: String,
    /// The key or an alias.
    pub key: String,
    /// The value.
    pub value: String,
}

/// One value that a layer gives to one key.
struct Given {
    /// The row of the table.
    index: usize,
    value: Value,
    source: Source,
    place: Place,
    /// The name it was given under.
    name: String,
}

impl Given {
    fn written(&self) -> Written {
        Written { place: self.place.clone(), name: self.name.clone(), value: self.value.to_string() }
    }
}

/// The one configuration of the job: for each key the strongest layer's value.
///
/// Within a file or the environment a key may be given only once, or with equal values (an alias beside the key's own
/// name); on the command line the last one wins.
///
/// # Errors
/// Every unknown name and every wrong value of all layers, also of those that are overridden.
pub fn resolve(layers: &Layers) -> Result<Snapshot, ConfigError> {
    let mut problems = Vec::new();
    let mut given = Vec::new();
    for file in [&layers.system, &layers.user, &layers.job].into_iter().flatten() {
        let layer = from_file(file, &mut problems);
        given.extend(without_conflicts(layer, &mut problems));
    }
    let layer = from_environment(&layers.environment, &mut problems);
    given.extend(without_conflicts(layer, &mut problems));
    given.extend(layers.command_line.iter().filter_map(|setting| {
        let place = Place::CommandLine { option: setting.option.clone() };
        let source = Source::CommandLine { option: setting.option.clone() };
        let index = look_up(&setting.key, &place, &mut problems)?;
        let value = read(index, &setting.value, &place, &mut problems)?;
        Some(Given { index, value, source, place, name: setting.key.clone() })
    }));
    ConfigError::check(problems)?;

    let mut snapshot = Snapshot::defaults();
    for Given { index, value, source, .. } in given {
        snapshot.set(index, value, source);
    }
    Ok(snapshot)
}

/// The key's own name and the value that `text` means: for settings that a program makes in code.
///
/// # Errors
/// The name is unknown, or the value does not fit.
pub fn program_setting(name: &str, text: &str) -> Result<(String, Value), ConfigError> {
    let mut problems = Vec::new();
    let setting = look_up(name, &Place::Program, &mut problems)
        .and_then(|index| Some((index, read(index, text, &Place::Program, &mut problems)?)));
    ConfigError::check(problems)?;
    let (index, value) = setting.expect("without a problem there is a value");
    Ok((TABLE[index].name.to_string(), value))
}

/// What to say about a name that is no key: the nearest ones, or where all of them are.
pub fn unknown_key(name: &str) -> String {
    suggestion(name, 0, &|spec| spec.name.to_string())
}

/// Whether the launcher reads an environment variable of this name, or refuses it because it begins with `RSRUN_`.
/// On any other host such a variable is a stray.
pub fn is_configuration_variable(name: &OsStr) -> bool {
    name.as_encoded_bytes().starts_with(ENVIRONMENT_PREFIX.as_bytes())
        || name.to_str().is_some_and(|name| keys::environment_position(name).is_some())
}

fn from_file(file: &FileLayer, problems: &mut Vec<Problem>) -> Vec<Given> {
    let mut given = Vec::new();
    for leaf in document::leaves(&file.path, &file.text) {
        let leaf = match leaf {
            Ok(leaf) => leaf,
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        };
        let Some(index) = look_up(&leaf.name, &leaf.name_place, problems) else {
            continue;
        };
        let spec = &TABLE[index];
        let value = match (&spec.kind, leaf.value) {
            (Kind::Text { .. }, Literal::Bare(text)) => {
                problems.push(bad_value(spec, &leaf.value_place, &text, "write it as a string, in quotes".into()));
                None
            }
            (Kind::List { .. }, Literal::Array(words)) => read(index, &words.join(","), &leaf.value_place, problems),
            (_, Literal::Text(text) | Literal::Bare(text)) => read(index, &text, &leaf.value_place, problems),
            (_, Literal::Array(words)) => {
                let text = format!("[{}]", words.join(", "));
                problems.push(bad_value(spec, &leaf.value_place, &text, "an array".into()));
                None
            }
            (_, Literal::Other(what, text)) => {
                problems.push(bad_value(spec, &leaf.value_place, &text, what.into()));
                None
            }
        };
        if let Some(value) = value {
            let source = Source::File { path: file.path.to_string_lossy().into_owned(), line: leaf.name_line };
            given.push(Given { index, value, source, place: leaf.name_place, name: leaf.name });
        }
    }
    given
}

fn from_environment(environment: &[(OsString, OsString)], problems: &mut Vec<Problem>) -> Vec<Given> {
    let mut given = Vec::new();
    let mut variables: Vec<_> = environment.iter().filter(|(name, _)| is_configuration_variable(name)).collect();
    // The order of an environment means nothing: messages come in the order of the names.
    variables.sort();
    for (name, text) in variables {
        let (Some(name), Some(text)) = (name.to_str(), text.to_str()) else {
            problems.push(Problem::NotUtf8 { variable: name.to_string_lossy().into_owned() });
            continue;
        };
        let place = Place::Environment { name: name.to_string() };
        let Some(index) = keys::environment_position(name) else {
            let bare = name.strip_prefix(ENVIRONMENT_PREFIX).unwrap_or(name);
            let hint = suggestion(bare, problems.len(), &KeySpec::environment);
            problems.push(Problem::UnknownKey { place, name: name.to_string(), hint });
            continue;
        };
        if let Some(value) = read(index, text, &place, problems) {
            let source = Source::Environment { name: name.to_string() };
            given.push(Given { index, value, source, place, name: name.to_string() });
        }
    }
    given
}

/// One value for each key of a layer whose order means nothing: two equal ones are one, two different ones a problem.
fn without_conflicts(layer: Vec<Given>, problems: &mut Vec<Problem>) -> Vec<Given> {
    let mut kept: Vec<Given> = Vec::with_capacity(layer.len());
    for given in layer {
        match kept.iter().find(|other| other.index == given.index) {
            None => kept.push(given),
            Some(first) if first.value == given.value => {}
            Some(first) => problems.push(Problem::Conflict {
                key: TABLE[given.index].name,
                first: Box::new(first.written()),
                second: Box::new(given.written()),
            }),
        }
    }
    kept
}

fn look_up(name: &str, place: &Place, problems: &mut Vec<Problem>) -> Option<usize> {
    let position = keys::position(name);
    if position.is_none() {
        let hint = suggestion(name, problems.len(), &|spec| spec.name.to_string());
        problems.push(Problem::UnknownKey { place: place.clone(), name: name.to_string(), hint });
    }
    position
}

fn read(index: usize, text: &str, place: &Place, problems: &mut Vec<Problem>) -> Option<Value> {
    let spec = &TABLE[index];
    spec.kind.parse(text).map_err(|reason| problems.push(bad_value(spec, place, text, reason))).ok()
}

fn bad_value(spec: &'static KeySpec, place: &Place, text: &str, reason: String) -> Problem {
    Problem::BadValue {
        place: place.clone(),
        key: spec.name,
        text: text.to_string(),
        reason,
        allowed: spec.kind.allowed(),
    }
}

/// What to write instead of an unknown name; `written` gives a key's name as this layer writes it. The search is left
/// out for problems that will not be shown.
fn suggestion(name: &str, problems: usize, written: &dyn Fn(&KeySpec) -> String) -> String {
    if let Some(known) = foreign::find(name) {
        return format!("a setting of {}; here it is {}", known.library, written(known.key()));
    }
    let near = if problems < MAX_LINES { keys::nearest(name) } else { Vec::new() };
    if near.is_empty() {
        return "`rsrun config` lists all keys".to_string();
    }
    format!("did you mean {}?", near.into_iter().map(written).collect::<Vec<_>>().join(" or "))
}

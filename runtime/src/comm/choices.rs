//! What libraries above the runtime say of their choices, for `--explain=FILE.json`. Knows nothing of what they are.

use super::Communicator;
use crate::{
    bootstrap::{
        messages::{FromRank, Insight},
        rank::Control,
    },
    error::{Context, Result},
    explain::with_collectives,
};
use serde::Serialize;
use std::{
    collections::HashSet,
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

/// A file is written again after so long, if there is more, …
const OFTEN: Duration = Duration::from_secs(1);

/// … or when this part of what it has has come in addition: so a job with many kinds of calls writes each a few times.
const PART: usize = 8;

/// What has been said, and where it goes.
#[derive(Debug)]
pub(crate) struct Choices {
    sink: Sink,
    said: Mutex<Said>,
}

#[derive(Debug)]
struct Said {
    /// In order.
    entries: Vec<String>,
    known: HashSet<String>,
    /// How many of them are in the file, since when.
    written: usize,
    since: Instant,
    /// It could not be written, which is said once.
    failed: bool,
}

/// Where it goes.
#[derive(Debug)]
pub(crate) enum Sink {
    /// To the launcher, which writes the file when the job has ended.
    Launcher(Arc<Control>),
    /// Into a file, behind what this rank has said of its messages: there is no launcher. Only rank 0 has one.
    File {
        /// Its name, wherever the program works later.
        path: PathBuf,
        /// What comes before.
        explanation: String,
    },
}

impl Choices {
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn new(sink: Sink) -> Result<Self> {
        if let Sink::File { path, explanation } = &sink {
            write(path, explanation, &[])?;
        }
        let (entries, known) = (Vec::new(), HashSet::new());
        let said = Mutex::new(Said { entries, known, written: 0, since: Instant::now(), failed: false });
        Ok(Choices { sink, said })
    }

    /// Says it, unless it has been said before.
    fn say(&self, entry: String) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if !said.known.insert(entry.clone()) {
            return;
        }
        match &self.sink {
            // When the agent is gone, it has taken the job with it.
            Sink::Launcher(control) => drop(control.say(&FromRank::Insight(Insight::Choice(entry)))),
            Sink::File { .. } => {
                said.entries.push(entry);
                let more = said.entries.len() - said.written;
                if more * PART > said.written || said.since.elapsed() >= OFTEN {
                    self.write(&mut said);
                }
            }
        }
    }

    /// Writes what is not in the file yet.
    pub(crate) fn flush(&self) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.written < said.entries.len() {
            self.write(&mut said);
        }
    }

    /// What cannot be written is no reason to end a program that computes: it is said once.
    fn write(&self, said: &mut Said) {
        let Sink::File { path, explanation } = &self.sink else { return };
        (said.written, said.since) = (said.entries.len(), Instant::now());
        if let Err(error) = write(path, explanation, &said.entries)
            && !std::mem::replace(&mut said.failed, true)
        {
            // Nor is it a reason that nobody reads this.
            let _ = writeln!(io::stderr(), "rank 0: what collectives choose is not kept: {error}");
        }
    }
}

/// Writes what is known into a file, as a whole: whoever reads it never finds half of it.
fn write(path: &Path, explanation: &str, said: &[String]) -> Result<()> {
    let text = with_collectives(explanation, said) + "\n";
    replace(path, &text).context(format!("writing {} (report.explain)", path.display()))
}

/// Puts `text` in the place of a file, whose name may be a link to it. What is no file, as a pipe, is written to.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let file = match fs::canonicalize(path) {
        Ok(file) if fs::metadata(&file)?.is_file() => file,
        Ok(_) => return fs::write(path, text),
        Err(_) => path.to_path_buf(),
    };
    let mut name = file.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}", std::process::id()));
    let temporary = file.with_file_name(name);
    let written = fs::write(&temporary, text).and_then(|()| fs::rename(&temporary, &file));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// An entry, and who says it.
#[derive(Serialize)]
struct Entry<'a, E> {
    /// A rank of the world.
    rank: usize,
    #[serde(flatten)]
    entry: &'a E,
}

impl Communicator {
    /// Adds to what `rsrun --explain=FILE.json` writes, under `collectives`: what a library has chosen for a kind of call,
    /// and why. `entry` becomes an object, to which this rank's number in the world is added; the same entry again is none.
    /// Does nothing where no such file is asked for.
    ///
    /// Without a launcher the file has what rank 0 of the world says, the last of it when its [`World`](crate::World) is
    /// dropped. That it cannot be written is an error of [`World::init`](crate::World::init), and said on standard error
    /// later; an entry that cannot be made JSON is left out.
    pub fn explain_choice<E: Serialize>(&self, entry: &E) {
        let Some(choices) = self.inner.shared.choices.get() else { return };
        if let Ok(json) = serde_json::to_string(&Entry { rank: self.world_rank(self.rank()), entry }) {
            choices.say(json);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn many_entries_are_written_a_few_times_each_never_by_half_and_all_in_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ways.json");
        let sink = Sink::File { path: path.clone(), explanation: "{\"rank\": 0}".into() };
        let choices = Choices::new(sink).unwrap();
        let in_file = || -> usize {
            let all: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
            all["collectives"].as_array().unwrap().len()
        };
        assert_eq!(in_file(), 0);
        // Whoever has it open keeps what was there: it is replaced, not written over.
        let mut before = fs::File::open(&path).unwrap();
        let mut numbers = vec![];
        for number in 0..2000 {
            choices.say(format!("{{\"number\": {number}}}"));
            choices.say(format!("{{\"number\": {number}}}"));
            let written = choices.said.lock().unwrap().written;
            if numbers.last() != Some(&written) {
                numbers.push(written);
                assert_eq!(in_file(), written);
            }
        }
        assert!(numbers[..8].iter().copied().eq(1..=8), "the first are written at once: {numbers:?}");
        let sum: usize = numbers.iter().sum();
        assert!(sum < 2000 * 12, "{sum} entries were written");
        choices.flush();
        assert_eq!(in_file(), 2000);
        let mut text = String::new();
        io::Read::read_to_string(&mut before, &mut text).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap()["collectives"], serde_json::json!([]));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
    }

    #[test]
    fn a_link_stays_and_its_file_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file.json"), folder.path().join("link.json"));
        fs::write(&file, "old").unwrap();
        std::os::unix::fs::symlink("file.json", &link).unwrap();
        replace(&link, "new").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }
}

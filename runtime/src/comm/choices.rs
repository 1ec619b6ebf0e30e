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
use std::sync::{Arc, Mutex, PoisonError};

/// What has been said, and where it goes.
#[derive(Debug)]
pub(crate) struct Choices {
    pub(crate) sink: Sink,
    said: Mutex<Vec<String>>,
}

/// Where it goes.
#[derive(Debug)]
pub(crate) enum Sink {
    /// To the launcher, which writes the file when the job has ended.
    Launcher(Arc<Control>),
    /// Into a file whenever there is more, behind what this rank has said of its messages: there is no launcher. Only rank 0
    /// has one.
    File {
        /// Its name.
        path: String,
        /// What comes before.
        explanation: String,
    },
}

impl Choices {
    pub(crate) fn new(sink: Sink) -> Self {
        Choices { sink, said: Mutex::default() }
    }

    /// Says it, unless it has been said before.
    fn say(&self, entry: String) -> Result<()> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.contains(&entry) {
            return Ok(());
        }
        said.push(entry.clone());
        match &self.sink {
            Sink::Launcher(control) => control.say(&FromRank::Insight(Insight::Choice(entry))),
            Sink::File { path, explanation } => write(path, explanation, &said),
        }
    }
}

/// Writes what is known into a file.
pub(crate) fn write(path: &str, explanation: &str, said: &[String]) -> Result<()> {
    std::fs::write(path, with_collectives(explanation, said) + "\n").context(format!("writing {path} (report.explain)"))
}

/// An entry, and who says it.
#[derive(Serialize)]
struct Said<'a, E> {
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
    /// Without a launcher the file has what rank 0 of the world says.
    ///
    /// # Errors
    /// When the file cannot be written, or the agent is lost.
    pub fn explain_choice<E: Serialize>(&self, entry: &E) -> Result<()> {
        let Some(choices) = self.inner.shared.choices.get() else { return Ok(()) };
        let said = Said { rank: self.world_rank(self.rank()), entry };
        let json =
            serde_json::to_string(&said).map_err(std::io::Error::from).context("an entry of --explain as JSON")?;
        choices.say(json)
    }
}

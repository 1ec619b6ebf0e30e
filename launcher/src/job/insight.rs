//! What ranks have counted and recorded: collected while the job runs, shown or written when it has ended.
//!
//! Files are made before anything starts, so that a wrong name is no surprise at the end of a long job. What the numbers
//! mean is `spmd`'s business.

use super::state::Event;
use crate::exit::{ExitCode, Failure};
use spmd::bootstrap::messages::{FromAgent, Insight};
use spmd::config::{Snapshot, keys};
use spmd::explain::with_collectives;
use spmd::statistics::{JobStatistics, Statistics};
use spmd::trace::{RankTrace, write_chrome};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};

/// Collects for one job.
#[derive(Debug)]
pub(super) struct Collector {
    statistics: Option<Target>,
    trace: Option<Named>,
    explanation: Option<Named>,
    explained: Option<String>,
    /// What ranks have said of collectives, each entry once.
    choices: Vec<String>,
    counted: HashMap<u32, Statistics>,
    recorded: Vec<RankTrace>,
}

#[derive(Debug)]
enum Target {
    Table,
    File(Named),
}

#[derive(Debug)]
struct Named {
    path: String,
    file: File,
}

impl Named {
    fn create(path: String, option: &str) -> Result<Self, Failure> {
        match File::create(&path) {
            Ok(file) => Ok(Named { path, file }),
            Err(error) => {
                Err(Failure::new(ExitCode::Directory, format!("{option} {path}: it cannot be written: {error}")))
            }
        }
    }

    fn write(&self, what: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<(), Failure> {
        let mut out = BufWriter::new(&self.file);
        what(&mut out)
            .and_then(|()| out.flush())
            .map_err(|error| Failure::new(ExitCode::Directory, format!("{}: it cannot be written: {error}", self.path)))
    }
}

impl Collector {
    /// What the configuration asks for.
    ///
    /// # Errors
    /// When a file cannot be made.
    pub(super) fn begin(snapshot: &Snapshot) -> Result<Self, Failure> {
        let wanted = |key| Some(snapshot.get(key)).filter(|text: &String| !text.is_empty());
        let statistics = match wanted(keys::REPORT_STATISTICS) {
            Some(path) if path != "-" => Some(Target::File(Named::create(path, "--stats")?)),
            wanted => wanted.map(|_| Target::Table),
        };
        let explanation = match snapshot.get(keys::REPORT_EXPLAIN) {
            words if words == "off" || words == "text" => None,
            path if path.ends_with(".json") => Some(Named::create(path, "--explain")?),
            other => {
                let reason = format!(
                    "report.explain (--explain) is {other}: allowed are off, text, and the name of a file that ends in .json, which \
                     gets it as JSON"
                );
                return Err(Failure::new(ExitCode::Data, reason));
            }
        };
        let trace = wanted(keys::REPORT_TRACE).map(|path| Named::create(path, "--trace")).transpose()?;
        Ok(Collector {
            statistics,
            trace,
            explanation,
            explained: None,
            choices: Vec::new(),
            counted: HashMap::new(),
            recorded: Vec::new(),
        })
    }

    /// Takes what a rank tells of itself out of the events: nothing else is to be done about it.
    pub(super) fn pick(&mut self, event: Event) -> Event {
        let Event::Frame(_, FromAgent::RankInsight { rank, insight }) = event else { return event };
        match insight {
            // A rank says it again and again; the last word counts.
            Insight::Statistics(statistics) => drop(self.counted.insert(rank, *statistics)),
            Insight::Trace(trace) => self.recorded.push(*trace),
            Insight::Explanation(json) => self.explained = Some(json),
            Insight::Choice(json) => self.choices.push(json),
        }
        Event::Tick
    }

    /// The job of so many ranks has ended: writes the files; texts for standard error. Of a job whose ranks have told
    /// nothing, since they never started, there is no text: the reason says it all.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub(super) fn end(&mut self, size: usize) -> Result<String, Failure> {
        let mut text = String::new();
        let heard = !self.counted.is_empty() || !self.recorded.is_empty();
        let job = JobStatistics::new(size, self.counted.drain().map(|(_, counted)| counted).collect());
        let written = match &self.statistics {
            None => Ok(()),
            Some(Target::Table) => {
                text += &job.to_string();
                Ok(())
            }
            Some(Target::File(named)) => named.write(|out| writeln!(out, "{}", job.to_json())),
        };
        if let (Some(named), Some(json)) = (&self.explanation, &self.explained) {
            named.write(|out| writeln!(out, "{}", with_collectives(json, &self.choices)))?;
        }
        if let Some(named) = &self.trace {
            let mut summary = Default::default();
            named.write(|out| {
                summary = write_chrome(&self.recorded, out)?;
                Ok(())
            })?;
            text += &format!("rsrun: trace: {}: {summary}\n", named.path);
        }
        written.map(|()| if heard { text } else { String::new() })
    }
}

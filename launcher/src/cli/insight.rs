//! Options that show what a job does: each stands for a configuration key.

use clap::Args;
use spmd::config::{CommandLineSetting, keys};

/// What a job tells of itself.
#[derive(Clone, Debug, Default, Args)]
pub struct InsightOptions {
    /// Rank 0 prints which way its messages take, by peer and size, and why; with --explain=FILE.json as JSON in FILE.json
    /// (key report.explain)
    #[arg(long, value_name = "FILE.json", num_args = 0..=1, require_equals = true, default_missing_value = "text")]
    pub explain: Option<String>,

    /// At the end, a table of messages, bytes, paths and waits; with --stats=FILE as JSON in FILE (key report.statistics)
    #[arg(long, value_name = "FILE", num_args = 0..=1, require_equals = true, default_missing_value = "-")]
    pub stats: Option<String>,

    /// Record calls and messages of all ranks in FILE, which ui.perfetto.dev opens (key report.trace)
    #[arg(long, value_name = "FILE")]
    pub trace: Option<String>,
}

impl InsightOptions {
    /// The same as settings of the configuration.
    pub(super) fn settings(&self) -> Vec<CommandLineSetting> {
        let options = [
            ("--explain", keys::REPORT_EXPLAIN.name, &self.explain),
            ("--stats", keys::REPORT_STATISTICS.name, &self.stats),
            ("--trace", keys::REPORT_TRACE.name, &self.trace),
        ];
        options
            .into_iter()
            .filter_map(|(option, key, value)| {
                let value = value.clone()?;
                Some(CommandLineSetting { option: option.to_string(), key: key.to_string(), value })
            })
            .collect()
    }
}

//! What `--report` shows: hosts, where ranks sit, what the kernel made of it.
//!
//! Pure: a view of the job in, text out.

mod json;
mod text;

use crate::placement::{Host, Plan};
use spmd::config::Snapshot;

/// What can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Topic {
    /// What the hosts look like
    Hosts,
    /// Which ranks are on which host
    Map,
    /// The processors of every rank: the plan, and after the start what the kernel says
    Bindings,
    /// The network device and GPU of every rank
    #[value(alias = "gpus", alias = "devices")]
    Nics,
    /// Settings that are not at their default
    Config,
    /// The hosts as a drawing
    #[value(skip)]
    Picture,
}

/// How it is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Text,
    /// One JSON object a line
    Json,
}

/// What is to be shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What.
    pub topics: Vec<Topic>,
    /// How.
    pub format: Format,
    /// Whether a picture as SVG is wanted, too.
    pub svg: bool,
}

/// A job as reports see it.
#[derive(Clone, Debug)]
pub struct View<'a> {
    /// Its hosts.
    pub hosts: Vec<Host<'a>>,
    /// Where its ranks sit.
    pub plan: &'a Plan,
    /// Its configuration.
    pub snapshot: &'a Snapshot,
    /// By rank, where the kernel lets it run; `None`: not started yet.
    pub kernel: Option<&'a [&'a str]>,
}

impl View<'_> {
    /// The ranks of a host, in order.
    pub fn ranks_of(&self, host: usize) -> Vec<u32> {
        (0..).zip(&self.plan.seats).filter(|(_, seat)| seat.host == host).map(|(rank, _)| rank).collect()
    }
}

/// What was asked for, as text that ends with a newline.
pub fn render(view: &View<'_>, options: &Options) -> String {
    match options.format {
        Format::Text => options.topics.iter().map(|topic| text::topic(view, *topic)).collect(),
        Format::Json => json::line(view, &options.topics),
    }
}

//! Options that say where ranks sit, and that show it: the same for `rsrun` and `rsrun topo`.

use crate::placement::request::{self, BindTo, GpuBind, MapOption, RankBy};
use crate::report::{Format, Topic};
use clap::{ArgAction, Args, Parser};
use spmd::config::CommandLineSetting;
use std::path::PathBuf;

/// Where ranks sit.
#[derive(Clone, Debug, Default, Args)]
pub struct PlacementOptions {
    /// Deal ranks out over node, numa, l3, package, core or slot; ppr:N:RESOURCE puts N on each; rankfile:FILE as the
    /// file says; device=nic over network devices. Without it: host by host, spread over NUMA domains with network
    /// devices
    #[arg(long, value_name = "POLICY", value_parser = request::map_by)]
    pub map_by: Option<MapOption>,

    /// How ranks are numbered: slot, node, fill or span; without it, in the order in which they are dealt out
    #[arg(long, value_name = "ORDER", ignore_case = true, hide_possible_values = true)]
    pub rank_by: Option<RankBy>,

    /// What a rank is bound to: none, hwthread, core, l3, numa or package; without it, to its share of the cores of its
    /// NUMA domain
    #[arg(long, value_name = "WHAT", ignore_case = true, hide_possible_values = true)]
    pub bind_to: Option<BindTo>,

    /// Cores for each rank (hardware threads with --bind-to hwthread)
    #[arg(long, visible_alias = "cpus-per-proc", value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub cpus_per_rank: Option<u32>,

    /// Which GPUs a rank sees: none (all of them) or nearest (only its own, by identity in CUDA_VISIBLE_DEVICES or
    /// ROCR_VISIBLE_DEVICES)
    #[arg(long, value_name = "WHAT", default_value = "none", ignore_case = true, hide_possible_values = true)]
    pub gpu_bind: GpuBind,

    /// N ranks on each host: short for --map-by ppr:N:node
    #[arg(long, visible_alias = "ppn", value_name = "N", conflicts_with = "map_by")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub npernode: Option<u32>,

    /// Show where ranks sit: hosts, map, bindings, nics, config, with commas between them
    #[arg(long, value_name = "TOPICS", value_delimiter = ',', action = ArgAction::Append, hide_possible_values = true)]
    pub report: Vec<Topic>,

    /// Short for --report bindings
    #[arg(long)]
    pub report_bindings: bool,

    /// How reports are written, also those of --phases and of where ranks are: text or json
    #[arg(long, value_name = "FORMAT", default_value = "text", hide_possible_values = true)]
    pub report_format: Format,

    /// Show the plan and start nothing
    #[arg(long)]
    pub dry_run: bool,

    /// With --dry-run: what hosts (all, or this one) look like, from a file of hwloc's lstopo
    #[arg(long, value_name = "[HOST=]FILE.xml", action = ArgAction::Append)]
    pub topology: Vec<String>,

    /// What `rsrun topo` wants.
    #[arg(skip)]
    pub topo: Option<Topo>,
}

/// What `rsrun topo` wants beyond a plan.
#[derive(Clone, Debug, Default)]
pub struct Topo {
    /// Where the picture goes.
    pub svg: Option<PathBuf>,
}

/// `rsrun topo`: hosts as pictures, with ranks where they would sit.
#[derive(Debug, Parser)]
#[command(name = "rsrun topo", about = super::help::TOPO_ABOUT, disable_version_flag = true, max_term_width = 110)]
pub(super) struct TopoOptions {
    /// How many ranks to show; without it, none
    #[arg(short = 'n', long = "np", value_name = "N", value_parser = super::words::count)]
    pub ranks: Option<u32>,

    /// File with one host a line
    #[arg(long, visible_alias = "machinefile", value_name = "FILE", conflicts_with = "host")]
    pub hostfile: Option<PathBuf>,

    /// Hosts
    #[arg(short = 'H', long, value_name = "HOST[:SLOTS],...")]
    pub host: Vec<String>,

    /// Allow more ranks than slots
    #[arg(long)]
    pub oversubscribe: bool,

    /// Write the picture as SVG to this file
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,

    #[allow(missing_docs)]
    #[command(flatten)]
    pub placement: PlacementOptions,

    #[allow(missing_docs)]
    #[command(flatten)]
    pub set: super::SettingOptions,

    /// Command that starts the agent on a host instead of SSH
    #[arg(long, value_name = "COMMAND")]
    pub launch_agent: Option<String>,
}

impl TopoOptions {
    /// The run that would have this plan.
    pub(super) fn into_run(self, mut settings: Vec<CommandLineSetting>) -> super::Run {
        let mut options = super::Options::parse_from(["rsrun"]);
        options.app.ranks = self.ranks;
        options.hostfile = self.hostfile;
        options.host = self.host;
        options.oversubscribe = self.oversubscribe;
        options.set = self.set;
        options.placement = self.placement;
        options.placement.dry_run = true;
        options.placement.topo = Some(Topo { svg: self.svg });
        settings.extend(self.launch_agent.as_deref().map(super::launch_agent_setting));
        super::Run { options, settings, apps: Vec::new() }
    }
}

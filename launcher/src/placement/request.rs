//! What the user wants, as words of the command line.
//!
//! Words of other launchers are understood where they mean one thing only.

use super::rankfile::Entry;
use clap::ValueEnum;

/// A wish for placement, complete.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// How many ranks; `None`: one a slot.
    pub ranks: Option<u32>,
    /// What ranks are mapped to.
    pub map: MapBy,
    /// How they are numbered; `None`: in the order in which they are mapped.
    pub rank: Option<RankBy>,
    /// What they are bound to; `None`: each to an equal share of the cores of what it is mapped to.
    pub bind: Option<BindTo>,
    /// Cores (hardware threads with `--bind-to hwthread`) for each rank; `None`: its share.
    pub cpus_per_rank: Option<u32>,
    /// More ranks than slots are allowed.
    pub oversubscribe: bool,
    /// What ranks see of the GPUs.
    pub gpus: GpuBind,
}

impl Request {
    /// What a rank needs at least.
    pub fn per_rank(&self) -> u32 {
        self.cpus_per_rank.unwrap_or(1)
    }

    /// What is counted.
    pub fn unit(&self) -> &'static str {
        if self.bind == Some(BindTo::Hwthread) { "hardware threads" } else { "cores" }
    }

    /// Whether hosts must be looked at beyond the number of their cores.
    pub fn needs_topology(&self) -> bool {
        let simple = matches!(self.map, MapBy::Spread | MapBy::Slot | MapBy::Node);
        self.bind != Some(BindTo::None) || !simple || self.gpus != GpuBind::None
    }
}

/// What ranks are mapped to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MapBy {
    /// The default: hosts one after the other, on each spread over the NUMA domains that have network devices.
    #[default]
    Spread,
    /// Hosts one after the other, on each core after core.
    Slot,
    /// Hosts in turn.
    Node,
    /// Packages in turn.
    Package,
    /// NUMA domains in turn.
    Numa,
    /// Last-level caches in turn.
    L3,
    /// Cores in turn.
    Core,
    /// Active network devices in turn.
    Nic,
    /// So many ranks on each.
    PerResource(u32, Resource),
    /// As a file says.
    Rankfile(Vec<Entry>),
}

/// What `ppr` counts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// A host.
    Node,
    /// A package.
    Package,
    /// A NUMA domain.
    Numa,
    /// A last-level cache.
    L3,
    /// A core.
    Core,
}

impl Resource {
    /// As in messages and options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Package => "package",
            Self::Numa => "numa",
            Self::L3 => "l3",
            Self::Core => "core",
        }
    }
}

/// How ranks are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RankBy {
    /// Host by host, in the order in which they are mapped there
    Slot,
    /// One of each host in turn
    Node,
    /// Object by object: neighbours sit next to each other
    Fill,
    /// One of each object in turn, over all hosts
    Span,
}

/// What ranks are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BindTo {
    /// Nothing: the kernel moves them as it likes
    None,
    /// A hardware thread
    Hwthread,
    /// A core
    Core,
    /// All cores of its last-level cache
    #[value(alias = "l3cache")]
    L3,
    /// All cores of its NUMA domain
    #[value(alias = "numanode")]
    Numa,
    /// All cores of its package
    #[value(alias = "socket")]
    Package,
}

/// Which GPUs a rank sees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum GpuBind {
    /// All of them
    #[default]
    None,
    /// Only its own
    Nearest,
}

/// `--map-by` as written: the word, and what Open MPI users add to it with colons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapOption {
    /// The policy; a rankfile is not read yet.
    pub map: MapWord,
    /// `PE=N`.
    pub cpus_per_rank: Option<u32>,
    /// `OVERSUBSCRIBE`.
    pub oversubscribe: bool,
    /// `SPAN`: over all hosts as if they were one.
    pub span: bool,
}

/// A policy before files are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MapWord {
    /// A policy that is complete.
    Policy(MapBy),
    /// `rankfile:FILE`.
    Rankfile(std::path::PathBuf),
}

const MAP_WORDS: &str = "node, numa, l3, package, core, slot, ppr:N:RESOURCE, rankfile:FILE, device=nic";
const RESOURCES: &str = "node, package, numa, l3, core";

/// Understands `--map-by`.
///
/// # Errors
/// In words, with the valid ones.
pub fn map_by(text: &str) -> Result<MapOption, String> {
    let whole = |map| MapOption { map, cpus_per_rank: None, oversubscribe: false, span: false };
    let lower = text.to_ascii_lowercase();
    if lower.starts_with("rankfile:") {
        let file = text["rankfile:".len()..].trim_start_matches("FILE=").trim_start_matches("file=");
        if file.is_empty() {
            return Err("name the file: rankfile:FILE".to_string());
        }
        return Ok(whole(MapWord::Rankfile(file.into())));
    }
    let mut words = lower.split(':');
    let map = match words.next().unwrap_or_default() {
        "slot" => MapBy::Slot,
        "node" => MapBy::Node,
        "package" | "socket" => MapBy::Package,
        "numa" | "numanode" => MapBy::Numa,
        "l3" | "l3cache" => MapBy::L3,
        "core" => MapBy::Core,
        "device=nic" | "device=network" => MapBy::Nic,
        "ppr" => {
            let count = words.next().and_then(|n| n.parse().ok()).filter(|n| (1..=1_000_000).contains(n));
            let count = count.ok_or_else(|| format!("`{text}`: write ppr:N:RESOURCE, for example ppr:2:numa"))?;
            let word = words.next().unwrap_or_default();
            let resource = match word {
                "node" => Resource::Node,
                "package" | "socket" => Resource::Package,
                "numa" | "numanode" => Resource::Numa,
                "l3" | "l3cache" => Resource::L3,
                "core" => Resource::Core,
                _ => return Err(format!("`{word}` is no resource: {RESOURCES}")),
            };
            MapBy::PerResource(count, resource)
        }
        word => return Err(format!("`{word}` is not known here: {MAP_WORDS}")),
    };
    let mut option = whole(MapWord::Policy(map));
    for qualifier in words {
        match qualifier.split_once('=') {
            Some(("pe", number)) => {
                let number = number.parse().ok().filter(|n| (1..=4096).contains(n));
                option.cpus_per_rank = Some(number.ok_or("PE=N takes a number of cores, for example core:PE=2")?);
            }
            None if qualifier == "oversubscribe" => option.oversubscribe = true,
            None if qualifier == "nooversubscribe" => {}
            None if qualifier == "span" => option.span = true,
            _ => return Err(format!("`{qualifier}` is not known here: PE=N, OVERSUBSCRIBE, SPAN")),
        }
    }
    Ok(option)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(text: &str) -> MapBy {
        match map_by(text).unwrap().map {
            MapWord::Policy(map) => map,
            MapWord::Rankfile(file) => panic!("{file:?}"),
        }
    }

    #[test]
    fn words_of_other_launchers_are_understood() {
        assert_eq!(policy("socket"), MapBy::Package);
        assert_eq!(policy("ppr:2:NUMA"), MapBy::PerResource(2, Resource::Numa));
        assert_eq!(policy("ppr:4:node"), MapBy::PerResource(4, Resource::Node));
        let option = map_by("core:PE=2:OVERSUBSCRIBE").unwrap();
        assert_eq!((option.cpus_per_rank, option.oversubscribe), (Some(2), true));
        assert_eq!(map_by("rankfile:My/File").unwrap().map, MapWord::Rankfile("My/File".into()));
        assert_eq!(map_by("rankfile:FILE=x").unwrap().map, MapWord::Rankfile("x".into()));
    }

    #[test]
    fn a_wrong_word_is_answered_with_the_right_ones() {
        assert!(map_by("nume").unwrap_err().contains("node, numa, l3"));
        assert!(map_by("ppr:2:gpu").unwrap_err().contains("node, package, numa, l3, core"));
        assert!(map_by("ppr:0:numa").unwrap_err().contains("ppr:2:numa"));
        assert!(map_by("core:pe=x").unwrap_err().contains("PE=2"));
        assert!(map_by("core:nice").unwrap_err().contains("OVERSUBSCRIBE"));
        assert!(map_by("rankfile:").unwrap_err().contains("FILE"));
    }
}

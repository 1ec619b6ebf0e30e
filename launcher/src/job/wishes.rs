//! From options to what the state machine needs to know about placement: files are read here, before anything starts.

use super::state::Ending;
use crate::cli::{PlacementOptions, Run};
use crate::exit::{ExitCode, Failure};
use crate::hosts::HostSpec;
use crate::placement::request::{MapBy, MapOption, MapWord, Request, Resource};
use crate::placement::{GpuBind, RankBy, rankfile};
use crate::report::{self, Format, Topic};
use crate::topology::xml;
use spmd::bootstrap::node::{Detail, Node};
use std::path::Path;

/// What was asked for.
#[derive(Debug)]
pub(super) struct Wishes {
    pub(super) request: Request,
    pub(super) detail: Option<Detail>,
    pub(super) topologies: Vec<Option<Node>>,
    pub(super) report: report::Options,
    pub(super) ending: Ending,
}

/// Understands the options for these hosts. Without any host in the options, topologies name them.
pub(super) fn understand(run: &Run, hosts: &mut Vec<HostSpec>) -> Result<Wishes, Failure> {
    let options = &run.options.placement;
    let request = request(run)?;
    let topologies = topologies(options, hosts)?;
    let several = hosts.len() > 1;
    let report = report(options);
    let devices = request.map == MapBy::Nic
        || request.gpus != GpuBind::None
        || options.dry_run
        || report.topics.contains(&Topic::Nics);
    let looks = devices || request.needs_topology() || report.topics.contains(&Topic::Hosts);
    // To look at every PCI device takes longer than everything else. Messages over TCP take the addresses that there
    // are, so that only RDMA devices are worth it unasked; on one host messages do not use the network at all.
    let detail = match (looks, devices, several) {
        (false, ..) => None,
        (true, true, _) => Some(Detail::Devices),
        (true, false, true) => Some(Detail::Fabric),
        (true, false, false) => Some(Detail::Accelerators),
    };
    let ending = match (&options.topo, options.dry_run) {
        (Some(_), _) if run.ranks().is_none() && options.npernode.is_none() && options.map_by.is_none() => {
            Ending::Topology
        }
        (_, true) => Ending::Plan,
        (_, false) => Ending::Run,
    };
    Ok(Wishes { request, detail, topologies, report, ending })
}

fn request(run: &Run) -> Result<Request, Failure> {
    let options = &run.options.placement;
    let mut request = Request {
        ranks: run.ranks(),
        map: MapBy::Spread,
        rank: options.rank_by,
        bind: options.bind_to,
        cpus_per_rank: options.cpus_per_rank,
        oversubscribe: run.options.oversubscribe,
        gpus: options.gpu_bind,
    };
    if let Some(MapOption { map, cpus_per_rank, oversubscribe, span }) = options.map_by.clone() {
        request.map = match map {
            MapWord::Policy(map) => map,
            MapWord::Rankfile(file) => MapBy::Rankfile(rankfile::read(&file)?),
        };
        if let (Some(one), Some(other)) = (request.cpus_per_rank, cpus_per_rank)
            && one != other
        {
            let text =
                format!("--cpus-per-rank {one} and PE={other} in --map-by contradict each other: give one of them");
            return Err(Failure::new(ExitCode::Usage, text));
        }
        request.cpus_per_rank = request.cpus_per_rank.or(cpus_per_rank);
        request.oversubscribe |= oversubscribe;
        if span {
            request.rank = request.rank.or(Some(RankBy::Span));
        }
    }
    if let Some(ranks) = options.npernode {
        request.map = MapBy::PerResource(ranks, Resource::Node);
    }
    Ok(request)
}

fn report(options: &PlacementOptions) -> report::Options {
    let mut topics = options.report.clone();
    if options.report_bindings && !topics.contains(&Topic::Bindings) {
        topics.push(Topic::Bindings);
    }
    if options.topo.is_some() {
        // Programs get what the picture shows as the description of the hosts.
        let picture = if options.report_format == Format::Json { Topic::Hosts } else { Topic::Picture };
        topics.retain(|topic| *topic != picture);
        topics.insert(0, picture);
    } else if options.dry_run && topics.is_empty() {
        topics = vec![Topic::Hosts, Topic::Map, Topic::Bindings, Topic::Nics];
    }
    let svg = options.topo.as_ref().is_some_and(|topo| topo.svg.is_some());
    report::Options { topics, format: options.report_format, svg }
}

/// The topology of each host, for those that have one from a file.
fn topologies(options: &PlacementOptions, hosts: &mut Vec<HostSpec>) -> Result<Vec<Option<Node>>, Failure> {
    let usage = |text: String| Failure::new(ExitCode::Usage, text);
    if options.topology.is_empty() {
        return Ok(Vec::new());
    }
    if !options.dry_run {
        return Err(usage("--topology is for plans: use it with --dry-run or rsrun topo".to_string()));
    }
    let mut for_all = None;
    let mut named: Vec<(&str, Node)> = Vec::new();
    for word in &options.topology {
        // A path may have an equals sign, a host has no slash.
        let (host, file) = match word.split_once('=') {
            Some((host, file)) if !host.contains('/') => (Some(host), file),
            _ => (None, word.as_str()),
        };
        let node = xml::read(Path::new(file)).map_err(|text| Failure::new(ExitCode::Data, text))?;
        match host {
            Some(host) => named.push((host, node)),
            None => for_all = Some((file, node)),
        }
    }
    if hosts.iter().all(HostSpec::is_default) {
        let name = |name: &str, place: String| HostSpec { name: name.to_string(), place, ..HostSpec::this_machine() };
        if let [_, ..] = named.as_slice() {
            *hosts = named.iter().map(|(host, _)| name(host, format!("--topology {host}"))).collect();
        } else if let Some((file, _)) = &for_all {
            let stem = Path::new(file).file_stem().unwrap_or_default().to_string_lossy();
            *hosts = vec![HostSpec { name: stem.into_owned(), ..HostSpec::this_machine() }];
        }
    }
    if let Some((host, _)) = named.iter().find(|(name, _)| hosts.iter().all(|host| host.name != *name)) {
        return Err(usage(format!("--topology {host}=…: the job has no host {host}")));
    }
    let of = |host: &HostSpec| {
        let own = named.iter().find(|(name, _)| *name == host.name).map(|(_, node)| node);
        own.or(for_all.as_ref().map(|(_, node)| node)).cloned()
    };
    Ok(hosts.iter().map(of).collect())
}

//! Where ranks sit: plans for machines of which only a topology is here, and what the kernel makes of plans on this one.
//!
//! Plans are compared with the files in `tests/golden`. After a change that is meant:
//! `UPDATE_GOLDEN=1 cargo test -p rsrun --test placement`, then read the difference.

mod common;

use common::{Place, finish, start};
use std::path::{Path, PathBuf};
use std::process::Command;

fn topology(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("topologies").join(format!("{name}.xml"))
}

/// Name of the golden file, topologies of the hosts `a`, `b`…, options.
const PLANS: &[(&str, &[&str], &str)] = &[
    ("two-sockets-default", &["two-sockets"], "-n 4"),
    ("two-sockets-full", &["two-sockets"], ""),
    ("two-sockets-two-hosts", &["two-sockets", "two-sockets"], "-n 6 --map-by node"),
    ("two-sockets-numa", &["two-sockets"], "-n 6 --map-by numa --bind-to core"),
    ("two-sockets-pe", &["two-sockets"], "-n 3 --map-by core:PE=4"),
    ("two-sockets-socket", &["two-sockets"], "-n 4 --map-by socket --bind-to socket"),
    ("two-sockets-hwthread", &["two-sockets"], "-n 4 --map-by core --bind-to hwthread"),
    ("two-sockets-crowded", &["two-sockets"], "-n 100 --oversubscribe"),
    ("eight-gpus-default", &["eight-gpus"], "-n 8"),
    ("eight-gpus-two-hosts", &["eight-gpus", "eight-gpus"], "-ppn 8"),
    ("eight-gpus-nic", &["eight-gpus"], "-n 8 --map-by device=nic --cpus-per-rank 7"),
    ("eight-gpus-nics-span", &["eight-gpus", "eight-gpus"], "--map-by ppr:2:package --rank-by span"),
    ("four-domains-default", &["four-domains"], "-n 8"),
    ("four-domains-two-hosts", &["four-domains", "four-domains"], "--map-by node -n 16"),
    ("four-domains-more-than-near-the-nics", &["four-domains", "four-domains"], "-ppn 40"),
    ("four-domains-ppr", &["four-domains"], "--map-by ppr:2:numa"),
    ("four-domains-l3", &["four-domains"], "-n 20 --map-by l3 --bind-to l3"),
    ("laptop-default", &["laptop"], "-n 4"),
    ("laptop-full", &["laptop"], ""),
    ("container-default", &["container"], ""),
    ("container-two", &["container"], "-n 2 --map-by core --bind-to core"),
    ("container-hwthread", &["container"], "--bind-to hwthread"),
    ("container-crowded", &["container"], "-n 7 --oversubscribe"),
];

#[test]
fn plans_for_known_machines_are_as_recorded() {
    let place = Place::new();
    let mut wrong = Vec::new();
    for (name, machines, options) in PLANS {
        let hosts = ["a", "b", "c"].iter().zip(*machines);
        let mut words: Vec<String> = vec!["--dry-run".to_string()];
        for (host, machine) in hosts {
            words.extend(["--topology".to_string(), format!("{host}={}", topology(machine).display())]);
        }
        words.extend(options.split_whitespace().map(str::to_string));
        let ended = place.run(&words).success();
        let plan = format!("rsrun {options}    on {}\n\n{}{}", machines.join(", "), ended.stderr, ended.text());
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&file, &plan).unwrap();
        } else if std::fs::read_to_string(&file).unwrap_or_default() != plan {
            wrong.push(format!("{} differs; now:\n{plan}", file.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_shipped_topology_is_drawn() {
    let place = Place::new();
    for machine in ["two-sockets", "eight-gpus", "four-domains", "laptop", "container"] {
        let picture = place.home.path().join("picture.svg");
        let file = topology(machine);
        let words = ["topo", "--topology", file.to_str().unwrap(), "-n", "4", "--svg", picture.to_str().unwrap()];
        let mut command = Command::new(common::binary());
        command.args(words).env("HOME", place.home.path());
        let text = finish(start(&mut command)).success().text();
        assert!(text.starts_with(&format!("{machine}: ")), "{text}");
        assert!((0..4).all(|rank| text.contains(&format!("rank {rank}: core"))), "{text}");
        let svg = std::fs::read_to_string(&picture).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<g ").count(), svg.matches("</g>").count());
        assert!((0..4).all(|rank| svg.contains(&format!("rank {rank}: core"))));
    }
}

#[test]
fn a_picture_that_cannot_be_written_is_an_error_about_where_output_goes() {
    let place = Place::new();
    let mut command = Command::new(common::binary());
    command.args(["topo", "--svg", "/no/such/folder/host.svg"]).env("HOME", place.home.path());
    finish(start(&mut command)).fails(73, &["/no/such/folder/host.svg"]);
}

/// The processors that this test may use, as the kernel lists them.
fn allowed(status: &str) -> String {
    let line = status.lines().find(|line| line.starts_with("Cpus_allowed_list:")).unwrap();
    line.split_whitespace().nth(1).unwrap().to_string()
}

fn own() -> String {
    allowed(&std::fs::read_to_string("/proc/self/status").unwrap())
}

/// `0-2,5` as numbers.
fn numbers(list: &str) -> Vec<u32> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse::<u32>().unwrap()..=last.parse().unwrap()
    };
    list.split(',').flat_map(range).collect()
}

#[test]
fn the_kernel_binds_each_rank_where_the_plan_says() {
    let place = Place::new();
    let words = ["--report", "bindings", "--report-format", "json", "--map-by", "core", "--bind-to", "core"];
    let ended = place.run(words.iter().chain(&["--tag", "cat", "/proc/self/status"])).success();
    let reports: Vec<serde_json::Value> =
        ended.stderr.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let [plan, kernel] = reports.as_slice() else { panic!("a plan and the kernel's view: {ended:?}") };
    let ranks = kernel["bindings"].as_array().unwrap();
    assert!(!ranks.is_empty());
    let mut used = Vec::new();
    for (rank, bound) in ranks.iter().enumerate() {
        let tag = format!("[{rank}] ");
        let status: Vec<String> =
            ended.text().lines().filter_map(|line| line.strip_prefix(&tag)).map(str::to_string).collect();
        let is = allowed(&status.join("\n"));
        assert_eq!(bound["threads"], is.as_str());
        assert_eq!((&bound["kernel"], &bound["as_planned"]), (&bound["threads"], &true.into()));
        assert_eq!(plan["bindings"][rank]["threads"], bound["threads"]);
        used.extend(numbers(&is));
    }
    // Together they have every processor, each once.
    used.sort_unstable();
    assert_eq!(used, numbers(&own()));
}

#[test]
fn a_rank_is_told_where_it_sits() {
    let place = Place::new();
    let mut words: Vec<String> =
        ["-n", "1", "--report", "nics,bindings", "--report-format", "json"].map(Into::into).into();
    words.extend([common::rank_program().display().to_string(), "placement".to_string()]);
    let ended = place.run(words).success();
    let report: serde_json::Value = serde_json::from_str(ended.stderr.lines().next().unwrap()).unwrap();
    let text = ended.text();
    assert!(text.starts_with(&format!("rank 0 runs on {:?}", numbers(&own()))), "{text}");
    match report["nics"][0]["nic"]["name"].as_str() {
        Some(name) => assert!(text.contains(&format!("name: \"{name}\"")), "{text} {report}"),
        None => assert!(text.contains("None"), "{text} {report}"),
    }
    // Unasked nobody looks for network devices on one host without GPUs; unbound ranks sit nowhere.
    let mut words: Vec<String> = ["-n", "1", "--bind-to", "none"].map(Into::into).into();
    words.extend([common::rank_program().display().to_string(), "placement".to_string()]);
    assert_eq!(place.run(words).success().text(), "rank 0 runs on [] None\n");
}

#[test]
fn ranks_stay_inside_the_processors_that_rsrun_was_given() {
    let place = Place::new();
    let last = numbers(&own()).pop().unwrap().to_string();
    let mut command = Command::new("taskset");
    command.args(["-c", &last, common::binary(), "-n", "1", "cat", "/proc/self/status"]);
    let status = finish(start(command.env("HOME", place.home.path()))).success().text();
    assert_eq!(allowed(&status), last);
    // A second rank has no core of its own there: nobody is bound, and that is told once.
    let mut command = Command::new("taskset");
    command.args(["-c", &last, common::binary(), "-n", "2", "true"]);
    let ended = finish(start(command.env("HOME", place.home.path()))).success();
    assert_eq!(ended.stderr.matches("2 ranks for 1 cores").count(), 1, "{ended:?}");
}

#[test]
fn unbound_ranks_may_run_wherever_rsrun_may() {
    let place = Place::new();
    let ended = place.run(["-n", "1", "--bind-to", "none", "cat", "/proc/self/status"]).success();
    assert_eq!(allowed(&ended.text()), own());
}

#[test]
fn a_rankfile_places_ranks_and_its_mistakes_are_told_with_their_place() {
    let place = Place::new();
    let two = topology("two-sockets");
    let plan = |text: &str| {
        let file = place.write("ranks", text);
        let map = format!("rankfile:{}", file.display());
        let host = format!("a={}", two.display());
        place.run(["--dry-run", "--topology", &host, "--map-by", &map, "--report", "bindings"])
    };
    let text = plan("rank 1=a slot=1:0-1\nrank 0=+n0 slot=5\nrank 2=a numa=1:4\n").success().text();
    let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines[2][..6], ["0", "a", "0", "0", "5", "5,53"]);
    assert_eq!(lines[3][..6], ["1", "a", "1", "1", "24-25", "24-25,72-73"]);
    assert_eq!(lines[4][..6], ["2", "a", "1", "1", "28", "28,76"]);
    plan("rank 0=a slot=0\nrank 0=a slot=1\n").fails(65, &["ranks:2:6: rank 0 stands on line 1"]);
    plan("rank 0=b slot=0\n").fails(65, &["ranks:1: the job has no host `b`, only a"]);
    plan("rank 0=a slot=48\n").fails(65, &["ranks:1: host a has 48 cores, so no core 48"]);
    plan("rank 0=a slot=3\nrank 1=a slot=0:3\n").fails(65, &["ranks:2: rank 1 shares", "rank 0", "--oversubscribe"]);
}

#[test]
fn wrong_options_are_answered_with_the_right_ones() {
    let place = Place::new();
    let two = topology("two-sockets");
    let two = two.to_str().unwrap();
    place.run(["--map-by", "nume", "true"]).fails(64, &["nume", "node, numa, l3, package, core, slot"]);
    place.run(["--bind-to", "chip", "true"]).fails(64, &["chip", "hwthread", "package"]);
    place.run(["--rank-by", "x", "true"]).fails(64, &["slot", "node", "fill", "span"]);
    place.run(["--report", "hosts,all", "true"]).fails(64, &["all", "bindings", "nics"]);
    place.run(["--topology", two, "true"]).fails(64, &["--dry-run"]);
    place.run(["--dry-run", "--topology", "/none.xml"]).fails(65, &["/none.xml", "No such file"]);
    place.run(["--dry-run", "--topology", "/etc/passwd"]).fails(65, &["lstopo"]);
    place.run(["--dry-run", "-host", "b", "--topology", &format!("a={two}")]).fails(64, &["no host a"]);
    place.run(["--dry-run", "-host", "a", "--topology", two, "-n", "49"]).fails(75, &["49 ranks", "a: 48"]);
    place
        .run(["--dry-run", "-host", "a", "--topology", two, "-n", "30", "--cpus-per-rank", "2"])
        .fails(75, &["30 ranks of 2 cores", "a: 24"]);
    place.run(["--cpus-per-rank", "2", "--map-by", "core:pe=3", "true"]).fails(64, &["PE=3"]);
}

#[test]
fn hosts_on_one_machine_share_its_cores_without_overlap() {
    let place = Place::new();
    let cores = numbers(&own()).len();
    let agent = place.script("agent", "#!/bin/sh\nexec sh -c \"$2\"\n");
    let words = ["--launch-agent", agent.to_str().unwrap(), "-host", "a:1,b:1", "--tag", "cat", "/proc/self/status"];
    let ended = place.run(words).success();
    let text = ended.text();
    let of = |rank: usize| {
        let tag = format!("[{rank}] ");
        let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(&tag)).collect();
        numbers(&allowed(&lines.join("\n")))
    };
    if cores > 1 {
        assert!(of(0).iter().all(|cpu| !of(1).contains(cpu)), "{text}");
    } else {
        assert_eq!(of(0), of(1));
    }
}

#[test]
fn every_report_has_a_form_for_programs() {
    let place = Place::new();
    let objects = |words: &[&str]| -> Vec<serde_json::Value> {
        let ended = place.run(words).success();
        let lines = ended.told().filter(|line| line.starts_with('{')).map(str::to_string).collect::<Vec<_>>();
        let lines = if lines.is_empty() { ended.lines() } else { lines };
        lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    let format = "--report-format=json";
    let told = objects(&["--report", "hosts,map,bindings,nics,config", "--phases", format, "-n", "1", "true"]);
    assert_eq!(told.len(), 3, "the plan, what the kernel made of it, the times: {told:?}");
    for topic in ["hosts", "map", "bindings", "nics", "config"] {
        assert!(!told[0][topic].is_null(), "{topic}: {told:?}");
    }
    assert_eq!(told[1]["bindings"][0]["as_planned"], true);
    let phases = told[2]["phases"].as_array().unwrap();
    assert!(phases.iter().any(|phase| phase["phase"] == "connecting" && phase["seconds"].as_f64().unwrap() > 0.0));
    // A command is the first word.
    let topo = finish(start(Command::new(common::binary()).args(["topo", format, "-n", "1"]))).success().text();
    let topo: serde_json::Value = serde_json::from_str(&topo).unwrap();
    assert_eq!(topo["hosts"].as_array().unwrap().len(), 1);
}

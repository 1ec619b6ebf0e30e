//! What a job tells of itself: paths, statistics, traces.

mod common;

use common::{Place, example_program, finish, rank_program, start};
use serde_json::Value;

/// Runs the example on so many ranks with these options.
fn run(place: &Place, options: &[&str], ranks: &str, action: &str) -> common::Ended {
    let mut command = place.rsrun();
    command.current_dir(place.home.path()).args(options).args(["--oversubscribe", "-n", ranks]);
    finish(start(command.arg(rank_program()).arg(action)))
}

fn json(place: &Place, file: &str) -> Value {
    serde_json::from_slice(&std::fs::read(place.home.path().join(file)).unwrap()).unwrap()
}

#[test]
fn rank_0_explains_which_way_messages_take() {
    let place = Place::new();
    let ended = run(&place, &["--explain", "--set", "eager.limit=4KiB"], "3", "sum").success();
    assert!(ended.stderr.contains("to ranks 1-2 on this host: shm"), "{}", ended.stderr);
    assert!(ended.stderr.contains("up to eager.limit = 4KiB (command line --set)"), "{}", ended.stderr);
    assert_eq!(ended.stderr.matches("how its messages travel").count(), 1, "only rank 0: {}", ended.stderr);
    // As JSON where nothing else is, and not among what is said.
    let ended = run(&place, &["--explain=ways.json"], "2", "sum").success();
    assert!(!ended.stderr.contains("\"peers\""), "{}", ended.stderr);
    let explanation = json(&place, "ways.json");
    assert_eq!(explanation["peers"][1]["transport"], "shm");
    assert_eq!(explanation["peers"][1]["port"], Value::Null);
    for wrong in ["loudly", "json", ""] {
        run(&place, &[&format!("--explain={wrong}")], "2", "sum").fails(65, &["report.explain", wrong, ".json"]);
    }
    run(&place, &["--explain=no/such/folder/ways.json"], "2", "sum").fails(73, &["ways.json", "cannot be written"]);
}

#[test]
fn what_collectives_choose_is_said_in_words_or_in_the_file() {
    let place = Place::new();
    let forced = ["--set", "collectives.gather=linear"];
    let ended = run(&place, &["--explain", forced[0], forced[1]], "4", "collectives").success();
    assert_eq!(ended.stderr.matches("all_gather of 800 B among 4 ranks: ").count(), 1, "{}", ended.stderr);
    let ended = run(&place, &["--explain=ways.json", forced[0], forced[1]], "4", "collectives").success();
    assert!(!ended.stderr.contains("all_gather"), "{}", ended.stderr);
    let explanation = json(&place, "ways.json");
    assert_eq!(explanation["peers"][1]["transport"], "shm");
    let said = explanation["collectives"].as_array().unwrap();
    let find = |rank: usize, collective: &str, ranks: usize| {
        let is_it =
            |entry: &&Value| entry["rank"] == rank && entry["collective"] == collective && entry["ranks"] == ranks;
        said.iter().find(is_it).unwrap_or_else(|| panic!("{rank}, {collective}, {ranks}: {explanation:#}"))
    };
    let all = find(0, "all_gather", 4);
    assert_eq!((&all["bytes"], &all["element_bytes"], &all["why"]), (&800.into(), &8.into(), &"formula".into()));
    assert!(all["predicted_seconds"].as_f64().unwrap() > 0.0, "{all}");
    let gather = find(0, "gather", 4);
    assert_eq!((&gather["algorithm"], &gather["why"]), (&"linear".into(), &"configuration".into()));
    assert_eq!(
        (&gather["leaders"], &gather["measured_seconds"], &gather["limited"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    // The first rank of each half says it, which is rank 1 of all in one of them.
    assert_eq!((&find(0, "all_gather", 2)["bytes"], &find(1, "all_gather", 2)["bytes"]), (&12.into(), &12.into()));
    assert_eq!(said.len(), 4, "each kind of call once: {explanation:#}");
    // Ranks that call none.
    run(&place, &["--explain=ways.json"], "2", "sum").success();
    assert_eq!(json(&place, "ways.json")["collectives"], Value::Array(Vec::new()));
}

#[test]
fn statistics_of_all_ranks_are_a_table_at_the_end_and_nothing_is_said_unasked() {
    let place = Place::new();
    let ended = run(&place, &["--stats"], "4", "sum").success();
    assert!(ended.stderr.contains("statistics of 4 ranks: 4 messages, 32 B sent"), "{}", ended.stderr);
    for rank in 0..4 {
        let line = format!("  {rank} ");
        assert!(ended.stderr.lines().any(|found| found.starts_with(&line)), "{}", ended.stderr);
    }
    assert!(!ended.stderr.contains("nothing is known"), "{}", ended.stderr);
    assert!(!run(&place, &[], "4", "sum").success().stderr.contains("statistics"));
}

#[test]
fn statistics_go_to_a_file_as_json_and_every_message_is_received() {
    let place = Place::new();
    let ended = run(&place, &["--stats=stats.json"], "4", "sum").success();
    assert!(!ended.stderr.contains("statistics of"), "{}", ended.stderr);
    let statistics = json(&place, "stats.json");
    let ranks = statistics["ranks"].as_array().unwrap();
    assert_eq!(ranks.len(), 4);
    for rank in ranks {
        assert_eq!(rank["complete"], true);
        let sum = |side: fn(&Value) -> u64| rank["peers"].as_array().unwrap().iter().map(side).sum::<u64>();
        assert_eq!(sum(|peer| peer["received"]["eager"]["messages"].as_u64().unwrap()), 1);
        assert_eq!(sum(|peer| peer["sent"].as_array().unwrap().len() as u64), 1);
    }
}

#[test]
fn a_rank_that_aborts_the_job_still_says_what_it_has_counted() {
    let place = Place::new();
    let ended = run(&place, &["--stats=stats.json", "--trace", "trace.json"], "2", "abort");
    assert_eq!(ended.code, Some(42), "{ended:?}");
    let statistics = json(&place, "stats.json");
    let one = statistics["ranks"].as_array().unwrap().iter().find(|rank| rank["rank"] == 1).unwrap();
    assert_eq!(one["complete"], false);
    assert!(json(&place, "trace.json")["traceEvents"].is_array());
}

#[test]
fn a_trace_has_a_process_for_every_rank_and_an_arrow_for_every_message() {
    let place = Place::new();
    let ended = run(&place, &["--trace", "trace.json"], "3", "sum").success();
    assert!(ended.stderr.contains("rsrun: trace: trace.json: "), "{}", ended.stderr);
    let trace = json(&place, "trace.json");
    let events = trace["traceEvents"].as_array().unwrap();
    let names: Vec<&str> = events
        .iter()
        .filter(|event| event["name"] == "process_name")
        .map(|event| event["args"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(names.iter().all(|name| name.contains(" on ")), "{names:?}");
    let arrows = |ph: &str| {
        let mut ids: Vec<_> =
            events.iter().filter(|event| event["ph"] == ph).map(|event| event["id"].as_str().unwrap()).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(arrows("s"), ["0-1-1", "1-2-1", "2-0-1"]);
    assert_eq!(arrows("s"), arrows("f"));
}

#[test]
fn a_file_that_cannot_be_written_is_an_error_before_anything_starts() {
    let place = Place::new();
    for option in ["--stats=no/such/folder/s.json", "--trace=no/such/folder/t.json"] {
        let ended = run(&place, &[option], "2", "sum").fails(73, &["no/such/folder", "cannot be written"]);
        assert_eq!(ended.text(), "");
    }
}

#[test]
fn of_a_job_that_never_started_only_the_reason_is_said() {
    let place = Place::new();
    let trace = place.home.path().join("trace.json").display().to_string();
    let ended = place.run(["--stats", "--trace", &trace, "-n", "1", "/no/such/program"]);
    assert!(ended.stderr.contains("/no/such/program"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("statistics") && !ended.stderr.contains("trace:"), "{}", ended.stderr);
}

#[test]
fn collectives_in_shared_memory_are_counted_though_they_send_nothing() {
    let place = Place::new();
    let mut command = place.rsrun();
    command.current_dir(place.home.path()).args(["--stats=stats.json", "--on-failure", "continue", "--oversubscribe"]);
    command.args(["-n", "3"]).arg(example_program("survivor"));
    let ended = finish(start(command.args(["sums", "200", "2", "all_reduce", "100"])));
    assert_eq!(ended.code, Some(137), "{ended:?}");
    let statistics = json(&place, "stats.json");
    let (ranks, all) = (statistics["ranks"].as_array().unwrap(), &statistics["memory"]["collectives"]);
    let of = |rank: usize, what: &str| ranks[rank]["memory"]["collectives"][what].as_u64().unwrap();
    // As many on both survivors, but for the last one, in which the third died; each has 100 elements of 8 bytes.
    assert!(of(0, "calls") > 1 && of(0, "calls").abs_diff(of(1, "calls")) <= 1, "{statistics}");
    for rank in [0, 1] {
        assert!(of(rank, "bytes").abs_diff(of(rank, "calls") * 800) <= 1600, "{statistics}");
    }
    assert!(all["calls"].as_u64().unwrap() >= of(0, "calls") + of(1, "calls"), "{statistics}");
}

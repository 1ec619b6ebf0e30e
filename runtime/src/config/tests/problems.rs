use super::{file, lines, option, set, variable, with_file, with_set};
use crate::config::{Layers, Place, Problem, resolve};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

#[test]
fn all_problems_of_all_layers_come_in_one_go_and_each_names_its_place() {
    let layers = Layers {
        system: Some(file("/etc/rsrun/config.toml", "[shm]\nrign_bytes = 1\n")),
        user: Some(file("/home/u/.config/rsrun/config.toml", "launch.window = 0\neager.limit = 'x'\n")),
        job: Some(file("job.toml", "wait.spin = \n")),
        environment: vec![
            variable("RSRUN_WAIT_POLICY", "spinn"),
            variable("RSRUN_EAGER_LIMITS", "1"),
            (OsString::from("RSRUN_LAUNCH_AGENT"), OsString::from_vec(vec![0xff])),
            (OsString::from_vec(b"RSRUN_\xfe".to_vec()), OsString::from("1")),
        ],
        command_line: vec![
            option("--mca", "btl_tcp_if_include", "eth0"),
            set("transport.allow", "tpc"),
            set("nonsense", "1"),
            // Right values do not hide the problems above.
            set("launch.window", "8"),
        ],
    };
    assert_eq!(
        lines(resolve(&layers)),
        [
            "/etc/rsrun/config.toml:2:1: unknown key `shm.rign_bytes`: did you mean shm.ring_bytes?",
            "/home/u/.config/rsrun/config.toml:1:17: launch.window = `0`: too small; allowed: 1 to 4096",
            "/home/u/.config/rsrun/config.toml:2:15: eager.limit = `x`: a number is missing; allowed: 0 to 1MiB",
            "job.toml:1:13: string values must be quoted, expected literal string: `wait.spin =`",
            "environment RSRUN_EAGER_LIMITS: unknown key `RSRUN_EAGER_LIMITS`: did you mean RSRUN_EAGER_LIMIT?",
            "environment RSRUN_LAUNCH_AGENT: the variable is not valid UTF-8: correct it or unset it",
            "environment RSRUN_WAIT_POLICY: wait.policy = `spinn`: `spinn` is not known, did you mean `spin`?; allowed: auto, spin, yield, sleep",
            "environment RSRUN_\u{fffd}: the variable is not valid UTF-8: correct it or unset it",
            "command line --mca: unknown key `btl_tcp_if_include`: a setting of Open MPI; here it is tcp.interfaces",
            "command line --set: transport.allow = `tpc`: `tpc` is not known, did you mean `tcp`?; allowed: one or more of shm, verbs, tcp, separated by commas",
            "command line --set: unknown key `nonsense`: `rsrun config` lists all keys",
        ]
    );
}

#[test]
fn problems_can_be_told_apart_by_a_program() {
    let error = with_set(&[("a.b", "1")]).unwrap_err();
    let [Problem::UnknownKey { place: Place::CommandLine { option }, name, .. }] = error.problems() else {
        panic!("{error:?}");
    };
    assert_eq!((option.as_str(), name.as_str()), ("--set", "a.b"));
}

#[test]
fn a_key_twice_in_one_layer_with_different_values_names_both() {
    assert_eq!(
        lines(with_file("low_latency_rdma_size_hint = 16384\n[low_latency]\nsize_hint = '8k'\n")),
        ["job.toml:3:1: `low_latency.size_hint` is 8KiB, but `low_latency_rdma_size_hint` is 16KiB in job.toml:1:1, \
             and both name the key low_latency.size_hint: keep one of them"]
    );
    let environment = vec![variable("RSRUN_LOW_LATENCY_SIZE_HINT", "1"), variable("RDMA_LOW_LATENCY_HINT", "2")];
    assert_eq!(
        lines(resolve(&Layers { environment, ..Layers::default() })),
        [
            "environment RSRUN_LOW_LATENCY_SIZE_HINT: `RSRUN_LOW_LATENCY_SIZE_HINT` is 1, but `RDMA_LOW_LATENCY_HINT` is 2 \
             in environment RDMA_LOW_LATENCY_HINT, and both name the key low_latency.size_hint: keep one of them"
        ]
    );
}

#[test]
fn the_same_key_twice_in_a_file_is_an_error_in_every_notation() {
    for (text, place) in [
        ("eager.limit = 1\neager.limit = 2", "job.toml:2:7: duplicate key"),
        ("[eager]\nlimit = 1\nlimit = 2", "job.toml:3:1: duplicate key"),
        ("eager.limit = 1\n[eager]\nlimit = 2", "job.toml:2:2: duplicate key"),
        (
            "'eager.limit' = 1\neager.limit = 2",
            "job.toml:2:7: `eager.limit` is 2, but `eager.limit` is 1 in job.toml:1:1, and",
        ),
    ] {
        let lines = lines(with_file(text));
        assert!(lines[0].starts_with(place), "{text:?}: {lines:?}");
    }
}

#[test]
fn a_file_that_is_not_toml_names_each_place_and_its_line() {
    assert_eq!(
        lines(with_file("launch.agent = 'x\n")),
        ["job.toml:1:18: invalid literal string, expected `'`: `launch.agent = 'x`"]
    );
    assert_eq!(
        lines(with_file("eager.limit 4\n[shm\nring_bytes = 4096\n")),
        [
            "job.toml:1:13: key with no value, expected `=`: `eager.limit 4`",
            "job.toml:2:5: unclosed table, expected `]`: `[shm`",
        ]
    );
}

#[test]
fn columns_count_characters_and_not_bytes() {
    let lines = lines(with_file("launch = { agent = 'größer', windw = 1 }"));
    assert_eq!(lines, ["job.toml:1:30: unknown key `launch.windw`: did you mean launch.window?"]);
}

#[test]
fn values_of_the_wrong_shape_are_refused() {
    assert_eq!(
        lines(with_file(
            "launch.agent = 5\nlaunch.grace = 1979-05-27\nlaunch.window = [1]\nwait.spin = 5\neager.limit = 1.5\n\
             wait.policy = true\ntransport.allow = [['shm']]\nshm.ring_bytes = 0xfff_ffff_ffff_ffff_ffff"
        )),
        [
            "job.toml:1:16: launch.agent = `5`: write it as a string, in quotes; allowed: text of one line, at most 262144 bytes",
            "job.toml:2:16: launch.grace = `1979-05-27`: a date; allowed: 0s to 1h",
            "job.toml:3:17: launch.window = `[1]`: an array; allowed: 1 to 4096",
            "job.toml:4:13: wait.spin = `5`: a time needs a unit (us, ms, s, min, h), for example 200ms; allowed: 0s to 1s",
            "job.toml:5:15: eager.limit = `1.5`: `1.5` is no whole number of 0 or more; allowed: 0 to 1MiB",
            "job.toml:6:15: wait.policy = `true`: `true` is not known; allowed: auto, spin, yield, sleep",
            "job.toml:7:19: transport.allow = `[['shm']]`: a nested array; allowed: one or more of shm, verbs, tcp, separated by commas",
            "job.toml:8:18: shm.ring_bytes = `0xfff_ffff_ffff_ffff_ffff`: `xfff_ffff_ffff_ffff_ffff` is no unit of size \
             (KiB, MiB, GiB, TiB); allowed: 4KiB to 16MiB, a power of two",
        ]
    );
}

#[test]
fn sections_that_lead_nowhere_are_refused_even_when_empty() {
    assert_eq!(
        lines(with_file("[shm.ring_bytes]\n[shmm]\n[eager]\n[launch.ssh]\nx = 1\n")),
        [
            "job.toml:1:6: `shm.ring_bytes` is a key and takes a value, not a section",
            "job.toml:2:2: `shmm` is a section that no key belongs to",
            "job.toml:4:9: `launch.ssh` is a key and takes a value, not a section",
        ]
    );
}

#[test]
fn settings_of_other_libraries_are_named_in_the_hint_and_not_accepted() {
    for (name, hint) in [
        ("btl_sm_eager_limit", "a setting of Open MPI; here it is eager.limit"),
        ("mpi_yield_when_idle", "a setting of Open MPI; here it is wait.policy"),
        ("MPIR_CVAR_ALLREDUCE_INTRA_ALGORITHM", "a setting of MPICH; here it is collectives.all_reduce"),
        ("UCX_NET_DEVICES", "a setting of UCX; here it is tcp.interfaces"),
    ] {
        let command_line = vec![option("--mca", name, "1")];
        let lines = lines(resolve(&Layers { command_line, ..Layers::default() }));
        assert_eq!(lines, [format!("command line --mca: unknown key `{name}`: {hint}")]);
    }
}

#[test]
fn a_message_stays_one_line_whatever_the_value_holds() {
    let lines =
        lines(with_set(&[("wait.policy", "a\nb\u{1b}[31m"), ("x\ny", &"z".repeat(5000)), ("eager.limit", "1\tx\r")]));
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines.iter().all(|line| line.len() < 500 && !line.contains(char::is_control)), "{lines:?}");
}

#[test]
fn very_many_problems_are_counted_and_the_first_are_shown() {
    let text: String = (0..30_000).map(|n| format!("key{n} = 1\n")).collect();
    let error = with_file(&text).unwrap_err();
    assert_eq!(error.problems().len(), 30_000);
    let lines = error.to_string();
    assert_eq!(lines.lines().count(), 41);
    assert_eq!(lines.lines().last(), Some("and 29960 more problems of the configuration"));
}

#[test]
fn deep_nesting_is_a_problem_and_not_a_crash() {
    for text in [
        "a.".repeat(100_000) + "a = 1",
        format!("a = {}", "[".repeat(100_000)),
        format!("a = {}", "{a=".repeat(100_000)),
    ] {
        let lines = lines(with_file(&text));
        assert!(lines[0].contains("recursion"), "{lines:?}");
    }
}

use crate::config::foreign::FOREIGN;
use crate::config::keys::{self, HANDLES, TABLE};
use crate::config::{Kind, Snapshot, Value, Words, find, foreign_variable, is_configuration_variable, nearest};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::time::Duration;

#[test]
fn every_handle_has_the_name_of_its_key_in_capitals() {
    let expected: Vec<_> = TABLE.iter().map(|spec| spec.name.replace('.', "_").to_ascii_uppercase()).collect();
    assert_eq!(HANDLES, expected);
}

#[test]
fn every_default_is_allowed_and_reads_back_from_its_own_text() {
    for spec in TABLE {
        let value = spec.kind.default_value();
        assert_eq!(spec.kind.check(&value), Ok(()), "{}", spec.name);
        assert_eq!(spec.kind.parse(&value.to_string()), Ok(value), "{}", spec.name);
    }
}

#[test]
fn every_row_says_what_it_does_and_who_reads_it() {
    for spec in TABLE {
        assert!(spec.doc.trim().len() > 20, "{} has no description", spec.name);
        assert!(!spec.reader.is_empty(), "{} names no reader", spec.name);
    }
}

#[test]
fn no_name_alias_or_variable_is_there_twice() {
    let names: Vec<_> = TABLE.iter().flat_map(|spec| std::iter::once(&spec.name).chain(spec.aliases)).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
    let variables: Vec<_> = TABLE
        .iter()
        .flat_map(|spec| {
            let aliases = spec.environment_aliases.iter().map(ToString::to_string);
            std::iter::once(spec.environment()).chain(aliases)
        })
        .collect();
    assert_eq!(variables.iter().collect::<BTreeSet<_>>().len(), variables.len());
}

#[test]
fn keys_of_one_section_stand_together() {
    let mut sections: Vec<_> = TABLE.iter().filter_map(|spec| spec.name.split('.').next()).collect();
    sections.dedup();
    assert_eq!(sections.iter().collect::<BTreeSet<_>>().len(), sections.len());
}

#[test]
fn the_defaults_are_those_of_the_documentation() {
    let snapshot = Snapshot::defaults();
    assert_eq!(snapshot.get(keys::LOW_LATENCY_SIZE_HINT), 0);
    assert_eq!(snapshot.get(keys::TRANSPORT_ALLOW), "shm,verbs,tcp");
    assert_eq!(snapshot.get(keys::SHM_RING_BYTES), 4 << 20);
    assert_eq!(snapshot.get(keys::EAGER_LIMIT), 8192);
    assert_eq!(snapshot.get(keys::TCP_INTERFACES), "");
    assert_eq!(snapshot.get(keys::TCP_CONNECT_TIMEOUT), Duration::from_secs(10));
    assert_eq!(snapshot.get(keys::TCP_BUFFER_BYTES), 262_144);
    assert_eq!(snapshot.get(keys::WAIT_POLICY), "auto");
    assert_eq!(snapshot.get(keys::WAIT_SPIN), Duration::from_micros(50));
    assert_eq!(snapshot.get(keys::LAUNCH_AGENT), "");
    assert_eq!(snapshot.get(keys::LAUNCH_SSH), "auto");
    assert_eq!(snapshot.get(keys::LAUNCH_WINDOW), 64);
    assert_eq!(snapshot.get(keys::LAUNCH_CONNECT_TIMEOUT), Duration::from_secs(8));
    assert_eq!(snapshot.get(keys::LAUNCH_START_TIMEOUT), Duration::from_secs(60));
    assert_eq!(snapshot.get(keys::LAUNCH_GRACE), Duration::from_secs(1));
}

#[test]
fn names_that_people_know_from_elsewhere_are_the_size_hint() {
    assert_eq!(find("low_latency_rdma_size_hint").map(|spec| spec.name), Some("low_latency.size_hint"));
    assert!(is_configuration_variable(OsStr::new("RDMA_LOW_LATENCY_HINT")));
}

#[test]
fn variables_with_the_prefix_are_configuration_whatever_follows() {
    assert!(is_configuration_variable(OsStr::new("RSRUN_NO_SUCH_KEY")));
    assert!(is_configuration_variable(OsStr::from_bytes(b"RSRUN_\xff")));
    for other in ["RSRUN", "rsrun_eager_limit", "SPMD_RANK", "XRSRUN_EAGER_LIMIT", "EAGER_LIMIT"] {
        assert!(!is_configuration_variable(OsStr::new(other)), "{other}");
    }
}

#[test]
fn the_nearest_key_is_found_through_slips_of_every_kind() {
    for (written, meant) in [
        ("shm.ring_byts", &["shm.ring_bytes"][..]),
        ("shm_ring_bytes", &["shm.ring_bytes"]),
        ("SHM.Ring-Bytes", &["shm.ring_bytes"]),
        ("ring_bytes", &["shm.ring_bytes", "verbs.ring_bytes"]),
        ("collectives.allreduce", &["collectives.all_reduce"]),
        ("transprot.allow", &["transport.allow"]),
        ("low_latency_rdma_size_hnt", &["low_latency.size_hint"]),
        ("shm.low_latency_rdma_size_hint", &["low_latency.size_hint"]),
        ("connect_timeout", &["tcp.connect_timeout", "launch.connect_timeout"]),
        // The end is missing.
        ("shm.ring", &["shm.ring_bytes"]),
        ("SHM_RING", &["shm.ring_bytes"]),
        ("zzz", &[]),
        ("", &[]),
    ] {
        assert_eq!(nearest(written).iter().map(|spec| spec.name).collect::<Vec<_>>(), meant, "{written:?}");
    }
}

#[test]
fn variables_of_another_mpi_are_known_and_those_that_programs_may_use_themselves_are_not() {
    let found = |name: &str| foreign_variable(name).map(|variable| (variable.library, variable.key));
    assert_eq!(found("OMPI_MCA_btl_tcp_if_include"), Some(("Open MPI", Some("tcp.interfaces"))));
    assert_eq!(found("OMPI_MCA_pml"), Some(("Open MPI", None)));
    assert_eq!(found("I_MPI_FABRICS"), Some(("Intel MPI", None)));
    for name in ["UCX_TLS", "NCCL_SOCKET_IFNAME", "OMPI_ALLOW_RUN_AS_ROOT", "RSRUN_EAGER_LIMIT", "PATH"] {
        assert_eq!(found(name), None, "{name}");
    }
}

#[test]
fn every_equivalent_of_a_foreign_setting_is_a_key() {
    for foreign in FOREIGN {
        assert_eq!(foreign.key().name, foreign.equivalent);
        assert!(find(foreign.name).is_none(), "{} would be accepted silently", foreign.name);
        assert_eq!(foreign.name, foreign.name.to_ascii_lowercase());
    }
}

#[test]
fn a_flag_is_read_and_checked_like_every_other_kind() {
    let kind = Kind::Flag { default: false };
    assert_eq!(kind.default_value(), Value::Flag(false));
    assert_eq!(kind.parse("yes"), Ok(Value::Flag(true)));
    assert!(kind.parse("maybe").is_err());
    assert!(kind.check(&Value::Count(1)).is_err());
}

#[test]
fn ranges_include_both_ends_and_nothing_beyond() {
    let kind = &find("shm.ring_bytes").unwrap().kind;
    assert_eq!(kind.parse("4KiB"), Ok(Value::Bytes(4096)));
    assert_eq!(kind.parse("16MiB"), Ok(Value::Bytes(16 << 20)));
    assert_eq!(kind.parse("2KiB"), Err("too small".into()));
    assert_eq!(kind.parse("32MiB"), Err("too large".into()));
    assert_eq!(kind.parse("12KiB"), Err("not a power of two".into()));
    let kind = &find("launch.window").unwrap().kind;
    assert_eq!(kind.parse("4096"), Ok(Value::Count(4096)));
    assert_eq!(kind.parse("0"), Err("too small".into()));
    assert_eq!(kind.parse("4097"), Err("too large".into()));
    let kind = &find("tcp.connect_timeout").unwrap().kind;
    assert_eq!(kind.parse("100ms"), Ok(Value::Duration(Duration::from_millis(100))));
    assert_eq!(kind.parse("99ms"), Err("too small".into()));
    assert_eq!(kind.parse("11min"), Err("too large".into()));
}

#[test]
fn lists_are_known_words_each_once() {
    let kind = Kind::List { default: "shm", of: Words::OneOf(&["shm", "tcp"]) };
    assert_eq!(kind.parse(" tcp , shm "), Ok(Value::Text("tcp,shm".into())));
    assert_eq!(kind.parse(""), Err("at least one word is needed".into()));
    assert_eq!(kind.parse("tcp,"), Err("there is nothing before or after a comma".into()));
    assert_eq!(kind.parse("tcp,tcp"), Err("`tcp` is there twice".into()));
    assert_eq!(kind.parse("tpc"), Err("`tpc` is not known, did you mean `tcp`?".into()));
    assert_eq!(kind.parse("verbs"), Err("`verbs` is not known".into()));
}

#[test]
fn levels_go_from_the_inner_to_the_outer() {
    let kind = &find("collectives.groups").unwrap().kind;
    for good in ["host", "group", "none", "host, group", "4", "2,2", "4,host", "2,host,8,group", "host,8"] {
        assert!(kind.parse(good).is_ok(), "{good:?}: {:?}", kind.parse(good));
    }
    for (bad, reason) in [
        ("", "at least one word is needed"),
        ("host,", "there is nothing before or after a comma"),
        ("group,host", "write `host` before `group`"),
        ("host,none", "`none` stands alone"),
        ("none,host", "`none` stands alone"),
        ("host,host", "`host` is there twice"),
        ("1,host", "`1` must be 2 to 1000000 neighbours"),
        ("0", "`0` must be 2 to 1000000 neighbours"),
        ("host,99999999999", "`99999999999` must be 2 to 1000000 neighbours"),
        ("hosts,group", "`hosts` is not known, did you mean `host`?"),
        ("-4", "`-4` is not known"),
    ] {
        let found = kind.parse(bad).unwrap_err();
        assert!(found.contains(reason), "{bad:?}: {found}");
    }
}

#[test]
fn interfaces_are_names_or_prefixes() {
    let kind = &find("tcp.interfaces").unwrap().kind;
    for good in [
        "",
        "eth0",
        "eth0, ib0",
        "10.0.0.0/8",
        "fd00::/8",
        "0.0.0.0/0",
        "10.1.2.3",
        "fd00::1",
        "eth0:1",
        "enp1s0f0np0,192.168.0.1/32",
    ] {
        assert!(kind.parse(good).is_ok(), "{good:?}: {:?}", kind.parse(good));
    }
    for (bad, reason) in [
        ("10.0.0.0/33", "the prefix length of `10.0.0.0/33` must be 0 to 32"),
        ("10.0.0.0/", "the prefix length of `10.0.0.0/` must be 0 to 32"),
        ("10.0.0.0/ 8", "the prefix length of `10.0.0.0/ 8` must be 0 to 32"),
        ("10.0.0.0/+8", "the prefix length of `10.0.0.0/+8` must be 0 to 32"),
        ("fd00::/129", "the prefix length of `fd00::/129` must be 0 to 128"),
        ("eth0/8", "`eth0/8` is no address prefix such as 10.0.0.0/8"),
        ("a-name-too-long-for-the-kernel", "`a-name-too-long-for-the-kernel` cannot be the name of an interface"),
        ("eth 0", "`eth 0` cannot be the name of an interface"),
    ] {
        assert_eq!(kind.parse(bad), Err(reason.into()), "{bad:?}");
    }
}

#[test]
fn texts_are_one_line_of_bounded_length() {
    let kind = Kind::Text { default: "" };
    assert_eq!(kind.parse("ip netns exec {host} rsrun"), Ok(Value::Text("ip netns exec {host} rsrun".into())));
    assert!(kind.parse("two\nlines").is_err());
    assert!(kind.parse(&"x".repeat(262_144)).is_ok());
    assert!(kind.parse(&"x".repeat(262_145)).is_err());
}

#[test]
fn a_group_is_all_keys_that_begin_with_its_name() {
    assert!(keys::group("tcp").contains(&"tcp.reconnect") && keys::group("tcp") == keys::group("tcp."));
    assert!(keys::group("tcp").iter().all(|key| key.starts_with("tcp.")));
    for none in ["", ".", "tc", "tcp.reconnect", "nothing"] {
        assert!(keys::group(none).is_empty(), "{none}");
    }
}

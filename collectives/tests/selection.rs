//! What decides how a call is done where all ranks are on one host: its memory, a rule of the tuning table, a key; and what is
//! said of it.

use serde_json::Value;
use spmd::local::Cluster;
use spmd_collectives::prelude::*;

/// All-reduces of four ranks on one host up to 1 KiB go round a ring, those above through memory.
const RULES: &str = "rule all_reduce ranks=4 groups=1 bytes=0..1024 operator=commutative algorithm=ring segment=1024 \
                     chunk=1024 leaders=1 predicted=1e-6 measured=2e-6;\
                     rule all_reduce ranks=4 groups=1 bytes=1025.. operator=any algorithm=shared segment=auto chunk=auto \
                     leaders=1";

/// How many of these calls went through memory, on every rank: of an all-reduce of so many bytes, which is right.
fn in_memory(cluster: &Cluster, bytes: usize) -> Vec<u64> {
    let program = |world: &spmd::World| {
        let comm = world.communicator();
        let before = world.statistics().memory.collectives.calls;
        let mut data = vec![comm.rank() as u64; bytes / 8];
        comm.all_reduce(&mut data, Sum).unwrap();
        let sum: u64 = (0..comm.size() as u64).sum();
        assert_eq!(data, vec![sum; bytes / 8]);
        world.statistics().memory.collectives.calls - before
    };
    cluster.run(program).unwrap()
}

#[test]
fn a_rule_for_one_host_decides_and_a_key_decides_before_it() {
    let ruled = Cluster::new(4).set("collectives.table", RULES);
    assert_eq!(in_memory(&ruled, 64), [0; 4]);
    assert_eq!(in_memory(&ruled, 4096), [1; 4]);
    assert_eq!(in_memory(&Cluster::new(4), 64), [1; 4]);
    assert_eq!(in_memory(&Cluster::new(4).set("collectives.all_reduce", "binomial"), 4096), [0; 4]);
    assert_eq!(
        in_memory(&Cluster::new(4).set("collectives.table", RULES).set("collectives.all_reduce", "shared"), 64),
        [1; 4]
    );
    // It is for four ranks.
    assert_eq!(in_memory(&Cluster::new(3).set("collectives.table", RULES), 64), [1; 3]);
    // A ring needs an operator that commutes: the next that may be used, which is memory.
    let first = Cluster::new(4).set("collectives.table", RULES).run(|world| {
        let comm = world.communicator();
        let mut first = [comm.rank() + 1];
        comm.all_reduce(&mut first, custom(|a, _| a)).unwrap();
        (first[0], world.statistics().memory.collectives.calls)
    });
    assert_eq!(first.unwrap(), [(1, 1); 4]);
}

#[test]
fn a_rule_for_two_hops_in_memory_decides_on_one_host_with_groups() {
    let rule = "rule all_reduce ranks=4 groups=2 bytes=0.. operator=any algorithm=two_hop_shared segment=auto chunk=auto leaders=1";
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ways.json");
    let cluster = Cluster::new(4)
        .set("collectives.group_size", "2")
        .set("collectives.table", rule)
        .set("report.explain", file.to_str().unwrap());
    assert_eq!(in_memory(&cluster, 4096), [1; 4]);
    let said: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(said["collectives"][0]["algorithm"], "two_hop_shared", "{said:#}");
}

#[test]
fn what_goes_through_memory_is_explained_once_with_what_else_is_allowed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ways.json");
    let cluster = Cluster::new(4).set("collectives.table", RULES).set("report.explain", file.to_str().unwrap());
    let done = cluster.run(|world| {
        let comm = world.communicator();
        for _ in 0..3 {
            comm.barrier().unwrap();
            comm.all_reduce(&mut [1.0_f32; 2], Sum).unwrap();
            comm.all_reduce(&mut [1.0_f32; 2048], Sum).unwrap();
        }
        // By messages, as it does not block.
        comm.iall_reduce(vec![1.0_f32; 2048], Sum).unwrap().wait().unwrap();
    });
    done.unwrap();
    let said: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let said = said["collectives"].as_array().unwrap();
    let ways: Vec<_> =
        said.iter().map(|way| ["collective", "algorithm", "why"].map(|word| way[word].as_str().unwrap())).collect();
    assert_eq!(
        ways[..3],
        [["barrier", "shared", "memory"], ["all_reduce", "ring", "rule"], ["all_reduce", "shared", "rule"]]
    );
    assert_eq!((ways.len(), ways[3][0], ways[3][2]), (4, "all_reduce", "formula"), "{ways:?}");
    assert_eq!(said[0]["alternatives"], serde_json::json!(["binomial", "dissemination"]));
    assert_eq!((&said[1]["measured_seconds"], &said[2]["measured_seconds"]), (&2e-6.into(), &Value::Null));
    assert!(said[1]["alternatives"].as_array().unwrap().contains(&"shared".into()), "{}", said[1]);
    assert!(said[2]["predicted_seconds"].as_f64().unwrap() > 0.0);
    // Not by messages.
    assert!(!said[3]["alternatives"].as_array().unwrap().contains(&"shared".into()), "{}", said[3]);
}

#[test]
fn what_may_not_be_used_on_one_host_is_refused_with_its_memory_among_the_others() {
    let texts = Cluster::new(4).set("collectives.all_reduce", "two_hop").run(|world| {
        let comm = world.communicator();
        let text = comm.all_reduce(&mut [1_u8], Sum).unwrap_err().to_string();
        let later = comm.iall_reduce(vec![1_u8], Sum).unwrap_err().to_string();
        comm.barrier().unwrap();
        (text, later)
    });
    for (text, later) in texts.unwrap() {
        assert!(text.contains("there must be several groups") && text.ends_with("rabenseifner, shared"), "{text}");
        assert!(later.contains("there must be several groups") && later.ends_with("rabenseifner"), "{later}");
    }
}

#[test]
fn ranks_whose_lengths_take_different_ways_by_a_rule_all_get_an_error() {
    let cluster = Cluster::new(4).set("collectives.table", RULES).set("collectives.check_after", "100ms");
    let results = cluster.run(|world| {
        let comm = world.communicator();
        let length = if comm.rank() == 2 { 4096 } else { 16 };
        comm.all_reduce(&mut vec![1_u8; length], Sum)
    });
    for result in results.unwrap() {
        let text = result.unwrap_err().to_string();
        assert!(text.contains("all_reduce of 4096 u8") && text.contains("all_reduce of 16 u8"), "{text}");
    }
}

#[test]
fn leaders_are_told_as_many_as_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ways.json");
    let cluster = Cluster::new(5)
        .set("collectives.group_size", "3")
        .set("collectives.leaders", "64")
        .set("collectives.all_reduce", "two_hop")
        .set("collectives.reduce", "two_hop")
        .set("report.explain", file.to_str().unwrap());
    let done = cluster.run(|world| {
        let comm = world.communicator();
        comm.all_reduce(&mut [1_u8; 9], Sum).unwrap();
        comm.reduce(&[1_u8; 9], Sum, 0).unwrap();
    });
    done.unwrap();
    let said: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    // Groups of three and of two ranks; a reduction has one leader a group.
    assert_eq!([0, 1].map(|entry| said["collectives"][entry]["leaders"].as_u64()), [Some(2), Some(1)], "{said:#}");
}

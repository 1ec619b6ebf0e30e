//! The same body over every transport.
#![allow(dead_code, reason = "each test program uses some of it")]

use spmd::{World, local::Cluster};

/// Every way in which two ranks can be connected, and settings that move the borders between protocols.
pub(crate) fn clusters(ranks: usize) -> Vec<(&'static str, Cluster)> {
    if std::env::var("SPMD_TEST_TRANSPORT").is_ok_and(|name| name == "verbs") {
        return over_rdma(ranks);
    }
    vec![
        ("shm", Cluster::new(ranks)),
        ("shm, small rings", Cluster::new(ranks).set("shm.ring_bytes", "4KiB")),
        ("shm, everything by rendezvous", Cluster::new(ranks).set("eager.limit", "0")),
        ("shm, read directly", Cluster::new(ranks).set("shm.direct_read", "always").set("eager.limit", "64")),
        ("shm, sleeping", Cluster::new(ranks).set("wait.policy", "sleep")),
        // Ranks with a processor of their own sleep behind barriers that they make for all.
        ("shm, sleeping soon", Cluster::new(ranks).set("wait.spin", "1us")),
        ("tcp", Cluster::new(ranks).set("transport.allow", "tcp")),
        (
            "tcp, everything by rendezvous",
            Cluster::new(ranks).set("transport.allow", "tcp").set("tcp.eager_limit", "0"),
        ),
        ("tcp, small buffers", Cluster::new(ranks).set("transport.allow", "tcp").set("tcp.buffer_bytes", "4KiB")),
        ("tcp, sleeping", Cluster::new(ranks).set("transport.allow", "tcp").set("wait.policy", "sleep")),
        ("tcp, several sockets", Cluster::new(ranks).set("transport.allow", "tcp").set("tcp.sockets", "3")),
        ("two hosts", Cluster::new(ranks).hosts(2)),
        ("faulty shm", Cluster::new(ranks).set("faulty.seed", "1").set("shm.ring_bytes", "64KiB")),
        (
            "faulty tcp",
            Cluster::new(ranks)
                .set("transport.allow", "tcp")
                .set("tcp.sockets", "2")
                .set("tcp.resend_bytes", "64KiB")
                .set("faulty.seed", "2"),
        ),
    ]
}

/// The same over RDMA alone, for machines that have it: the lab runs this file there.
fn over_rdma(ranks: usize) -> Vec<(&'static str, Cluster)> {
    let verbs = || Cluster::new(ranks).set("transport.allow", "verbs").set("verbs.device", "rxe0,rxe1");
    // A receiver that is not ready would break a connection that tries only once.
    let strict = || verbs().set("verbs.rnr_retries", "0");
    vec![
        ("verbs", strict()),
        ("verbs, everything by rendezvous", verbs().set("verbs.eager_limit", "0")),
        ("verbs, small rings", strict().set("verbs.ring_bytes", "64KiB").set("verbs.send_depth", "16")),
        ("verbs, sleeping", verbs().set("wait.policy", "sleep")),
        ("verbs, two channels", strict().set("low_latency.size_hint", "4KiB")),
        ("verbs, three queue pairs for bulk", strict().set("verbs.queue_pairs", "3").set("verbs.eager_limit", "4KiB")),
        ("verbs, every request reported", verbs().set("verbs.signal_all", "true").set("verbs.inline", "0")),
    ]
}

pub(crate) fn every_transport(ranks: usize) -> impl Iterator<Item = (&'static str, Cluster)> {
    clusters(ranks).into_iter()
}

/// With `SPMD_TEST_TRANSPORT=launched`, in the world that `rsrun` has made: one test (`--exact`), whose number of ranks
/// `SPMD_TEST_TRANSPORT=ranks` prints beforehand. The lab runs tests so on two machines.
pub(crate) fn on_every_transport(ranks: usize, body: impl Fn(&World) -> spmd::Result<()> + Sync) {
    match std::env::var("SPMD_TEST_TRANSPORT").as_deref() {
        Ok("ranks") => println!("ranks {ranks}"),
        Ok("launched") => {
            let world = World::init().expect("rsrun has started this");
            assert_eq!(world.size(), ranks, "start the test with so many ranks");
            body(&world).unwrap_or_else(|error| panic!("rank {}: {error}", world.rank()));
        }
        _ => on(every_transport(ranks), body),
    }
}

pub(crate) fn on(
    clusters: impl Iterator<Item = (&'static str, Cluster)>,
    body: impl Fn(&World) -> spmd::Result<()> + Sync,
) {
    for (name, cluster) in clusters {
        for (rank, result) in cluster.run(|world| body(world)).expect(name).into_iter().enumerate() {
            result.unwrap_or_else(|error| panic!("{name}, rank {rank}: {error}"));
        }
    }
}

/// Lengths around every border: nothing, one, eager limit, pieces, rings, and well beyond.
pub(crate) const LENGTHS: [usize; 14] =
    [0, 1, 7, 8, 100, 1000, 4095, 8192, 8193, 16_384, 65_536, 65_537, 300_000, 2_000_003];

pub(crate) fn pattern(length: usize, seed: usize) -> Vec<u8> {
    (0..length).map(|i| ((i * 31 + seed * 17) >> 3) as u8).collect()
}

/// Ends the test, and says where, when `body` hangs: a lost wake-up must not look like a slow machine.
pub(crate) fn without_hanging(name: &'static str, body: impl FnOnce() + Send + 'static) {
    let (done, ended) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        body();
        let _ = done.send(());
    });
    match ended.recv_timeout(std::time::Duration::from_secs(120)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("{name} hangs"),
        _ => thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)),
    }
}

/// Every way to wait, over shared memory and over TCP.
pub(crate) fn every_way_to_wait(ranks: usize) -> impl Iterator<Item = Cluster> {
    ["auto", "spin", "yield", "sleep"].into_iter().flat_map(move |policy| {
        ["shm", "tcp"].map(|allow| Cluster::new(ranks).set("transport.allow", allow).set("wait.policy", policy))
    })
}

/// Waits until a rank has certainly dropped its world, without a message from it: what a program cannot know.
pub(crate) fn long_enough_to_leave() {
    std::thread::sleep(std::time::Duration::from_millis(50));
}

/// As small as the window for small messages may be: a few dozen of them fill it.
pub(crate) fn with_a_small_window(ranks: usize) -> impl Iterator<Item = (&'static str, Cluster)> {
    every_transport(ranks).map(|(name, cluster)| (name, cluster.set("eager.window", "4KiB")))
}

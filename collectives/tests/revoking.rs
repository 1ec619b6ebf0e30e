//! Collectives that wait for a rank which will not come end when their communicator is revoked: in messages, in shared memory,
//! under way in the background, and started again and again.

use spmd::local::Cluster;
use spmd::{Any, Communicator, Error, Result};
use spmd_collectives::compress::{Compressed, TopK};
use spmd_collectives::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

const SIZE: usize = 4;

fn everywhere(program: impl Fn(&Communicator) + Sync) {
    let clusters = [
        ("shm", "0", 1, "auto"),
        ("shm", "0", 1, "sleep"),
        ("shm", "0", 1, "spin"),
        ("tcp", "0", 1, "auto"),
        ("shm,tcp", "0", 2, "auto"),
        ("shm", "7", 1, "auto"),
        ("tcp", "11", 1, "auto"),
    ];
    for (transport, faults, hosts, waits) in clusters {
        Cluster::new(SIZE)
            .hosts(hosts)
            .set("transport.allow", transport)
            .set("faulty.seed", faults)
            .set("wait.policy", waits)
            .set("collectives.group_size", "2")
            .run(|world| program(&world.communicator()))
            .unwrap_or_else(|error| panic!("{transport}, {faults}, {hosts}, {waits}: {error}"));
    }
}

/// As a program sees it that has one type of errors for messages and collectives.
#[track_caller]
fn assert_revoked<T>(result: std::result::Result<T, impl Into<Error>>, by: usize) {
    let Err(error) = result.map_err(Into::into) else { panic!("it has worked") };
    let inner = match &error {
        Error::Library(library) => match library.downcast_ref() {
            Some(spmd_collectives::Error::Runtime { source, .. }) => source,
            _ => panic!("{error}"),
        },
        other => other,
    };
    assert!(error.is_loss() && matches!(inner, Error::Revoked { by: who } if *who == by), "{error}");
}

/// All ranks but the last one make the call again and again until that revokes the communicator; then they make another one.
fn ends(comm: &Communicator, call: impl Fn(&Communicator) -> Result<()>) {
    let (part, last) = (comm.duplicate().unwrap(), SIZE - 1);
    // What it needs in shared memory is there.
    part.barrier().unwrap();
    comm.barrier().unwrap();
    if comm.rank() == last {
        std::thread::sleep(Duration::from_millis(20));
        part.revoke().unwrap();
    } else {
        // What only sends may be complete.
        let mut result = Ok(());
        while result.is_ok() {
            result = call(&part);
        }
        assert_revoked(result, last);
    }
    assert_revoked(part.barrier(), last);
    let again = part.shrink().unwrap();
    let mut sum = [again.rank()];
    again.all_reduce(&mut sum, Sum).unwrap();
    assert_eq!(sum, [6]);
    comm.barrier().unwrap();
}

#[test]
fn blocking_calls_in_messages_and_in_shared_memory() {
    everywhere(|comm| {
        ends(comm, |part| Ok(part.barrier()?));
        for length in [1, 300_000] {
            let data = vec![1_u32; length];
            ends(comm, |part| Ok(part.all_reduce(&mut data.clone(), Sum)?));
            ends(comm, |part| Ok(part.reduce(&data, Sum, 0).map(drop)?));
            ends(comm, |part| Ok(part.broadcast(&mut data.clone(), SIZE - 1)?));
        }
        ends(comm, |part| Ok(part.all_gather(&[1_u8; 10]).map(drop)?));
        ends(comm, |part| Ok(part.all_to_all(&[1_u8; 8]).map(drop)?));
        ends(comm, |part| Ok(part.scan(&mut [1_u8; 8], Sum)?));
        ends(comm, |part| Ok(part.all_gather_v(&[1_u8; 8]).map(drop)?));
    });
}

#[test]
fn the_first_call_of_a_communicator_which_looks_for_shared_memory() {
    everywhere(|comm| {
        let part = comm.duplicate().unwrap();
        if comm.rank() == 0 {
            part.revoke().unwrap();
        } else {
            assert_revoked(part.barrier(), 0);
        }
        assert_eq!(part.shrink().unwrap().all_gather(&[comm.rank()]).unwrap(), [0, 1, 2, 3]);
    });
}

#[test]
fn calls_in_the_background_and_those_that_are_started_again() {
    everywhere(|comm| {
        ends(comm, |part| part.iall_reduce(vec![1_u32; 10], Sum)?.wait().map(drop));
        ends(comm, |part| {
            let (first, second) = (part.ibarrier()?, part.iall_reduce(vec![1_u64; 100_000], Sum)?);
            let mut first = Err(first);
            while let Err(request) = first {
                first = request.test()?;
            }
            second.wait().map(drop)
        });
        ends(comm, |part| part.iall_gather_v(vec![1_u8; 8])?.wait().map(drop));
        ends(comm, |part| part.igather_v(vec![1_u8; 8], 0)?.wait().map(drop));
        ends(comm, |part| Ok(part.all_to_all_v_init(vec![1_u8; 8], vec![2; SIZE]).map(drop)?));
        // A request that nobody waits for any more leaves nothing behind that would stop a rank from leaving.
        ends(comm, |part| Ok(part.iall_gather(vec![1_u32; 10]).map(drop)?));
        // Persistent ones have message spaces of their own.
        let part = comm.duplicate().unwrap();
        let mut sum = part.all_reduce_init(vec![1_u32; 1000], Sum).unwrap();
        sum = sum.start().unwrap().wait().unwrap();
        assert_eq!(sum.result()[0], 4);
        comm.barrier().unwrap();
        if comm.rank() == 1 {
            part.revoke().unwrap();
        } else {
            assert_revoked(sum.start().map_err(Error::from).and_then(|request| request.wait()), 1);
        }
        assert_revoked(part.all_reduce_init(vec![1_u32; 1000], Sum), 1);
    });
}

#[test]
fn sums_of_compressed_gradients() {
    everywhere(|comm| {
        let part = comm.duplicate().unwrap();
        let mut sum = Compressed::<i64>::new(&part, 1000, TopK::default()).unwrap();
        sum.all_reduce(&mut vec![1; 1000]).unwrap();
        comm.barrier().unwrap();
        if comm.rank() == 2 {
            part.revoke().unwrap();
        } else {
            // A rank of another group may have what it needs once more.
            let mut result = Ok(());
            while result.is_ok() {
                result = sum.all_reduce(&mut vec![1; 1000]);
            }
            assert_revoked(result, 2);
        }
    });
}

#[test]
fn a_sender_that_gives_up_after_its_own_time_out_is_no_loss() {
    // Longer than what can be on its way.
    const BYTES: usize = 64 << 20;
    for transport in ["tcp", "shm"] {
        let [has_begun, has_failed, has_heard] = [const { AtomicBool::new(false) }; 3];
        let wait_for = |flag: &AtomicBool| {
            while !flag.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let errors = Cluster::new(2)
            .set("transport.allow", transport)
            .set("collectives.timeout", "500ms")
            .run(|world| {
                let comm = world.communicator();
                comm.barrier().unwrap();
                let error = if comm.rank() == 0 {
                    wait_for(&has_begun);
                    let error = comm.scatter_v(Some((&vec![1_u8; BYTES], &[0, BYTES])), 0).unwrap_err();
                    has_failed.store(true, SeqCst);
                    // What it has to say goes out, and it does not leave before.
                    while !has_heard.load(SeqCst) {
                        let _ = comm.iprobe(Any, Any);
                    }
                    Error::from(error)
                } else {
                    // Its message begins to come, and then it is away from the library for too long.
                    let mut part = comm.iscatter_v::<u8>(None, 0).unwrap();
                    has_begun.store(true, SeqCst);
                    for _ in 0..5 {
                        part = part.test().unwrap().expect_err("it is longer than what can be on its way");
                        std::thread::sleep(Duration::from_millis(20));
                    }
                    wait_for(&has_failed);
                    let error = part.wait().unwrap_err();
                    has_heard.store(true, SeqCst);
                    error
                };
                assert!(!error.is_loss(), "{error}");
                error.to_string()
            })
            .unwrap();
        assert!(errors[0].contains("rank 1 is not in it"), "{transport}: {errors:?}");
        // Mostly the former; its own time may be over as soon as it looks.
        let heard = ["rank 0 gave up a message", "rank 0 is not in it"].map(|text| errors[1].contains(text));
        assert!(heard.contains(&true), "{transport}: {errors:?}");
    }
}

#[test]
fn a_rank_that_hears_of_a_loss_because_its_sender_gives_up_shrinks_too() {
    // Longer than what can be on its way.
    const BYTES: usize = 64 << 20;
    for transport in ["tcp", "shm"] {
        let [has_begun, may_leave, has_failed, has_heard] = [const { AtomicBool::new(false) }; 4];
        let wait_for = |flag: &AtomicBool| {
            while !flag.load(SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        let errors = Cluster::new(3)
            .set("transport.allow", transport)
            .run(|world| {
                let comm = world.communicator();
                let data = vec![1_u8; if comm.rank() == 0 { BYTES + (1 << 20) } else { 0 }];
                // All are connected: rank 0 waits for nobody before its data.
                comm.barrier().unwrap();
                let error = match comm.rank() {
                    0 => {
                        let parts = comm.iscatter_v(Some((data, vec![0, BYTES, 1 << 20])), 0).unwrap();
                        let parts = parts.test().unwrap().expect_err("nobody receives");
                        has_begun.store(true, SeqCst);
                        let error = parts.wait().unwrap_err();
                        has_failed.store(true, SeqCst);
                        // What it has to say goes out, and it revokes nothing before rank 1 has heard that.
                        while !has_heard.load(SeqCst) {
                            let _ = comm.iprobe(Any, Any);
                        }
                        error
                    }
                    1 => {
                        wait_for(&has_begun);
                        // Its message begins to come, and then it is away from the library while rank 0 hears of rank 2.
                        let mut part = comm.iscatter_v::<u8>(None, 0).unwrap();
                        for _ in 0..5 {
                            part = part.test().unwrap().expect_err("it is longer than what can be on its way");
                        }
                        may_leave.store(true, SeqCst);
                        wait_for(&has_failed);
                        let error = part.wait().unwrap_err();
                        has_heard.store(true, SeqCst);
                        error
                    }
                    _ => {
                        wait_for(&may_leave);
                        return String::new();
                    }
                };
                assert!(error.is_loss(), "{error}");
                let left = comm.shrink().unwrap();
                let mut sum = [left.rank() + 1];
                left.all_reduce(&mut sum, Sum).unwrap();
                assert_eq!((left.size(), sum), (2, [3]));
                error.to_string()
            })
            .unwrap();
        assert!(errors[0].contains("rank 2") && errors[0].contains("has dropped its World"), "{transport}: {errors:?}");
        assert!(errors[1].contains("rank 0 gave up a message"), "{transport}: {errors:?}");
    }
}

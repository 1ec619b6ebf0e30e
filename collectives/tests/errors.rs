//! Wrong calls end in errors that say what is wrong, never in garbage.

use spmd::local::Cluster;
use spmd::memory::Operation;
use spmd_collectives::Error;
use spmd_collectives::algorithms::Collective;
use spmd_collectives::groups::Groups;
use spmd_collectives::prelude::*;

/// Runs a call on two ranks and returns both results.
fn both<R: Send>(program: impl Fn(&spmd::Communicator) -> spmd_collectives::Result<R> + Sync) -> [Result<R, Error>; 2] {
    let results = Cluster::new(2).run(|world| program(&world.communicator())).unwrap();
    results.try_into().unwrap_or_else(|_| unreachable!("two ranks give two results"))
}

#[test]
fn a_root_that_does_not_exist_is_an_error_on_every_rank() {
    for result in both(|comm| comm.broadcast(&mut [1], 2)) {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::NoSuchRoot { root: 2, size: 2, .. }));
        assert!(error.to_string().contains("ranks 0 to 1"), "{error}");
        assert_eq!(format!("{error:?}"), error.to_string(), "what `main` and `unwrap` show");
    }
}

#[test]
fn a_result_buffer_of_the_wrong_length_is_an_error() {
    for result in both(|comm| comm.all_reduce_into(&[1, 2, 3], &mut [0; 2], Sum)) {
        assert!(matches!(result, Err(Error::Length { buffer: "output", expected: 3, given: 2, .. })), "{result:?}");
    }
    for result in both(|comm| comm.all_gather_into(&[1, 2, 3], &mut [0; 5])) {
        assert!(matches!(result, Err(Error::Length { expected: 6, given: 5, .. })), "{result:?}");
    }
}

#[test]
fn the_root_must_give_what_only_it_needs() {
    let [root, _] = both(|comm| comm.scatter(None, &mut [0], 0));
    assert!(matches!(root, Err(Error::MissingAtRoot { rank: 0, buffer: "input", .. })));
    let [_, root] = both(|comm| comm.reduce_into(&[1], None, Sum, 1));
    assert!(matches!(root, Err(Error::MissingAtRoot { rank: 1, buffer: "output", .. })));
}

#[test]
fn all_to_all_needs_a_multiple_of_the_number_of_ranks() {
    for result in both(|comm| comm.all_to_all(&[1, 2, 3])) {
        assert!(matches!(result, Err(Error::NotDivisible { size: 2, given: 3, .. })));
    }
}

#[test]
fn counts_must_fit_ranks_and_data() {
    for counts in [&[1, 1][..], &[3], &[1, 1, 1], &[usize::MAX, 4], &[]] {
        for result in both(|comm| comm.all_to_all_v(&[1, 2, 3], counts)) {
            assert!(matches!(result, Err(Error::Counts { size: 2, given: 3, .. })), "{counts:?}: {result:?}");
        }
    }
    let [root, _] = both(|comm| comm.scatter_v((comm.rank() == 0).then_some((&[1u8, 2][..], &[1usize, 2][..])), 0));
    let text = root.unwrap_err().to_string();
    assert!(text.contains("scatter_v among 2 ranks needs 2 counts") && text.contains("2 counts with sum 3"), "{text}");
}

#[test]
fn a_collective_of_varied_lengths_does_not_mix_with_the_one_that_tells_its_counts() {
    let [first, second] = both(|comm| match comm.rank() {
        0 => comm.all_gather(&[1usize]).map(drop),
        _ => comm.all_gather_v(&[1usize]).map(drop),
    });
    assert!(matches!(first, Err(Error::Mismatch { collective: Operation::AllGather, .. })), "{first:?}");
    assert!(matches!(second, Err(Error::Mismatch { collective: Operation::AllGatherV, .. })), "{second:?}");
}

#[test]
fn ranks_with_different_lengths_get_an_error_with_every_algorithm() {
    let algorithms = Collective::AllReduce.algorithms().iter();
    for algorithm in algorithms.filter(|algorithm| algorithm.forbidden(&Groups::apart(2), true).is_none()) {
        // 8 and 9 elements have blocks of the same length in part; 1000 and 2000 differ in everything.
        for lengths in [[8, 9], [1000, 2000], [0, 1]] {
            let results = Cluster::new(2)
                .set("collectives.all_reduce", algorithm.name)
                .run(|world| {
                    let comm = world.communicator();
                    comm.all_reduce(&mut vec![1u64; lengths[comm.rank()]], Sum)
                })
                .unwrap();
            for (rank, result) in results.into_iter().enumerate() {
                assert!(result.is_err(), "{}, {lengths:?}, rank {rank}", algorithm.name);
            }
        }
    }
}

#[test]
fn ranks_with_different_types_get_an_error_that_names_the_other_rank() {
    let [first, second] = both(|comm| match comm.rank() {
        0 => comm.all_reduce(&mut [1.0f32; 4], Sum),
        _ => comm.all_reduce(&mut [1i32; 4], Sum),
    });
    for (rank, result) in [first, second].into_iter().enumerate() {
        let text = result.unwrap_err().to_string();
        assert!(
            text.starts_with(&format!("all_reduce on rank {rank}: as collective 1 of a communicator rank 0")),
            "{text}"
        );
        assert!(text.contains("rank 0 calls all_reduce of 4 f32 by Sum"), "{text}");
        assert!(text.contains("but rank 1 calls all_reduce of 4 i32 by Sum"), "{text}");
    }
}

#[test]
fn ranks_in_different_collectives_get_an_error() {
    let [first, second] = both(|comm| match comm.rank() {
        0 => comm.all_gather(&[1u8]).map(drop),
        _ => comm.all_to_all(&[1u8, 2]).map(drop),
    });
    assert!(matches!(first, Err(Error::Mismatch { collective: Operation::AllGather, .. })), "{first:?}");
    assert!(matches!(second, Err(Error::Mismatch { collective: Operation::AllToAll, .. })), "{second:?}");
}

#[test]
fn a_forced_algorithm_that_is_not_legal_is_the_same_error_on_every_rank() {
    let results = Cluster::new(3)
        .set("collectives.all_reduce", "ring")
        .run(|world| {
            let comm = world.communicator();
            comm.all_reduce(&mut [comm.rank()], custom(|a, _| a)).unwrap_err().to_string()
        })
        .unwrap();
    assert!(results[0].contains("collectives.all_reduce = ring: the operator must commute"), "{}", results[0]);
    assert_eq!(results, vec![results[0].clone(); 3]);
}

#[test]
fn a_rank_that_gives_up_ends_the_others_wait() {
    let results = Cluster::new(3)
        .run(|world| {
            let comm = world.communicator();
            if comm.rank() == 1 { Ok(()) } else { comm.barrier() }
        })
        .unwrap();
    for rank in [0, 2] {
        let error = results[rank].as_ref().unwrap_err();
        assert!(matches!(error, Error::Runtime { collective: Operation::Barrier, .. }), "{error}");
    }
}

#[test]
fn errors_become_errors_of_the_runtime_with_their_text() {
    fn program(comm: &spmd::Communicator) -> spmd::Result<()> {
        comm.broadcast(&mut [0], 5)?;
        Ok(())
    }
    spmd::local::run(1, |world| {
        let error = program(&world.communicator()).unwrap_err();
        assert!(error.to_string().contains("broadcast with root 5"), "{error}");
    });
}

#[test]
fn levels_of_groups_that_there_are_not_are_an_error_of_the_first_call() {
    let first = |settings: &[(&str, &str)]| {
        let cluster = settings.iter().fold(Cluster::new(4).hosts(2), |cluster, (key, value)| cluster.set(key, value));
        cluster.run(|world| world.communicator().all_reduce(&mut [1], Sum)).unwrap()
    };
    for result in first(&[("collectives.groups", "host,group")]) {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::Levels(_)) && error.to_string().contains("group=NAME"), "{error}");
    }
    for result in first(&[("collectives.groups", "host,2"), ("collectives.group_size", "2")]) {
        let error = result.unwrap_err();
        assert!(error.to_string().contains("collectives.group_size = 2: one says several levels"), "{error}");
    }
    let wrong = Cluster::new(2).set("collectives.groups", "group,host").run(|_| ()).unwrap_err().to_string();
    assert!(wrong.contains("write `host` before `group`"), "{wrong}");
}

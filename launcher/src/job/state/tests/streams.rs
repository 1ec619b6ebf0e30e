//! Input that is read as far as it is wanted, and output that cannot be written.

use super::*;

#[test]
fn standard_input_goes_to_rank_0_as_fast_as_it_takes_it() {
    let mut w = World::begin(plan(&[("a", Some(2)), ("b", Some(2))], None));
    w.hello(0, 2);
    w.hello(1, 2);
    w.did();
    w.say(1, FromAgent::Spawned { rank: 2, pid: 5, cpus: String::new() });
    w.say(0, FromAgent::Spawned { rank: 0, pid: 5, cpus: String::new() });
    assert!(w.did().is_empty(), "nothing is read unless the rank has room");
    w.say(0, FromAgent::StdinTaken { rank: 0, bytes: 100 });
    assert_eq!(w.did(), ["read 100"]);
    w.event(Event::Stdin(vec![1; 10]));
    w.event(Event::Stdin(vec![]));
    assert_eq!(w.did(), ["stdin 0 0 10", "stdin 0 0 0"]);
    w.say(0, FromAgent::StdinTaken { rank: 0, bytes: 10 });
    assert_eq!(w.did(), ["read 10"]);
    w.exit(0, 0);
    w.event(Event::Stdin(vec![1; 10]));
    assert!(w.did().is_empty());
}

#[test]
fn output_that_nobody_reads_ends_the_job() {
    let mut w = World::released();
    w.event(Event::OutputBroken(rustix::io::Errno::PIPE));
    assert_eq!(w.code(), 141);
    assert_eq!(w.did(), ["stop 0", "stop 1"]);
}

#[test]
fn output_that_cannot_be_written_after_the_end_is_no_success_and_hides_no_failure() {
    let broken = || Event::OutputBroken(rustix::io::Errno::NOSPC);
    for (code, event, outcome) in
        [(0, broken(), 73), (0, Event::Signal(libc::SIGTERM), 143), (3, broken(), 3), (3, Event::Signal(2), 3)]
    {
        let mut w = World::released();
        for rank in 0..w.job.ranks.len() {
            w.finalize(rank);
            w.exit(rank, code);
        }
        (0..2).for_each(|host| w.done(host));
        w.did();
        w.event(event);
        assert_eq!((w.code(), w.did()), (outcome, Vec::<String>::new()));
    }
}

#[test]
fn output_that_cannot_be_written_ends_the_job_and_says_why() {
    let mut w = World::released();
    w.event(Event::OutputBroken(rustix::io::Errno::NOSPC));
    assert_eq!(w.code(), 73);
    assert!(w.message().contains("No space left"), "{}", w.message());
    assert_eq!(w.did(), ["stop 0", "stop 1"]);
}

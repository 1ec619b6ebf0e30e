//! Random events in random order: whatever happens, a job that is interrupted and given time ends, once, and its
//! outcome is never lost.

use super::*;
use proptest::prelude::*;

fn step() -> impl Strategy<Value = (u8, usize, i32)> {
    (0..22_u8, 0..4_usize, 0..3_i32)
}

proptest! {
    #[test]
    fn a_job_always_ends_and_only_once(
        steps in proptest::collection::vec(step(), 0..60),
        keep_going in any::<bool>(),
        chain in any::<bool>()
    ) {
        // The second host directly, or through the first one.
        let tree = chain.then(|| Tree { radix: 1, local: vec![false; 2] });
        let mut w = World::begin(Plan { keep_going, tree, ..plan(&[("a", Some(2)), ("b", None)], None) });
        let mut failed = false;
        for (kind, n, code) in steps {
            let host = n % 2;
            match kind {
                0 | 1 => w.hello(host, 2),
                2 => w.init(n),
                3 => w.finalize(n),
                4 => w.exit(n, code),
                5 => w.kill(n, 9),
                6 => w.done(host),
                7 => w.ended(host),
                8 => w.pass(100 * MS),
                9 => w.event(Event::Signal(libc::SIGINT)),
                10 => w.event(Event::Stdin(vec![1])),
                13 => w.event(Event::Unguarded(host)),
                14 => w.event(Event::Signal(libc::SIGTSTP)),
                15 => w.event(Event::Signal(libc::SIGCONT)),
                16 => w.event(Event::Signal(libc::SIGQUIT)),
                17 => w.say(host, FromAgent::Signalled { count: 1 }),
                18 => w.say(host, FromAgent::StdinTaken { rank: n as u32, bytes: 5 }),
                19 => w.say(host, FromAgent::Report { ranks: vec![(n as u32, spmd::memory::Activity::Computing)] }),
                11 => w.say(host, FromAgent::Spawned { rank: n as u32, pid: 5, cpus: String::new() }),
                12 => w.event(Event::Signal(libc::SIGUSR2)),
                _ => w.pass(10 * S),
            }
            prop_assert!(!failed || w.code() != 0, "a failure was forgotten");
            failed = w.code() != 0;
            if w.finished {
                prop_assert!(w.job.deadline().is_none());
            }
        }
        w.event(Event::Signal(libc::SIGCONT));
        w.event(Event::Signal(libc::SIGTERM));
        w.pass(3 * S);
        prop_assert!(w.finished, "{:?}", w.job);
    }
}

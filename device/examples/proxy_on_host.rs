//! The proxy ring with producers on the CPU: how long a request takes and how many a second one proxy thread carries out.
//! Every signal and every block is checked. Without a GPU; with one, kernels take the producers' place.
//!
//!     rsrun -n 2 target/release/examples/proxy_on_host [SIGNALS]
//!
//! With one rank the requests go to the rank itself: what is measured then is the ring and its thread alone, on two cores.

#![expect(unsafe_code, reason = "reads words of its heap as a kernel would")]

use spmd::{SignalOp, SymmetricHeap, prelude::*};
use spmd_collectives::prelude::*;
use spmd_device::proxy::{Block, Carrier, Producer, Proxy, Request, Signal};
use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// So many signals are sent where the command line does not say another number; exchanges are a fiftieth of that.
const SIGNALS: u64 = 1_000_000;
const LIMIT: Duration = Duration::from_secs(60);

fn main() -> spmd::Result<()> {
    let world = World::init()?;
    let comm = world.communicator();
    let signals = match std::env::args().nth(1).map(|number| number.parse::<u64>()) {
        None => SIGNALS,
        Some(Ok(number)) if number >= 200 => number / 4 * 4,
        Some(_) => world.abort(64, "proxy_on_host takes the number of signals, 200 or more"),
    };
    let peer = u32::try_from(comm.size() - 1 - comm.rank()).expect("a few ranks");
    let heap = SymmetricHeap::new(&comm, 1 << 20)?;
    let words = heap.alloc::<u64>(256)?;
    let block = heap.alloc::<u8>(4096)?;
    let proxy = Proxy::start(Carrier::on_host(heap.clone()), 1024, world.placement())?;
    let producer = Producer::new(proxy.ring().clone(), LIMIT);
    let word = |index: usize| {
        // SAFETY: mapped as long as the heap is, aligned, and only accessed as an atomic or copied.
        unsafe { heap.memory().cast::<u8>().add(words.offset() + 8 * index).cast::<AtomicU64>().as_ref() }
    };
    let wait = |index: usize, wanted: u64| {
        let begun = Instant::now();
        let mut polls = 0_u32;
        while word(index).load(Ordering::Acquire) < wanted {
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(64) {
                std::thread::yield_now();
                assert!(
                    begun.elapsed() < LIMIT,
                    "word {index} is {} instead of {wanted}",
                    word(index).load(Ordering::Relaxed)
                );
            }
        }
    };
    let signal = |index: usize, op| Signal { offset: (words.offset() + 8 * index) as u64, op };
    let own = heap.memory().cast::<u8>().as_ptr().addr() + block.offset();
    comm.barrier()?;

    // There and back, as two kernels would: each waits for its own word.
    for bytes in [8, 4096_u64] {
        let base = word(0).load(Ordering::Relaxed);
        comm.barrier()?;
        let request = |number| Request::PutSignal {
            block: Block { address: own as u64, offset: block.offset() as u64, bytes, peer },
            signal: signal(0, SignalOp::Set(number)),
        };
        let mut times = Vec::new();
        for number in base + 1..=base + signals / 50 {
            let begun = Instant::now();
            if comm.rank() == 0 {
                producer.push(&request(number)).expect("the proxy works");
            }
            wait(0, number);
            if comm.rank() == 1 {
                producer.push(&request(number)).expect("the proxy works");
            }
            times.push(begun.elapsed());
        }
        times.sort_unstable();
        if comm.rank() == 0 {
            let way = if comm.size() == 1 { "one way, to itself" } else { "round trip" };
            println!(
                "put_signal of {bytes} bytes, {way}: P50 {:?}, P99 {:?}",
                times[times.len() / 2],
                times[times.len() * 99 / 100]
            );
        }
    }

    // As many as one thread carries out, from one producer and from several.
    for producers in [1, 4_u64] {
        comm.barrier()?;
        let index = 16 * usize::try_from(producers).expect("a few");
        let begun = Instant::now();
        if comm.rank() == 0 {
            std::thread::scope(|scope| {
                for _ in 0..producers {
                    scope.spawn(|| {
                        let request = Request::Signal { signal: signal(index, SignalOp::Add(1)), peer };
                        for _ in 0..signals / producers {
                            producer.push(&request).expect("the proxy works");
                        }
                    });
                }
            });
        }
        if comm.rank() == comm.size() - 1 {
            wait(index, signals);
            let seconds = begun.elapsed().as_secs_f64();
            println!("signals from {producers} producers: {:.2} million a second", signals as f64 / seconds / 1e6);
        }
        comm.barrier()?;
        assert!(comm.rank() == 0 && comm.size() > 1 || word(index).load(Ordering::Relaxed) == signals);
    }
    let counters = proxy.stop()?;
    println!("rank {}: {counters:?}", comm.rank());
    Ok(comm.barrier()?)
}

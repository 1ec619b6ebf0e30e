//! What the machine itself can do: the figures that no runtime can beat.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::{
    hint::black_box,
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    sync::atomic::{AtomicU64, Ordering::*},
    time::Instant,
};

const ROUNDS: u64 = 20_000;

/// A value on a cache line of its own.
#[repr(align(128))]
#[derive(Debug, Default)]
struct Line(AtomicU64);

/// The floors of one host.
#[derive(Clone, Copy, Debug, serde::Serialize)]
pub(crate) struct Floor {
    /// Microseconds to hand a cache line to another thread, P50.
    pub(crate) cache_line_us: f64,
    /// Megabytes a second of `memcpy` between buffers of 1 MiB, median.
    pub(crate) memcpy_mb_s: f64,
    /// Microseconds of half a round trip of 8 bytes over a loopback socket, both ends spinning, P50.
    pub(crate) tcp_us: f64,
}

/// Measures on two processors of this host, whatever this rank is bound to; the binding is restored.
pub(crate) fn measure() -> io::Result<Floor> {
    let bound = sched_getaffinity(None)?;
    let mut all = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
    // The kernel leaves out what the cpuset does not allow.
    sched_setaffinity(None, &all)?;
    let floor = measure_unbound();
    sched_setaffinity(None, &bound)?;
    floor
}

fn measure_unbound() -> io::Result<Floor> {
    Ok(Floor { cache_line_us: cache_line(), memcpy_mb_s: memcpy(), tcp_us: tcp()? })
}

/// Lets the calling thread run anywhere but where its process may: a rank that is bound to one core has no second one,
/// and the floor is the machine's. Where there is no other core the kernel refuses, and nothing changes.
fn leave_this_core() {
    let Ok(own) = sched_getaffinity(None) else { return };
    let mut others = CpuSet::new();
    (0..CpuSet::MAX_CPU).filter(|cpu| !own.is_set(*cpu)).for_each(|cpu| others.set(cpu));
    let _ = sched_setaffinity(None, &others);
}

fn median(mut samples: Vec<f64>) -> f64 {
    samples.sort_by(f64::total_cmp);
    samples.get(samples.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Gives the processor away now and then, in case both threads have been put on the same one.
fn spin_until(mut done: impl FnMut() -> bool) {
    let mut spins = 0_u32;
    while !done() {
        spins += 1;
        if spins.is_multiple_of(4096) {
            std::thread::yield_now();
        } else {
            std::hint::spin_loop();
        }
    }
}

fn cache_line() -> f64 {
    let (there, back) = (Line::default(), Line::default());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            leave_this_core();
            for round in 1..=ROUNDS {
                spin_until(|| there.0.load(Acquire) == round);
                back.0.store(round, Release);
            }
        });
        let exchange = |round| {
            let begun = Instant::now();
            there.0.store(round, Release);
            spin_until(|| back.0.load(Acquire) == round);
            begun.elapsed().as_secs_f64() * 1e6 / 2.0
        };
        median((1..=ROUNDS).map(exchange).skip(1000).collect())
    })
}

fn memcpy() -> f64 {
    let source = vec![1_u8; 1 << 20];
    let mut copy = vec![0_u8; 1 << 20];
    let once = |_| {
        let begun = Instant::now();
        black_box(&mut copy).copy_from_slice(black_box(&source));
        source.len() as f64 / begun.elapsed().as_secs_f64() / 1e6
    };
    median((0..200).map(once).collect())
}

fn tcp() -> io::Result<f64> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?;
    std::thread::scope(|scope| {
        let echo = scope.spawn(move || -> io::Result<()> {
            leave_this_core();
            let mut stream = prepared(listener.accept()?.0)?;
            let mut bytes = [0; 8];
            for _ in 0..ROUNDS {
                read(&mut stream, &mut bytes)?;
                stream.write_all(&bytes)?;
            }
            Ok(())
        });
        let mut stream = prepared(TcpStream::connect(address)?)?;
        let mut samples = Vec::new();
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            stream.write_all(&[7; 8])?;
            read(&mut stream, &mut [0; 8])?;
            samples.push(begun.elapsed().as_secs_f64() * 1e6 / 2.0);
        }
        echo.join().map_err(|_| io::Error::other("the other end of the socket panicked"))??;
        Ok(median(samples.split_off(1000)))
    })
}

fn prepared(stream: TcpStream) -> io::Result<TcpStream> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

fn read(stream: &mut TcpStream, bytes: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    let mut failed = None;
    spin_until(|| {
        match stream.read(&mut bytes[filled..]) {
            Ok(0) => failed = Some(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => failed = Some(error),
        }
        filled == bytes.len() || failed.is_some()
    });
    failed.map_or(Ok(()), Err)
}

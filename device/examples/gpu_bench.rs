//! Measures what kernels do on two GPUs of one host: `device/run.sh` starts it beside other libraries.
//!
//! Each line is a key, a figure and its unit; floors of the same machine are measured in the same run.

#![expect(unsafe_code, reason = "launches kernels")]

use cudarc::driver::{CudaModule, LaunchConfig, PushKernelArg, result, sys};
use spmd::prelude::*;
use spmd_collectives::prelude::*;
use spmd_device::{Algorithm, Device, Kernels, Operator, Result, context::Way};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// Compiled for compute capability 9.0, whose acquire fence is cheap, and for 8.0.
const PTX_90: &str = include_str!("gpu_bench_90.ptx");
const PTX_80: &str = include_str!("gpu_bench.ptx");
const LARGEST: usize = 256 << 20;

struct Bench {
    device: Device,
    comm: Communicator,
    module: Arc<CudaModule>,
    /// The last number that signals have had.
    base: u64,
}

fn main() -> Result<()> {
    let world = World::init()?;
    if world.size() != 2 {
        world.abort(64, "gpu_bench takes two ranks");
    }
    let device = Device::new(&world)?;
    if world.rank() == 0 {
        eprint!("{}", device.explain());
    }
    let is_90 = device.cuda().compute_capability().is_ok_and(|(major, _)| major >= 9);
    let module = device.load(Kernels::Ptx(if is_90 { PTX_90 } else { PTX_80 }))?;
    let mut bench = Bench { comm: world.communicator(), device, module, base: 0 };
    match bench.device.choice().way {
        Way::Mapped => {
            bench.latency()?;
            bench.bandwidth()?;
            bench.all_reduce()
        }
        _ => bench.proxy(),
    }
}

impl Bench {
    /// Runs a kernel on both ranks at once; microseconds that it took here.
    fn run(&self, name: &str, blocks: u32, threads: u32, arguments: &[u64]) -> Result<f64> {
        let function = self.module.load_function(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        let stream = self.device.stream();
        let config = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 };
        let mut launch = stream.launch_builder(&function);
        launch.record_kernel_launch(sys::CUevent_flags::CU_EVENT_DEFAULT).arg(self.device.context());
        for argument in arguments {
            launch.arg(argument);
        }
        self.comm.barrier()?;
        // SAFETY: every kernel of gpu_bench.cu takes the context and 64-bit numbers; each call gives as many as it takes.
        let events = unsafe { launch.launch(config) }.unwrap_or_else(|error| panic!("{name}: {error}"));
        self.device.synchronize(stream)?;
        let (begin, end) = events.expect("they were asked for");
        Ok(f64::from(begin.elapsed_ms(&end).expect("both are recorded")) * 1000.0)
    }

    /// Median of several runs of an exchange of `rounds` rounds: one way.
    fn exchange(&mut self, name: &str, threads: u32, rounds: u64, arguments: impl Fn(u64) -> Vec<u64>) -> Result<f64> {
        let mut times = Vec::new();
        for _ in 0..5 {
            times.push(self.run(name, 1, threads, &arguments(self.base))? / rounds as f64 / 2.0);
            self.base += rounds;
        }
        Ok(median(times))
    }

    fn say(&self, key: &str, figure: f64, unit: &str) {
        if self.comm.rank() == 0 {
            println!("{key} {figure:.3} {unit}");
        }
    }

    fn latency(&mut self) -> Result<()> {
        let rounds = 4000;
        // Where a word lies decides how far it is from the processors: several places.
        let words = self.device.alloc::<u64>(16 * 1024)?;
        let data = self.device.alloc::<u8>(1 << 20)?;
        let source = self.device.alloc::<u8>(1 << 20)?;
        let slots = self.device.alloc::<u64>(2 * 2 * 1025)?;
        let places: Vec<u64> = (0..4).map(|i| words.address() + i * 16 * 1024).collect();
        for (key, name) in [
            ("floor_signal", "floor_signal"),
            ("floor_signal_acquire", "floor_acquire"),
            ("signal_relaxed", "exchange_signals"),
        ] {
            let mut all = Vec::new();
            for place in &places {
                let extra: &[u64] = if name == "exchange_signals" { &[0] } else { &[] };
                all.push(self.exchange(name, 1, rounds, |base| [&[*place, base, rounds], extra].concat())?);
            }
            self.say(key, median(all), "us");
        }
        let place = places[0];
        let strong = self.exchange("exchange_signals", 1, rounds, |base| vec![place, base, rounds, 1])?;
        self.say("signal", strong, "us");
        let floor = self.exchange("floor_put_signal", 1, rounds, |base| vec![place, data.address(), base, rounds])?;
        self.say("floor_put_signal", floor, "us");
        for bytes in [16, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576_u64] {
            let rounds = if bytes > 65_536 { 500 } else { 2000 };
            for threads in [64, 256, 1024] {
                let (data, source) = (data.address(), source.address());
                let time = self.exchange("exchange_puts", threads, rounds, |base| {
                    vec![data, source, bytes, place, base, rounds]
                })?;
                self.say(&format!("put_signal_{bytes}_threads_{threads}"), time, "us");
            }
        }
        for threads in [1, 32, 128, 512] {
            let slots = slots.address();
            let time = self.exchange("floor_small", threads, rounds, |base| vec![slots, base, rounds])?;
            self.say(&format!("floor_small_{}", 8 * threads), time, "us");
        }
        for bytes in [8, 16, 256, 1024, 4096_u64] {
            for threads in [32, 128, 512] {
                let (slots, source, data) = (slots.address(), source.address(), data.address());
                let time = self.exchange("exchange_small", threads, rounds, |base| {
                    vec![slots, source, data, bytes, base, rounds]
                })?;
                self.say(&format!("send_small_{bytes}_threads_{threads}"), time, "us");
            }
        }
        for buffer in [data, source] {
            self.device.free(buffer)?;
        }
        self.device.free(words)
    }

    fn bandwidth(&mut self) -> Result<()> {
        let data = self.device.alloc::<u8>(LARGEST)?;
        let source = self.device.alloc::<u8>(LARGEST)?;
        for blocks in [1, 4, 8, 16, 32, 64, 132, 264] {
            let mut times = Vec::new();
            for _ in 0..5 {
                let arguments = [data.address(), source.address(), LARGEST as u64];
                if self.comm.rank() == 0 {
                    times.push(self.run("stream_puts", blocks, 1024, &arguments)?);
                } else {
                    self.comm.barrier()?;
                }
                self.comm.barrier()?;
            }
            if self.comm.rank() == 0 {
                self.say(&format!("put_blocks_{blocks}"), LARGEST as f64 / median(times) / 1000.0, "GB/s");
            }
        }
        self.device.free(data)?;
        self.device.free(source)
    }

    fn all_reduce(&mut self) -> Result<()> {
        let buffer = self.device.alloc::<f32>(LARGEST / 4)?;
        for bytes in [8, 1024, 8192, 65_536, 262_144, 1 << 20, 4 << 20, 16 << 20, 64 << 20, LARGEST] {
            let part = buffer.slice(..bytes / 4);
            for (name, algorithm) in
                [("", None), ("_one", Some(Algorithm::OneShot)), ("_two", Some(Algorithm::TwoShot))]
            {
                if algorithm == Some(Algorithm::OneShot) && bytes > 1 << 20 {
                    continue;
                }
                let times = self.replay(&part, algorithm, if bytes <= 16 << 20 { 50 } else { 10 })?;
                self.say(&format!("all_reduce{name}_{bytes}"), times, "us");
            }
        }
        Ok(())
    }

    /// The time of one all-reduce of many in a graph.
    fn replay(&self, part: &spmd_device::DeviceBuffer<f32>, algorithm: Option<Algorithm>, count: usize) -> Result<f64> {
        let stream = self.device.stream();
        let one = || match algorithm {
            Some(algorithm) => self.device.all_reduce_by(algorithm, part, Operator::Sum, stream),
            None => self.device.all_reduce(part, Operator::Sum, stream),
        };
        // Loads the kernels.
        one()?;
        self.device.synchronize(stream)?;
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
        stream.begin_capture(mode).expect("capturing begins");
        (0..count).try_for_each(|_| one())?;
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = stream.end_capture(flags).expect("capturing ends").expect("there is something in it");
        let mut times = Vec::new();
        for _ in 0..6 {
            self.comm.barrier()?;
            let timed = Some(sys::CUevent_flags::CU_EVENT_DEFAULT);
            let begin = stream.record_event(timed).expect("recorded");
            graph.launch().expect("launched");
            let end = stream.record_event(timed).expect("recorded");
            self.device.synchronize(stream)?;
            times.push(f64::from(begin.elapsed_ms(&end).expect("both are recorded")) * 1000.0 / count as f64);
        }
        // The first replay uploads the graph.
        Ok(median(times.split_off(1)))
    }

    /// The least that a way through the host can take: a word to a thread there and its answer back.
    fn floor_host(&mut self) -> Result<()> {
        const ROUNDS: u64 = 4000;
        const RUNS: u64 = 5;
        if self.comm.rank() != 0 {
            self.base += RUNS * ROUNDS;
            return (0..RUNS).try_for_each(|_| Ok(self.comm.barrier()?));
        }
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: zeroed below before anybody reads it; kernels see it at the same address; freed after they have ended.
        let memory = unsafe { result::malloc_host(4096, flags) }.expect("there is pinned memory");
        // SAFETY: fresh memory of this size.
        unsafe { memory.write_bytes(0, 4096) };
        let words: [&AtomicU64; 2] = [0, 256].map(|at| {
            // SAFETY: within the memory and aligned; only accessed as an atomic.
            unsafe { &*memory.cast::<u8>().add(at).cast::<AtomicU64>() }
        });
        let [question, answer] = words.map(|word| std::ptr::from_ref(word).addr() as u64);
        let base = self.base;
        let mut times = Vec::new();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut last = base;
                while last < base + RUNS * ROUNDS {
                    let found = words[0].load(Ordering::Acquire);
                    if found != last && found != 0 {
                        words[1].store(found, Ordering::Release);
                        last = found;
                    }
                    std::hint::spin_loop();
                }
            });
            for _ in 0..RUNS {
                times.push(self.run("floor_host", 1, 1, &[question, answer, self.base, ROUNDS])? / ROUNDS as f64);
                self.base += ROUNDS;
            }
            Result::Ok(())
        })?;
        // SAFETY: taken above, and used by nobody any more.
        unsafe { result::free_host(memory) }.expect("it is freed once");
        self.say("floor_host_and_back", median(times), "us");
        Ok(())
    }

    fn proxy(&mut self) -> Result<()> {
        self.floor_host()?;
        let word = self.device.alloc::<u64>(16)?;
        let (data, source) = (self.device.alloc::<u8>(1 << 20)?, self.device.alloc::<u8>(1 << 20)?);
        let place = word.address();
        let time = self.exchange("exchange_signals", 1, 2000, |base| vec![place, base, 2000, 0])?;
        self.say("proxy_signal", time, "us");
        // What the fence costs, and what a put by one thread does beyond that.
        let time = self.exchange("exchange_signals", 1, 2000, |base| vec![place, base, 2000, 1])?;
        self.say("proxy_signal_with_fence", time, "us");
        let (to, from) = (data.address(), source.address());
        let time = self.exchange("exchange_puts", 1, 2000, |base| vec![to, from, 8, place, base, 2000])?;
        self.say("proxy_put_signal_8_by_a_thread", time, "us");
        for bytes in [8, 256, 4096, 65_536, 1_048_576_u64] {
            let rounds = if bytes > 4096 { 200 } else { 2000 };
            let (data, source) = (data.address(), source.address());
            let time =
                self.exchange("exchange_puts", 64, rounds, |base| vec![data, source, bytes, place, base, rounds])?;
            self.say(&format!("proxy_put_signal_{bytes}"), time, "us");
            if bytes == 8 {
                // The other kernel's answer, by its own put_signal through its own proxy, included.
                self.say("proxy_put_signal_8_and_its_answer", 2.0 * time, "us");
            }
        }
        for blocks in [1, 8, 32, 132, 264] {
            let each = (1 << 20) / u64::from(blocks);
            let sent = u64::from(blocks) * each;
            let count = self.device.alloc::<u64>(16)?;
            let time = self.run("flood", blocks, 32, &[count.address(), each])?;
            // The kernel ends when everything is in the ring, all but the last thousand carried out.
            self.say(&format!("proxy_rate_blocks_{blocks}"), sent as f64 / time, "million/s");
            self.comm.barrier()?;
            self.device.free(count)?;
        }
        let buffer = self.device.alloc_local::<f32>(LARGEST / 16)?;
        for bytes in [8, 65_536, 1 << 20, 16 << 20, LARGEST / 4] {
            let time = self.replay(&buffer.slice(..bytes / 4), None, if bytes > 1 << 20 { 5 } else { 50 })?;
            self.say(&format!("proxy_all_reduce_{bytes}"), time, "us");
        }
        Ok(())
    }
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

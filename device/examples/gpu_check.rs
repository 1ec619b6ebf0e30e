//! Checks on GPUs what cannot be checked without: `device/run.sh` starts it, on two ranks or more.
//!
//! Every offset and length with canaries, order under random delays, small messages, errors, and every collective against
//! the host. Ends with exit code 1 when anything is wrong. `gpu_check 1 loss`: the last rank dies while kernels of the others
//! wait for it, under `rsrun --on-failure continue --set device.wait_limit=0`.

#![expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "small numbers")]
#![expect(unsafe_code, reason = "launches kernels")]

use cudarc::driver::{CudaFunction, CudaModule, LaunchConfig, PushKernelArg, sys};
use spmd::prelude::*;
use spmd_collectives::prelude::*;
use spmd_device::{Algorithm, Device, DeviceBuffer, Error, Kernels, Operator, Reducible, Result, context::Way};
use std::{
    fmt::Debug,
    sync::Arc,
    time::{Duration, Instant},
};

const PTX: &str = include_str!("gpu_check.ptx");
const CASES: usize = 16 * 16 * 257;
const FIELD: usize = 320;

struct Checks {
    device: Device,
    comm: Communicator,
    module: Arc<CudaModule>,
    /// Divides the number of repetitions: memory checkers are slow.
    brief: usize,
    failed: usize,
}

fn main() -> Result<()> {
    let world = World::init()?;
    let brief = std::env::args().nth(1).map_or(Ok(1), |text| text.parse());
    let only = std::env::args().nth(2);
    let brief = match (brief, only.as_deref()) {
        (Ok(brief), None | Some("collectives" | "loss")) => brief,
        _ => world.abort(64, "usage: gpu_check [DIVISOR [collectives | loss]]"),
    };
    let device = Device::new(&world)?;
    if world.rank() == 0 {
        print!("{}", device.explain());
    }
    let module = device.load(Kernels::Ptx(PTX))?;
    let mut checks = Checks { comm: world.communicator(), module, device, brief, failed: 0 };
    if only.as_deref() == Some("loss") {
        return checks.loss(&world);
    }
    if only.is_none() {
        checks.offsets()?;
        checks.order()?;
        checks.small()?;
        checks.errors()?;
    }
    checks.collectives()?;
    checks.graph()?;
    let mut failed = [checks.failed];
    checks.comm.all_reduce(&mut failed, Sum)?;
    if failed[0] > 0 {
        world.abort(1, &format!("{} checks failed", failed[0]));
    }
    if world.rank() == 0 {
        println!("all checks passed");
    }
    Ok(())
}

impl Checks {
    fn function(&self, name: &str) -> CudaFunction {
        self.module.load_function(name).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Runs a kernel to its end.
    fn run(&self, name: &str, blocks: u32, threads: u32, arguments: &[u64]) -> Result<()> {
        let function = self.function(name);
        let mut launch = self.device.stream().launch_builder(&function);
        launch.arg(self.device.context());
        for argument in arguments {
            launch.arg(argument);
        }
        let config = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 };
        // SAFETY: every kernel of gpu_check.cu takes the context and 64-bit numbers; each call gives as many as it takes.
        unsafe { launch.launch(config) }.unwrap_or_else(|error| panic!("{name}: {error}"));
        self.device.synchronize(self.device.stream())
    }

    /// Says on rank 0 how a check went on all ranks.
    fn say(&mut self, what: &str, wrong: u64, begun: Instant) -> Result<()> {
        let mut all = [wrong];
        self.comm.all_reduce(&mut all, Sum)?;
        if wrong > 0 {
            self.failed += 1;
        }
        if self.comm.rank() == 0 {
            let verdict = if all[0] == 0 { "ok".to_string() } else { format!("WRONG: {}", all[0]) };
            println!("{what:<60} {verdict} ({:.2} s)", begun.elapsed().as_secs_f64());
        }
        Ok(())
    }

    fn bytes(&self, length: usize, of: usize, round: usize) -> Vec<u8> {
        (0..length).map(|i| u8::try_from((i * 7 + of * 13 + round) % 256).expect("below 256")).collect()
    }

    fn offsets(&mut self) -> Result<()> {
        let (rank, size) = (self.comm.rank(), self.comm.size());
        let before = (rank + size - 1) % size;
        let cases = CASES / self.brief;
        let fields = self.device.alloc::<u8>(CASES * FIELD)?;
        let (source, wrong) = (self.device.alloc::<u8>(512)?, self.device.alloc::<u64>(1)?);
        for (scope, name) in ["put by a block", "put by a warp", "put by a thread", "get by a block"].iter().enumerate()
        {
            if scope == 3 && self.device.choice().way != Way::Mapped {
                continue;
            }
            let begun = Instant::now();
            fields.write(&vec![0xCC; CASES * FIELD])?;
            source.write(&self.bytes(512, rank, scope))?;
            wrong.write(&[0])?;
            self.comm.barrier()?;
            let cases = cases as u64;
            let address = fields.address();
            self.run("sweep", 264, 128, &[address, source.address(), address, scope as u64, cases])?;
            self.comm.barrier()?;
            // What was got is the next rank's, what was put here the previous one's.
            let of = if scope == 3 { (rank + 1) % size } else { before };
            self.run("compare", 264, 128, &[address, of as u64, scope as u64, cases, wrong.address()])?;
            let count = wrong.to_vec()?[0];
            self.say(&format!("{name}: {cases} offsets and lengths"), count, begun)?;
            self.comm.barrier()?;
        }
        self.device.free(wrong)?;
        self.device.free(source)?;
        self.device.free(fields)
    }

    fn order(&mut self) -> Result<()> {
        const BLOCKS: usize = 128;
        const THREADS: usize = 4;
        // 128 blocks, 4 puts a round and 10,000 rounds on each of two ranks are 10,240,000 puts.
        let rounds = (10_000 / self.brief) as u64;
        let begun = Instant::now();
        let (sources, slots) =
            (self.device.alloc::<u64>(BLOCKS * 2 * THREADS)?, self.device.alloc(BLOCKS * 2 * THREADS)?);
        let (signals, acks) = (self.device.alloc::<u64>(BLOCKS * 16)?, self.device.alloc::<u64>(BLOCKS * 16)?);
        let (total, wrong) = (self.device.alloc::<u64>(1)?, self.device.alloc::<u64>(1)?);
        let addresses = [sources.address(), slots.address(), signals.address(), acks.address(), total.address()];
        let arguments = [&addresses[..], &[rounds, 20_261_130, wrong.address()]].concat();
        self.run("ordered", BLOCKS as u32, THREADS as u32, &arguments)?;
        self.comm.barrier()?;
        let sum = total.to_vec()?[0];
        let missing = sum.abs_diff(BLOCKS as u64 * rounds);
        let puts = BLOCKS * THREADS * self.comm.size();
        let what = format!("{} ordered puts from {BLOCKS} blocks, with delays", puts as u64 * rounds);
        let count = wrong.to_vec()?[0] + missing;
        self.say(&what, count, begun)?;
        [sources, slots, signals, acks, total, wrong].into_iter().try_for_each(|buffer| self.device.free(buffer))
    }

    fn small(&mut self) -> Result<()> {
        let begun = Instant::now();
        let slots = self.device.alloc::<u64>(2 * 2 * 35)?;
        let (source, result) = (self.device.alloc::<u8>(512)?, self.device.alloc::<u8>(512)?);
        let wrong = self.device.alloc::<u64>(1)?;
        source.write(&self.bytes(512, self.comm.rank(), 0))?;
        self.comm.barrier()?;
        for (threads, mark) in [(32, 1), (64, 10_001)] {
            let arguments = [slots.address(), source.address(), result.address(), mark, wrong.address()];
            self.run("small", 1, threads, &arguments)?;
        }
        let count = wrong.to_vec()?[0];
        self.say("small messages: 4,112 of all lengths and offsets", count, begun)?;
        self.device.free(slots)?;
        self.device.free(wrong)
    }

    fn errors(&mut self) -> Result<()> {
        let begun = Instant::now();
        let (word, returned) = (self.device.alloc::<u64>(8)?, self.device.alloc::<u64>(1)?);
        let kinds = [
            (0, "waited for 41"),
            (1, "there is no rank"),
            (2, "outside the heap"),
            (3, "99"),
            (4, "a multiple of 8 bytes"),
            (5, "a multiple of 8 bytes"),
            (6, "a multiple of 8 bytes"),
            (7, "a multiple of 16 bytes"),
            (8, "a multiple of 16 bytes"),
        ];
        let mut wrong = 0;
        for (kind, part) in kinds {
            returned.write(&[0])?;
            match self.run("mistake", 1, 32, &[word.address(), kind, returned.address()]) {
                Err(Error::Kernel(error)) if error.to_string().contains(part) => {}
                other => {
                    println!("rank {}: mistake {kind}: {other:?}", self.comm.rank());
                    wrong += 1;
                }
            }
            wrong += u64::from(returned.to_vec()?[0] != 2);
        }
        // The host ends a kernel that waits.
        self.device.stop(true);
        let stopped = self.run("mistake", 1, 32, &[word.address(), 0, returned.address()]);
        self.device.stop(false);
        wrong += u64::from(!matches!(&stopped, Err(error) if error.to_string().contains("asked kernels to end")));
        wrong += u64::from(self.device.check().is_err());
        self.comm.barrier()?;
        self.say("mistakes end kernels with an error on the host", wrong, begun)
    }

    /// The last rank dies: kernels of the others that wait, for ever as far as the limit goes, end with an error that names it,
    /// and so do later ones; those that are left go on with a new device.
    fn loss(&mut self, world: &World) -> Result<()> {
        let last = self.comm.size() - 1;
        let (word, returned) = (self.device.alloc::<u64>(8)?, self.device.alloc::<u64>(1)?);
        self.comm.barrier()?;
        if self.comm.rank() == last {
            // The kernels of the others wait by now.
            std::thread::sleep(Duration::from_secs(1));
            std::process::abort();
        }
        let begun = Instant::now();
        for attempt in ["first", "second"] {
            let error = self.run("mistake", 1, 32, &[word.address(), 0, returned.address()]).expect_err("it is lost");
            println!("rank {}: {attempt} wait, {:.3} s: {error}", self.comm.rank(), begun.elapsed().as_secs_f64());
            assert!(error.is_loss() && error.to_string().contains(&format!("rank {last}")), "{error}");
        }
        let error = self.device.all_reduce(&word, Operator::Sum, self.device.stream()).expect_err("it is lost");
        assert!(error.is_loss(), "{error}");
        self.comm = self.comm.shrink()?;
        // Its kernels, for the ranks that are left.
        self.device = Device::over(world, &self.comm)?;
        self.module = self.device.load(Kernels::Ptx(PTX))?;
        assert_eq!(self.device.communicator().size(), last);
        self.small()?;
        self.types::<f32>(|i| (i % 1000) as f32 - 500.0)?;
        if self.comm.rank() == 0 && self.failed == 0 {
            println!("the loss of a rank: all checks passed");
        }
        Ok(())
    }

    fn collectives(&mut self) -> Result<()> {
        self.types::<f32>(|i| (i % 1000) as f32 - 500.0)?;
        self.types::<f64>(|i| (i % 1000) as f64 - 500.0)?;
        self.types::<i32>(|i| i as i32 - 500)?;
        self.types::<u32>(|i| i as u32)?;
        self.types::<i64>(|i| (i as i64 - 500) << 20)?;
        self.types::<u64>(|i| (i as u64) << 33)?;
        self.types::<half::f16>(|i| half::f16::from_f32((i % 64) as f32 - 32.0))?;
        self.types::<half::bf16>(|i| half::bf16::from_f32((i % 32) as f32 - 16.0))
    }

    /// Every operator and algorithm at many lengths, against the runtime's own collectives.
    fn types<T>(&mut self, value: fn(usize) -> T) -> Result<()>
    where
        T: Reducible + PartialEq + Debug,
        Sum: Op<T>,
        Min: Op<T>,
        Max: Op<T>,
    {
        let begun = Instant::now();
        let (rank, size) = (self.comm.rank(), self.comm.size());
        let most = (3 << 20) / size_of::<T>();
        let buffer = self.device.alloc::<T>(most + 16)?;
        let local = self.device.alloc_local::<T>(most + 16)?;
        // Only where all GPUs map each other is there a choice.
        let is_mapped = self.device.choice().way == Way::Mapped;
        let algorithms = [None, Some(Algorithm::OneShot), Some(Algorithm::TwoShot), Some(Algorithm::TwoHop)];
        let algorithms = &algorithms[..if is_mapped { 4 } else { 1 }];
        let mut wrong = 0;
        let lengths = [1, 2, 3, 5, 7, 8, 31, 100, 1001, 4096, 40_003, most];
        for (index, length) in lengths.into_iter().enumerate() {
            // Parts that begin anywhere.
            let place = index % 8..index % 8 + length;
            let part = buffer.slice(place.clone());
            for op in [Operator::Sum, Operator::Min, Operator::Max] {
                for algorithm in algorithms.iter().copied() {
                    if algorithm == Some(Algorithm::OneShot) && part.bytes() > (2 << 20) / size {
                        continue;
                    }
                    let mine: Vec<T> = (0..length).map(|i| value((i * (rank + 1) + index) % 1013)).collect();
                    wrong += self.compare(&part, &mine, op, algorithm, None)?;
                }
                let mine: Vec<T> = (0..length).map(|i| value((i * (rank + 3) + index) % 1013)).collect();
                let home = if index % 2 == 0 { &local } else { &buffer };
                wrong += self.compare(&home.slice(place.clone()), &mine, op, None, Some(index % size))?;
            }
            let mine: Vec<T> = (0..length).map(|i| value((i * (rank + 5) + index) % 1013)).collect();
            wrong += self.compare(&local.slice(place), &mine, Operator::Sum, None, None)?;
        }
        let name = std::any::type_name::<T>();
        self.device.free(buffer)?;
        self.say(&format!("all_reduce and reduce of {name}"), wrong, begun)
    }

    fn compare<T>(
        &self,
        buffer: &DeviceBuffer<T>,
        mine: &[T],
        op: Operator,
        algorithm: Option<Algorithm>,
        root: Option<usize>,
    ) -> Result<u64>
    where
        T: Reducible + PartialEq + Debug,
        Sum: Op<T>,
        Min: Op<T>,
        Max: Op<T>,
    {
        let mut wanted = mine.to_vec();
        match op {
            Operator::Min => self.comm.all_reduce(&mut wanted, Min)?,
            Operator::Max => self.comm.all_reduce(&mut wanted, Max)?,
            _ => self.comm.all_reduce(&mut wanted, Sum)?,
        }
        if root.is_some_and(|root| root != self.comm.rank()) {
            wanted = mine.to_vec();
        }
        buffer.write(mine)?;
        let stream = self.device.stream();
        match (algorithm, root) {
            (Some(algorithm), _) => self.device.all_reduce_by(algorithm, buffer, op, stream)?,
            (None, Some(root)) => self.device.reduce(buffer, op, root, stream)?,
            (None, None) => self.device.all_reduce(buffer, op, stream)?,
        }
        self.device.synchronize(stream)?;
        let found = buffer.to_vec()?;
        // Nobody writes the next values while others still read these.
        self.comm.barrier()?;
        let differs = found.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
        if let Some(at) = differs {
            println!(
                "rank {}: {op:?} {algorithm:?} root {root:?} of {} {}: element {at} is {:?}, not {:?}",
                self.comm.rank(),
                mine.len(),
                std::any::type_name::<T>(),
                found[at],
                wanted[at]
            );
        }
        Ok(u64::from(differs.is_some()))
    }

    /// Collectives of all kinds, captured once and replayed.
    fn graph(&mut self) -> Result<()> {
        let begun = Instant::now();
        let stream = self.device.stream();
        let (few, many) = (self.device.alloc::<i64>(3)?, self.device.alloc::<i64>(300_000)?);
        let (rank, size) = (self.comm.rank() as i64, self.comm.size() as i64);
        few.write(&[rank, 1, 2])?;
        many.write(&vec![1; 300_000])?;
        // Loads kernels, which a capture does not allow.
        self.device.all_reduce(&few, Operator::Max, stream)?;
        self.device.all_reduce(&many, Operator::Max, stream)?;
        self.device.synchronize(stream)?;
        let fails = |what: &'static str| move |error| panic!("{what}: {error}");
        stream
            .begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED)
            .unwrap_or_else(fails("capturing"));
        self.device.all_reduce(&few, Operator::Sum, stream)?;
        self.device.all_reduce(&many, Operator::Sum, stream)?;
        self.device.reduce(&few, Operator::Max, 0, stream)?;
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = stream.end_capture(flags).unwrap_or_else(|error| panic!("capturing: {error}"));
        let graph = graph.unwrap_or_else(|| panic!("the graph is empty"));
        for _ in 0..10 {
            graph.launch().unwrap_or_else(fails("launching a graph"));
        }
        self.device.synchronize(stream)?;
        let factor = size.pow(10);
        let wanted = [(size - 1) * factor, factor, 2 * factor];
        let wrong = u64::from(few.to_vec()? != wanted) + u64::from(many.to_vec()?.iter().any(|value| *value != factor));
        self.say("a graph with three collectives, replayed ten times", wrong, begun)
    }
}

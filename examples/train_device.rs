//! Data-parallel training whose gradients never leave the GPUs: a classifier of handwritten digits by softmax regression.
//!
//!     rsrun -n 2 target/release/examples/train_device
//!
//! An epoch is a graph of four kernels: the errors of this rank's images, the gradient, an all-reduce among the GPUs, and
//! the step. The host launches it once an epoch and looks at nothing but the end. GPUs of several hosts sum the gradient in
//! two hops: what goes from host to host, through the proxy, is the sum of a host.

#![expect(unsafe_code, reason = "launches kernels")]
#![expect(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "there are a few thousand images")]

use spmd::prelude::*;
use spmd_collectives::prelude::*;
use spmd_device::cudarc::driver::{
    CudaFunction, CudaGraph, CudaModule, CudaStream, DriverError, LaunchConfig, PushKernelArg, sys,
};
use spmd_device::{Device, DeviceBuffer, Kernels, Operator};
use spmd_examples::digits::{self, Image};
use spmd_examples::share;
use spmd_examples::softmax::{EPOCHS, SUMS, WEIGHTS, final_line, good_enough};
use std::sync::Arc;

fn main() -> spmd_device::Result<()> {
    let world = World::init()?;
    let comm = world.communicator();
    let (rank, size) = (comm.rank(), comm.size());
    let device = Device::new(&world)?;
    let digits = digits::load();
    let module = device.load(Kernels::Ptx(include_str!("train_device.ptx")))?;
    let trainer = Trainer::new(&device, &module, &digits.train[share(digits.train.len(), rank, size)])?;

    // Once outside of a graph: kernels are loaded when they are first used.
    trainer.epoch(digits.train.len())?;
    device.synchronize(device.stream())?;
    let graph = trainer.capture(digits.train.len())?;
    for _ in 1..EPOCHS {
        graph.launch().expect("the graph starts");
    }
    device.synchronize(device.stream())?;

    let held_out = &digits.held_out[share(digits.held_out.len(), rank, size)];
    let mut correct = [trainer.correct(held_out)?];
    comm.all_reduce(&mut correct, Sum)?;
    let bits: Vec<u64> = trainer.weights.to_vec()?.iter().map(|weight| weight.to_bits()).collect();
    let (mut lowest, mut highest) = (bits.clone(), bits);
    comm.all_reduce(&mut lowest, Min)?;
    comm.all_reduce(&mut highest, Max)?;
    assert!(lowest == highest, "the ranks' weights differ");
    let all = digits.held_out.len();
    assert!(good_enough(correct[0], all), "only {} of {all} rows right after {EPOCHS} epochs", correct[0]);
    if rank == 0 {
        print!("{}", device.explain());
        println!("{}", final_line(size, trainer.loss.to_vec()?[0], correct[0], all));
    }
    Ok(())
}

/// Everything that lies on the GPU.
struct Trainer {
    device: Device,
    functions: [CudaFunction; 4],
    count: u64,
    images: DeviceBuffer<f64>,
    classes: DeviceBuffer<i32>,
    off: DeviceBuffer<f64>,
    losses: DeviceBuffer<f64>,
    sums: DeviceBuffer<f64>,
    weights: DeviceBuffer<f64>,
    momentum: DeviceBuffer<f64>,
    loss: DeviceBuffer<f64>,
}

impl Trainer {
    fn new(device: &Device, module: &Arc<CudaModule>, images: &[Image]) -> spmd_device::Result<Self> {
        let trainer = Trainer {
            device: device.clone(),
            functions: ["errors", "sums", "step", "correct"]
                .map(|name| module.load_function(name).expect("the kernel is in the file")),
            count: images.len() as u64,
            images: device.alloc_local(images.len() * digits::PIXELS)?,
            classes: device.alloc_local(images.len())?,
            off: device.alloc_local(images.len() * digits::CLASSES)?,
            losses: device.alloc_local(images.len())?,
            sums: device.alloc_local(SUMS)?,
            weights: device.alloc_local(WEIGHTS)?,
            momentum: device.alloc_local(WEIGHTS)?,
            loss: device.alloc_local(1)?,
        };
        trainer.images.write(&pixels(images))?;
        trainer.classes.write(&classes(images))?;
        Ok(trainer)
    }

    /// Enqueues an epoch over `all` images of all ranks.
    fn epoch(&self, all: usize) -> spmd_device::Result<()> {
        let stream = self.device.stream();
        let [errors, sums, step, ..] = &self.functions;
        let all = all as f64;
        let mut launch = stream.launch_builder(errors);
        launch.arg(self.weights.argument()).arg(self.images.argument()).arg(self.classes.argument()).arg(&self.count);
        launch.arg(self.off.argument()).arg(self.losses.argument());
        // SAFETY: the arguments are those of the kernel, here and below; buffers hold `count` images.
        started(unsafe { launch.launch(threads(self.count)) });
        let mut launch = stream.launch_builder(sums);
        launch.arg(self.images.argument()).arg(self.off.argument()).arg(self.losses.argument()).arg(&self.count);
        launch.arg(self.sums.argument());
        // SAFETY: as above.
        started(unsafe { launch.launch(threads(SUMS as u64)) });
        self.device.all_reduce(&self.sums, Operator::Sum, stream)?;
        let mut launch = stream.launch_builder(step);
        launch.arg(self.weights.argument()).arg(self.momentum.argument()).arg(self.sums.argument()).arg(&all);
        launch.arg(self.loss.argument());
        // SAFETY: as above.
        started(unsafe { launch.launch(threads(SUMS as u64)) });
        Ok(())
    }

    fn capture(&self, all: usize) -> spmd_device::Result<CudaGraph> {
        let stream: &CudaStream = self.device.stream();
        stream.begin_capture(sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED).expect("capturing begins");
        self.epoch(all)?;
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        Ok(self.device.stream().end_capture(flags).expect("capturing ends").expect("four kernels are in it"))
    }

    /// How many of some images are read correctly.
    fn correct(&self, images: &[Image]) -> spmd_device::Result<u64> {
        let right = self.device.alloc_local::<u64>(1)?;
        let count = images.len() as u64;
        // There is room: fewer are held out than trained on.
        self.images.write(&pixels(images))?;
        self.classes.write(&classes(images))?;
        let mut launch = self.device.stream().launch_builder(&self.functions[3]);
        launch.arg(self.weights.argument()).arg(self.images.argument()).arg(self.classes.argument()).arg(&count);
        launch.arg(right.argument());
        // SAFETY: the arguments are those of the kernel.
        started(unsafe { launch.launch(threads(count)) });
        self.device.synchronize(self.device.stream())?;
        Ok(right.to_vec()?[0])
    }
}

fn pixels(images: &[Image]) -> Vec<f64> {
    images.iter().flat_map(|image| image.pixels).collect()
}

fn classes(images: &[Image]) -> Vec<i32> {
    images.iter().map(|image| image.class as i32).collect()
}

fn threads(count: u64) -> LaunchConfig {
    LaunchConfig { grid_dim: (count.div_ceil(128).max(1) as u32, 1, 1), block_dim: (128, 1, 1), shared_mem_bytes: 0 }
}

fn started<T>(launched: Result<T, DriverError>) {
    launched.map(drop).expect("the kernel starts");
}

//! Drives the software NIC by a real kernel: entries and doorbells that a GPU writes are fetched, checked and carried out by a
//! reader of the published formats. `device/run.sh` starts it; it takes one GPU and no launcher.

#![expect(clippy::cast_possible_truncation, reason = "GPUs are on hosts of 64 bits")]
#![expect(unsafe_code, reason = "launches kernels, and registers memory with the driver")]

use spmd::prelude::*;
use spmd_device::{
    Device, Error, Kernels, Result,
    context::{KernelContext, NEAR, PeerEntry, Way},
    cudarc::driver::{CudaModule, CudaSlice, LaunchConfig, PushKernelArg, sys},
    mlx5::{Heap, SoftwareQueue},
    nic::{Access, Memory, Nic, Regions},
};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

const PTX: &str = include_str!("gpu_nic.ptx");
const CASES: u64 = 16 * 16 * 64;
const FIELDS: usize = CASES as usize * 320;
/// A heap: fields, source, data, words.
const SOURCE: usize = FIELDS;
const DATA: usize = SOURCE + 4096;
const WORDS: usize = DATA + 64 * 128;
const HEAP: usize = WORDS + 4096;
/// Where the NIC believes the heaps to be.
const LOCAL: u64 = 0x7100_0000_0000;
const REMOTE: u64 = 0x6200_0000_0000;

fn main() -> Result<()> {
    let world = World::init()?;
    let device = Device::new(&world)?;
    let module = device.load(Kernels::Ptx(PTX))?;
    let mut wrong = 0;
    for (blocks, inline) in [(64, 28), (1024, 92), (32_768, 8)] {
        let bench = Bench::new(&device, blocks, inline);
        for (scope, threads) in [(0_u64, 128), (1, 32)] {
            bench.own.write(0, &[0xCC; FIELDS]);
            bench.peer.write(0, &vec![0xCC; FIELDS]);
            let source: Vec<u8> = (0..512).map(|i| u8::try_from((i * 7 + scope * 13) % 251).expect("small")).collect();
            bench.own.write(SOURCE, &source);
            let at = |offset: usize| bench.context.heap + offset as u64;
            let arguments = [at(0), at(SOURCE), CASES, scope];
            let failed = bench.run(&device, &module, "nic_puts", 64, threads, &arguments)?;
            let differ = bench.compare(&source);
            println!(
                "{blocks} blocks, {inline} bytes inline, scope {scope}: {CASES} puts, {differ} bytes wrong, {failed} failed"
            );
            wrong += differ + failed;
        }
        let rounds = 200;
        let at = |offset: usize| bench.context.heap + offset as u64;
        let failed =
            bench.run(&device, &module, "nic_signals", 32, 64, &[at(DATA), at(WORDS), at(WORDS + 2048), rounds])?;
        let word = |at: usize| bench.peer.word(at).load(Ordering::Acquire);
        let short = (0..32).filter(|block| word(WORDS + block * 8) != rounds).count() as u64;
        let total = word(WORDS + 2048);
        let counters = bench.nic.lock().expect("not poisoned").counters();
        println!("{} put_signals and signals, sum {total}; {counters:?}", 64 * rounds);
        wrong += failed + short + u64::from(total != 32 * rounds);
        let found = bench.nic.lock().expect("not poisoned").found().to_vec();
        for fault in &found {
            println!("the NIC found: {fault:?}");
        }
        wrong += found.len() as u64;
        // What the NIC refuses ends the kernel with an error: a key that nobody has.
        if blocks == 1024 {
            let spoiled = Bench::with(&device, blocks, inline, 0x1234);
            let at = |offset: usize| spoiled.context.heap + offset as u64;
            let outcome = spoiled.run(&device, &module, "nic_puts", 4, 32, &[at(0), at(SOURCE), 64, 0]);
            match outcome {
                Err(Error::Kernel(error)) if error.to_string().contains("syndrome") => println!("refused key: {error}"),
                other => {
                    println!("refused key: {other:?}");
                    wrong += 1;
                }
            }
        }
    }
    if wrong > 0 {
        world.abort(1, &format!("{wrong} things were wrong"));
    }
    println!("the software NIC carried out everything that the GPU posted");
    Ok(())
}

/// A rank, its peer, and the NIC between them, all in memory that the GPU sees.
struct Bench {
    own: Memory,
    peer: Memory,
    context: KernelContext,
    nic: Mutex<Nic>,
    _queue: SoftwareQueue,
    _on_device: [CudaSlice<u64>; 3],
}

impl Bench {
    fn new(device: &Device, blocks: usize, inline: u32) -> &'static Self {
        Self::with(device, blocks, inline, 0)
    }

    /// `spoil` is added to the remote key. It stays until the process ends, because the driver keeps its memory.
    fn with(device: &Device, blocks: usize, inline: u32, spoil: u32) -> &'static Self {
        let (own, peer) = (Memory::zeroed(HEAP), Memory::zeroed(HEAP));
        let (here, there) = (Arc::new(Regions::default()), Arc::new(Regions::default()));
        let local = Heap { base: LOCAL, key: here.register(LOCAL, own.clone(), Access::Remote) };
        let key = there.register(REMOTE, peer.clone(), Access::Remote);
        let remote = Heap { base: REMOTE, key: key + spoil };
        let queue = SoftwareQueue::new(0x00ab_cdef, blocks);
        let mut nic = Nic::default();
        nic.add(queue.queue(here, there));
        // The last 8 bytes of the own heap, which nothing else uses.
        let result = Heap { base: LOCAL + HEAP as u64 - 8, key: local.key };
        let handle = queue.handle_at(registered(queue.memory()), local, remote, result, inline);
        let stream = device.stream();
        let handle = stream.clone_htod(bytemuck::bytes_of(&handle).chunks(8).map(word).collect::<Vec<_>>().as_slice());
        let handle = handle.expect("copied");
        let heap = registered(&own);
        let peers = [
            PeerEntry { base: heap, way: Way::Mapped as u32, ..PeerEntry::default() },
            PeerEntry { queue: address(&handle, device), way: Way::Mlx5 as u32, ..PeerEntry::default() },
        ];
        let peers = stream.clone_htod(bytemuck::cast_slice::<_, u64>(&peers)).expect("copied");
        let mut copy = stream.alloc_zeros::<u64>(size_of::<KernelContext>() / 8).expect("taken");
        let mut near = [0; NEAR];
        near[0] = heap;
        let context = KernelContext {
            copy: address(&copy, device),
            near,
            rank: 0,
            size: 2,
            heap,
            heap_bytes: HEAP as u64,
            peers: address(&peers, device),
            ring: 0,
            collective: 0,
            ..*device.context()
        };
        let words = bytemuck::cast_slice::<_, u64>(std::slice::from_ref(&context));
        stream.memcpy_htod(words, &mut copy).expect("copied");
        stream.synchronize().expect("copied");
        let nic = Mutex::new(nic);
        Box::leak(Box::new(Bench { own, peer, context, nic, _queue: queue, _on_device: [handle, peers, copy] }))
    }

    /// Runs a kernel while the NIC is polled; how many blocks said that a call failed.
    fn run(
        &self,
        device: &Device,
        module: &Arc<CudaModule>,
        name: &str,
        blocks: u32,
        threads: u32,
        arguments: &[u64],
    ) -> Result<u64> {
        let failed = device.stream().alloc_zeros::<u64>(1).expect("taken");
        let failed_at = address(&failed, device);
        let function = module.load_function(name).expect("the kernel is in the file");
        let mut launch = device.stream().launch_builder(&function);
        launch.arg(&self.context);
        for argument in arguments {
            launch.arg(argument);
        }
        launch.arg(&failed_at);
        let shape = LaunchConfig { grid_dim: (blocks, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: 0 };
        let stop = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    self.nic.lock().expect("not poisoned").poll();
                }
            });
            // SAFETY: the kernels of gpu_nic.cu take the context and 64-bit numbers; each call gives as many as it takes.
            unsafe { launch.launch(shape) }.expect("the kernel starts");
            let outcome = device.synchronize(device.stream());
            stop.store(true, Ordering::Release);
            outcome
        });
        outcome?;
        Ok(device.stream().clone_dtoh(&failed).expect("copied")[0])
    }

    /// Bytes at the peer that are not as they should be, around the fields included.
    fn compare(&self, source: &[u8]) -> u64 {
        let mut found = vec![0; FIELDS];
        self.peer.read(0, &mut found);
        let mut wanted = vec![0xCC; FIELDS];
        for k in 0..CASES as usize {
            let (from, to, length) = (k % 16, k / 16 % 16, k / 256 % 257 + 1);
            wanted[k * 320 + 16 + to..][..length].copy_from_slice(&source[16 + from..][..length]);
        }
        found.iter().zip(&wanted).filter(|(found, wanted)| found != wanted).count() as u64
    }
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_ne_bytes(bytes.try_into().expect("eight bytes"))
}

fn address<T>(slice: &CudaSlice<T>, device: &Device) -> u64 {
    use spmd_device::cudarc::driver::DevicePtr;
    slice.device_ptr(device.stream()).0
}

/// Registers memory with the driver, until the process ends; where the GPU sees it.
fn registered(memory: &Memory) -> u64 {
    let start = memory.start().as_ptr();
    let flags = sys::CU_MEMHOSTREGISTER_PORTABLE | sys::CU_MEMHOSTREGISTER_DEVICEMAP;
    let mut device = 0;
    // SAFETY: the memory is there, and its address is asked for after it was registered.
    unsafe {
        sys::cuMemHostRegister_v2(start.cast(), memory.bytes(), flags).result().expect("registered");
        sys::cuMemHostGetDevicePointer_v2(&raw mut device, start.cast(), 0).result().expect("registered");
    }
    device
}

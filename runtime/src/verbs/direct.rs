//! Queue pairs of an mlx5 NIC that somebody else drives: a GPU writes requests into the send queue and rings the doorbell
//! itself. The library only makes and connects them, and says where their memory is (`mlx5dv_init_obj`).
//!
//! Knows no GPU. Not run on hardware: no machine with such a NIC was there. What is checked is the layout of the structures,
//! against `infiniband/mlx5dv.h`, and every refusal.

#![expect(unsafe_code, reason = "calls of libmlx5")]

use super::{
    Attributes, Completions, Device, Endpoint, Gid, QueuePair, Region, Shape, Shared, VerbsError, Wanted,
    error::Result, sys, units::Mtu,
};
use crate::{SymmetricHeap, World, config::keys, transport::verbs::attributes};
use std::{
    ffi::{CStr, c_int, c_void},
    ptr::NonNull,
    sync::{Arc, OnceLock},
};

const LIBRARY: &CStr = c"libmlx5.so.1";
/// Bytes of a block of a send queue and of a completion that whoever drives the queue expects.
const UNIT: u32 = 64;
/// The most payload that is asked for within a request: what fits into two blocks.
const INLINE: u32 = 92;

/// `struct mlx5dv_qp`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct DvQp {
    dbrec: *mut u32,
    sq: DvRing,
    rq: DvRing,
    bf_reg: *mut c_void,
    bf_size: u32,
    comp_mask: u64,
    uar_mmap_offset: i64,
    numbers: [u32; 4],
    tir_icm_addr: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct DvRing {
    buf: *mut c_void,
    wqe_cnt: u32,
    stride: u32,
}

/// `struct mlx5dv_cq`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct DvCq {
    buf: *mut c_void,
    dbrec: *mut u32,
    cqe_cnt: u32,
    cqe_size: u32,
    cq_uar: *mut c_void,
    cqn: u32,
    comp_mask: u64,
}

/// `struct mlx5dv_obj`: pairs of what is asked about and where the answer goes.
#[repr(C)]
#[derive(Debug)]
struct DvObj {
    qp: (*mut sys::Qp, *mut DvQp),
    cq: (*mut sys::Cq, *mut DvCq),
    others: [*mut c_void; 10],
}

const OBJ_QP: u64 = 1;
const OBJ_CQ: u64 = 1 << 1;

/// What we call of libmlx5.
#[derive(Debug)]
struct Library {
    is_supported: unsafe extern "C" fn(*mut sys::Device) -> bool,
    init_obj: unsafe extern "C" fn(*mut DvObj, u64) -> c_int,
}

impl Library {
    fn load() -> std::result::Result<Self, String> {
        // SAFETY: a NUL-terminated name; the library is the provider that libibverbs loads, too.
        let handle = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let symbol = |name: &CStr| {
            // SAFETY: a handle that is never closed, and a NUL-terminated name.
            let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
            NonNull::new(symbol).ok_or_else(|| format!("libmlx5.so.1 has no {}", name.to_string_lossy()))
        };
        if handle.is_null() {
            return Err("libmlx5.so.1 cannot be loaded (it comes with rdma-core)".into());
        }
        let (is_supported, init_obj) = (symbol(c"mlx5dv_is_supported")?, symbol(c"mlx5dv_init_obj")?);
        // SAFETY: the functions that mlx5dv.h declares so.
        unsafe {
            Ok(Library {
                is_supported: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut sys::Device) -> bool>(
                    is_supported.as_ptr(),
                ),
                init_obj: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut DvObj, u64) -> c_int>(
                    init_obj.as_ptr(),
                ),
            })
        }
    }
}

fn library() -> std::result::Result<&'static Library, String> {
    static LIBRARY: OnceLock<std::result::Result<Library, String>> = OnceLock::new();
    LIBRARY.get_or_init(Library::load).as_ref().map_err(Clone::clone)
}

/// An mlx5 NIC that knows this rank's part of a symmetric heap.
#[derive(Debug)]
pub struct DirectNic {
    device: Arc<Device>,
    library: &'static Library,
    heap: Shared,
    /// Where atomic operations leave what was there.
    results: Region,
    attributes: Attributes,
}

/// A reliable queue pair whose send queue is not the library's to fill.
#[derive(Debug)]
pub struct DirectQueue {
    pair: QueuePair,
    attributes: Attributes,
    offer: Offer,
    memory: QueueMemory,
}

/// What a peer must be told to connect with a queue, as words.
pub type Offer = [u64; 8];

/// Where the parts of a queue pair are in this process, and what they are called.
#[derive(Clone, Copy, Debug)]
pub struct QueueMemory {
    /// The send queue: blocks of 64 bytes, a power of two of them.
    pub entries: NonNull<[u8]>,
    /// The send queue's doorbell record: 4 bytes.
    pub send_record: NonNull<u8>,
    /// The doorbell register, in a page of the NIC.
    pub doorbell: NonNull<u8>,
    /// The completion queue: entries of 64 bytes, a power of two of them.
    pub completions: NonNull<[u8]>,
    /// The completion queue's doorbell record: 4 bytes.
    pub consumer_record: NonNull<u8>,
    /// The queue pair's number.
    pub number: u32,
    /// This rank's heap for the NIC: address and key.
    pub heap: (u64, u32),
    /// Where atomic operations leave 8 bytes: address and key.
    pub results: (u64, u32),
    /// The most payload within an entry, in bytes.
    pub inline_bytes: u32,
}

// SAFETY: addresses that are only passed on; the queue that they belong to says how long they are valid.
unsafe impl Send for QueueMemory {}

impl DirectNic {
    /// Opens the NIC that RDMA would use (`verbs.device`, else the one next to the rank), and registers the heap with it.
    ///
    /// # Errors
    /// Why that is impossible: no device, one of another maker, no library, memory that may not be locked.
    pub fn open(world: &World, heap: &SymmetricHeap) -> std::result::Result<Self, String> {
        let near = world.placement().nic.as_ref().map(|nic| nic.name.as_str());
        let attributes = attributes(world.snapshot()).map_err(|error| error.to_string())?;
        // First of all the device: without one nobody wants to hear of libraries.
        let comm = world.communicator();
        let place = (0..comm.rank()).filter(|rank| comm.host_of(*rank) == comm.host_of(comm.rank())).count();
        let wanted = Wanted::of(&world.snapshot().get(keys::VERBS_DEVICE), place).map_err(|error| error.to_string())?;
        let device = Device::open(wanted.as_ref(), near, None).map_err(|error| error.to_string())?;
        let library = library()?;
        // SAFETY: an open device.
        if !unsafe { (library.is_supported)(device.context.as_ref().device) } {
            return Err(format!("{} is no mlx5 NIC, and only of these the formats are known", device.name()));
        }
        let device = Arc::new(device);
        let registered = Shared::new(&device, heap.memory_of_heap()).map_err(|error| error.to_string())?;
        let results = Region::landing(&device, 4096).map_err(|error| error.to_string())?;
        Ok(DirectNic { device, library, heap: registered, results, attributes })
    }

    /// Its name and port, as `mlx5_0:1`.
    #[must_use]
    pub fn name(&self) -> String {
        self.device.name()
    }

    /// A queue pair with room for `depth` requests, a power of two, not connected yet.
    ///
    /// # Errors
    /// What the library or the device refuses, or memory of a form that is not known.
    pub fn queue(&self, depth: u32, random: u32) -> std::result::Result<DirectQueue, String> {
        self.make(depth, random).map_err(|error| error.to_string())?
    }

    fn make(&self, depth: u32, random: u32) -> Result<std::result::Result<DirectQueue, String>> {
        // A completion queue of its own: whoever drives the queue takes its completions.
        let mut completions = Completions::new(&self.device)?;
        let shape = Shape { send_depth: depth, receive_depth: 1, inline: INLINE };
        let pair = QueuePair::new(&self.device, &mut completions, shape, random)?;
        // SAFETY: zero is a value of every field.
        let (mut qp, mut cq) = unsafe { (std::mem::zeroed::<DvQp>(), std::mem::zeroed::<DvCq>()) };
        let mut object = DvObj {
            qp: (pair.raw().as_ptr(), &raw mut qp),
            cq: (pair.raw_completions().as_ptr(), &raw mut cq),
            others: [std::ptr::null_mut(); 10],
        };
        // SAFETY: a queue pair and a completion queue of an mlx5 device, and room for what is said of them.
        let refused = unsafe { (self.library.init_obj)(&raw mut object, OBJ_QP | OBJ_CQ) };
        if refused != 0 {
            let source = std::io::Error::from_raw_os_error(refused);
            return Err(VerbsError::Call { device: self.name(), call: "mlx5dv_init_obj", source });
        }
        let endpoint = pair.endpoint(self.device.port().mtu);
        let heap = self.heap.remote();
        Ok(memory(&qp, &cq, &endpoint).map(|mut memory| {
            memory.heap = (heap.address, self.heap.local_key());
            memory.results = (self.results.address(), self.results.local_key());
            memory.inline_bytes = u32::try_from(pair.inline_bytes()).unwrap_or(0).min(INLINE);
            let offer = offer(&endpoint, heap.address, heap.key);
            DirectQueue { pair, attributes: self.attributes, offer, memory }
        }))
    }
}

/// The parts of a queue pair, if they have the form that is expected.
fn memory(qp: &DvQp, cq: &DvCq, endpoint: &Endpoint) -> std::result::Result<QueueMemory, String> {
    let part = |start: *mut c_void, what: &str| {
        NonNull::new(start.cast::<u8>()).ok_or_else(|| format!("mlx5dv_init_obj does not say where the {what} is"))
    };
    if qp.sq.stride != UNIT || !qp.sq.wqe_cnt.is_power_of_two() || qp.sq.wqe_cnt > 1 << 15 {
        return Err(format!("a send queue of {} blocks of {} bytes", qp.sq.wqe_cnt, qp.sq.stride));
    }
    if cq.cqe_size != UNIT || !cq.cqe_cnt.is_power_of_two() || cq.cqe_cnt < qp.sq.wqe_cnt {
        return Err(format!(
            "{} completions of {} bytes for {} blocks: unset MLX5_CQE_SIZE",
            cq.cqe_cnt, cq.cqe_size, qp.sq.wqe_cnt
        ));
    }
    let bytes = |count: u32| count as usize * UNIT as usize;
    let entries = NonNull::slice_from_raw_parts(part(qp.sq.buf, "send queue")?, bytes(qp.sq.wqe_cnt));
    let completions = NonNull::slice_from_raw_parts(part(cq.buf, "completion queue")?, bytes(cq.cqe_cnt));
    // Two records: that of receives, then that of sends.
    let send_record = part(qp.dbrec.wrapping_add(1).cast(), "doorbell record")?;
    Ok(QueueMemory {
        entries,
        send_record,
        doorbell: part(qp.bf_reg, "doorbell register")?,
        completions,
        consumer_record: part(cq.dbrec.cast(), "completion queue's doorbell record")?,
        number: endpoint.number,
        heap: (0, 0),
        results: (0, 0),
        inline_bytes: 0,
    })
}

fn offer(end: &Endpoint, address: u64, key: u32) -> Offer {
    let (first, second) = end.gid.0.split_at(8);
    let word = |bytes: &[u8]| u64::from_be_bytes(bytes.try_into().expect("eight bytes"));
    [
        word(first),
        word(second),
        end.lid.into(),
        end.number.into(),
        end.sequence.into(),
        end.mtu.bytes().into(),
        address,
        key.into(),
    ]
}

/// The peer's end, where its heap is for its NIC, and the key.
fn accept(offer: &Offer) -> Option<(Endpoint, u64, u32)> {
    let [first, second, lid, number, sequence, mtu, address, key] = *offer;
    let mut gid = [0; 16];
    gid[..8].copy_from_slice(&first.to_be_bytes());
    gid[8..].copy_from_slice(&second.to_be_bytes());
    let end = Endpoint {
        gid: Gid(gid),
        lid: lid.try_into().ok()?,
        number: number.try_into().ok()?,
        sequence: sequence.try_into().ok()?,
        mtu: Mtu::from_bytes(mtu.try_into().ok()?)?,
    };
    Some((end, address, key.try_into().ok()?))
}

impl DirectQueue {
    /// What the peer must be told.
    #[must_use]
    pub fn offer(&self) -> Offer {
        self.offer
    }

    /// Connects it with what the peer offers; where the peer's heap is for its NIC, and the key.
    ///
    /// # Errors
    /// When the offer is none, or the device refuses.
    pub fn connect(&mut self, offer: &Offer) -> std::result::Result<(u64, u32), String> {
        let (end, address, key) = accept(offer).ok_or("the peer's offer makes no sense")?;
        self.pair.connect(&end, &self.attributes).map_err(|error| error.to_string())?;
        Ok((address, key))
    }

    /// Where its parts are, for as long as it exists.
    #[must_use]
    pub fn memory(&self) -> QueueMemory {
        self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        mem::offset_of,
        process::{Command, Stdio},
    };

    #[test]
    fn the_structures_are_those_of_the_published_header() {
        let facts = [
            ("sizeof(struct mlx5dv_qp)", size_of::<DvQp>()),
            ("offsetof(struct mlx5dv_qp, dbrec)", offset_of!(DvQp, dbrec)),
            ("offsetof(struct mlx5dv_qp, sq.buf)", offset_of!(DvQp, sq) + offset_of!(DvRing, buf)),
            ("offsetof(struct mlx5dv_qp, sq.wqe_cnt)", offset_of!(DvQp, sq) + offset_of!(DvRing, wqe_cnt)),
            ("offsetof(struct mlx5dv_qp, sq.stride)", offset_of!(DvQp, sq) + offset_of!(DvRing, stride)),
            ("offsetof(struct mlx5dv_qp, rq)", offset_of!(DvQp, rq)),
            ("offsetof(struct mlx5dv_qp, bf.reg)", offset_of!(DvQp, bf_reg)),
            ("offsetof(struct mlx5dv_qp, bf.size)", offset_of!(DvQp, bf_size)),
            ("offsetof(struct mlx5dv_qp, comp_mask)", offset_of!(DvQp, comp_mask)),
            ("offsetof(struct mlx5dv_qp, uar_mmap_offset)", offset_of!(DvQp, uar_mmap_offset)),
            ("offsetof(struct mlx5dv_qp, tirn)", offset_of!(DvQp, numbers)),
            ("offsetof(struct mlx5dv_qp, tir_icm_addr)", offset_of!(DvQp, tir_icm_addr)),
            ("sizeof(struct mlx5dv_cq)", size_of::<DvCq>()),
            ("offsetof(struct mlx5dv_cq, buf)", offset_of!(DvCq, buf)),
            ("offsetof(struct mlx5dv_cq, dbrec)", offset_of!(DvCq, dbrec)),
            ("offsetof(struct mlx5dv_cq, cqe_cnt)", offset_of!(DvCq, cqe_cnt)),
            ("offsetof(struct mlx5dv_cq, cqe_size)", offset_of!(DvCq, cqe_size)),
            ("offsetof(struct mlx5dv_cq, cq_uar)", offset_of!(DvCq, cq_uar)),
            ("offsetof(struct mlx5dv_cq, cqn)", offset_of!(DvCq, cqn)),
            ("offsetof(struct mlx5dv_cq, comp_mask)", offset_of!(DvCq, comp_mask)),
            ("sizeof(struct mlx5dv_obj)", size_of::<DvObj>()),
            ("offsetof(struct mlx5dv_obj, qp)", offset_of!(DvObj, qp)),
            ("offsetof(struct mlx5dv_obj, cq)", offset_of!(DvObj, cq)),
            ("MLX5DV_OBJ_QP", 1),
            ("MLX5DV_OBJ_CQ", 2),
            ("MLX5_SEND_WQE_BB", UNIT as usize),
            ("sizeof(struct mlx5_cqe64)", UNIT as usize),
            ("MLX5_SND_DBR", 1),
        ];
        assert_eq!((OBJ_QP, OBJ_CQ), (1, 2));
        let include = "#include <stddef.h>\n#include <infiniband/mlx5dv.h>\n";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("layout.c");
        let compile = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Command::new("cc").arg("-fsyntax-only").arg(&file).stdin(Stdio::null()).output()
        };
        if !compile(include).is_ok_and(|output| output.status.success()) {
            eprintln!("no C compiler or no infiniband/mlx5dv.h (cargo xtask setup): the layout was NOT compared");
            return;
        }
        let asserts: String =
            facts.iter().map(|(fact, value)| format!("_Static_assert({fact} == {value}, \"{fact}\");\n")).collect();
        let output = compile(&format!("{include}{asserts}")).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    #[test]
    fn an_offer_says_what_it_was_made_of_and_nonsense_is_refused() {
        let gid = Gid(std::array::from_fn(|i| u8::try_from(i * 17).unwrap()));
        let mtu = Mtu::from_bytes(4096).unwrap();
        let end = Endpoint { gid, lid: 7, number: 0x00ab_cdef, sequence: 0x00fe_dcba, mtu };
        let words = offer(&end, u64::MAX, u32::MAX);
        assert_eq!(accept(&words), Some((end, u64::MAX, u32::MAX)));
        for (word, value) in [(2, 1 << 16), (3, 1 << 32), (4, 1 << 32), (5, 1500), (7, 1 << 32)] {
            let mut wrong = words;
            wrong[word] = value;
            assert_eq!(accept(&wrong), None, "word {word}");
        }
    }

    #[test]
    fn memory_of_another_form_is_refused_with_what_it_is() {
        let byte = std::ptr::dangling_mut::<u64>();
        let ring = DvRing { buf: byte.cast(), wqe_cnt: 64, stride: 64 };
        // SAFETY: zero is a value of every field.
        let (mut qp, mut cq) = unsafe { (std::mem::zeroed::<DvQp>(), std::mem::zeroed::<DvCq>()) };
        (qp.sq, qp.dbrec, qp.bf_reg) = (ring, byte.cast(), byte.cast());
        (cq.buf, cq.dbrec, cq.cqe_cnt, cq.cqe_size) = (byte.cast(), byte.cast(), 64, 64);
        let end = Endpoint { gid: Gid([0; 16]), lid: 0, number: 5, sequence: 0, mtu: Mtu::from_bytes(1024).unwrap() };
        let good = memory(&qp, &cq, &end).unwrap();
        assert_eq!((good.entries.len(), good.completions.len(), good.number), (4096, 4096, 5));
        assert_eq!(good.send_record.as_ptr().addr(), byte.addr() + 4);
        let refused = |change: fn(&mut DvQp, &mut DvCq)| {
            let (mut qp, mut cq) = (qp, cq);
            change(&mut qp, &mut cq);
            memory(&qp, &cq, &end).unwrap_err()
        };
        assert_eq!(refused(|qp, _| qp.sq.stride = 128), "a send queue of 64 blocks of 128 bytes");
        assert_eq!(refused(|qp, _| qp.sq.wqe_cnt = 1 << 16), "a send queue of 65536 blocks of 64 bytes");
        assert!(refused(|_, cq| cq.cqe_size = 128).contains("MLX5_CQE_SIZE"));
        assert!(refused(|_, cq| cq.cqe_cnt = 32).contains("32 completions"));
        assert!(refused(|qp, _| qp.bf_reg = std::ptr::null_mut()).contains("doorbell register"));
    }

    #[test]
    fn without_a_device_the_reason_is_that() {
        if super::super::has_device() {
            return;
        }
        crate::local::run(1, |world| {
            let heap = SymmetricHeap::new(&world.communicator(), 4096).unwrap();
            assert_eq!(DirectNic::open(world, &heap).unwrap_err(), "this host has no RDMA device");
        });
    }
}

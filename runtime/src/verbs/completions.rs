//! Completion queues: made as large as queue pairs need them, polled in batches.

#![expect(unsafe_code, reason = "calls of libibverbs")]

use super::{
    device::Device,
    error::{Result, VerbsError},
    library::status_text,
    sys,
};
use std::{mem::MaybeUninit, os::fd::BorrowedFd, ptr::NonNull, sync::Arc};

/// Completions taken with one call.
const BATCH: usize = 16;

/// What a completion says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// A request that asked for it is done, and all before it.
    Sent,
    /// A peer has written so many bytes and sent this number with them.
    Received { immediate: u32, bytes: usize },
    /// A request failed, and with it its queue pair.
    Failed {
        /// The library's words.
        reason: String,
        status: i32,
        /// The device's own code.
        vendor_code: u32,
        /// Only because another one has failed before.
        flushed: bool,
    },
}

/// A completion of the request with this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Completion {
    pub(crate) id: u64,
    pub(crate) outcome: Outcome,
}

/// How a sleeping process learns of completions.
#[derive(Debug)]
struct Channel {
    device: Arc<Device>,
    channel: NonNull<sys::CompChannel>,
}

/// One completion queue, as long as it or a queue pair that reports to it exists.
#[derive(Debug)]
pub(super) struct Queue {
    channel: Arc<Channel>,
    pub(super) cq: NonNull<sys::Cq>,
}

// SAFETY: the library's objects may be used from any thread.
unsafe impl Send for Channel {}
// SAFETY: shared only to keep it alive; calls go through `&mut Completions`.
unsafe impl Sync for Channel {}
// SAFETY: as for the channel.
unsafe impl Send for Queue {}
// SAFETY: as for the channel.
unsafe impl Sync for Queue {}

impl Drop for Channel {
    fn drop(&mut self) {
        // SAFETY: the queues that use it hold it.
        unsafe { (self.device.library.ibv_destroy_comp_channel)(self.channel.as_ptr()) };
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the queue pairs that report to it hold it, and every event was acknowledged when it was taken.
        unsafe { (self.channel.device.library.ibv_destroy_cq)(self.cq.as_ptr()) };
    }
}

/// The completions of all queue pairs of a rank.
#[derive(Debug)]
pub(crate) struct Completions {
    channel: Arc<Channel>,
    queues: Vec<Arc<Queue>>,
    /// Entries of the last queue that no queue pair may use yet.
    free: u32,
}

impl Completions {
    /// For the queue pairs of a device.
    pub(crate) fn new(device: &Arc<Device>) -> Result<Self> {
        // SAFETY: an open device.
        let channel = NonNull::new(unsafe { (device.library.ibv_create_comp_channel)(device.context.as_ptr()) });
        let channel = channel.ok_or_else(|| device.failed("ibv_create_comp_channel"))?;
        let channel = Arc::new(Channel { device: device.clone(), channel });
        let completions = Self { channel, queues: Vec::new(), free: 0 };
        rustix::io::ioctl_fionbio(completions.descriptor(), true).map_err(|error| VerbsError::Call {
            device: device.name(),
            call: "ioctl(FIONBIO)",
            source: error.into(),
        })?;
        Ok(completions)
    }

    /// Readable when an armed queue has a completion.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel has its descriptor as long as it exists, which this borrow says.
        unsafe { BorrowedFd::borrow_raw(self.channel.channel.as_ref().fd) }
    }

    /// A queue with room for so many completions at once: a queue that overflows breaks all that report to it.
    pub(super) fn with_room(&mut self, entries: u32) -> Result<Arc<Queue>> {
        let device = &self.channel.device;
        if let Some(last) = self.queues.last().filter(|_| self.free >= entries) {
            self.free -= entries;
            return Ok(last.clone());
        }
        let most = u32::try_from(device.limits.max_cqe).unwrap_or(u32::MAX);
        if entries > most {
            return Err(VerbsError::Attribute {
                device: device.name(),
                name: "the number of completions of one connection (verbs.send_depth and verbs.ring_bytes)",
                value: entries.into(),
                allowed: format!("the device has at most {most} in a queue"),
            });
        }
        // Room for several connections, so that there is little to poll.
        let size = (16 * entries).min(most);
        let narrow = i32::try_from(size).unwrap_or(i32::MAX);
        // SAFETY: an open device, a channel of it.
        let cq = NonNull::new(unsafe {
            (device.library.ibv_create_cq)(
                device.context.as_ptr(),
                narrow,
                std::ptr::null_mut(),
                self.channel.channel.as_ptr(),
                0,
            )
        });
        let cq = cq.ok_or_else(|| device.failed("ibv_create_cq"))?;
        let queue = Arc::new(Queue { channel: self.channel.clone(), cq });
        self.queues.push(queue.clone());
        self.free = size - entries;
        Ok(queue)
    }

    /// Takes what has come, a bounded number.
    pub(crate) fn poll(&mut self, found: &mut Vec<Completion>) -> Result<()> {
        for queue in &self.queues {
            // Not zeroed: this runs in every turn of a loop that waits.
            let mut entries = [const { MaybeUninit::<sys::Wc>::uninit() }; BATCH];
            let cq = queue.cq.as_ptr();
            // SAFETY: an open device whose driver has filled its table.
            let poll = unsafe { self.channel.device.context.as_ref() }.poll_cq;
            let Some(poll) = poll else { return Err(self.channel.device.failed("ibv_poll_cq")) };
            // SAFETY: a queue of this device, room for as many entries as are asked for.
            let count = unsafe { poll(cq, BATCH.try_into().unwrap_or(1), entries.as_mut_ptr().cast()) };
            let Ok(count) = usize::try_from(count) else { return Err(self.channel.device.failed("ibv_poll_cq")) };
            // SAFETY: the driver has filled so many from the front.
            found.extend(entries[..count].iter().map(|entry| completion(unsafe { entry.assume_init_ref() })));
        }
        Ok(())
    }

    /// From now on the next completion makes the descriptor readable. Those that are there already do not.
    pub(crate) fn arm(&mut self) {
        for queue in &self.queues {
            // SAFETY: an open device whose driver has filled its table.
            if let Some(notify) = unsafe { self.channel.device.context.as_ref() }.req_notify_cq {
                // SAFETY: a queue of this device. A failure means a later wake-up, which the limit of a sleep bounds.
                unsafe { notify(queue.cq.as_ptr(), 0) };
            }
        }
    }

    /// Takes the events that made the descriptor readable.
    pub(crate) fn disarm(&mut self) {
        let (mut cq, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        let library = self.channel.device.library;
        // SAFETY: a channel that does not block.
        while unsafe { (library.ibv_get_cq_event)(self.channel.channel.as_ptr(), &raw mut cq, &raw mut context) } == 0 {
            // SAFETY: the queue that the event names, which exists: events of a queue end with it.
            unsafe { (library.ibv_ack_cq_events)(cq, 1) };
        }
    }
}

fn completion(entry: &sys::Wc) -> Completion {
    let outcome = match (entry.status, entry.opcode) {
        (sys::WC_SUCCESS, sys::WC_RECV_RDMA_WITH_IMM) => {
            Outcome::Received { immediate: u32::from_be(entry.imm_data), bytes: entry.byte_len as usize }
        }
        (sys::WC_SUCCESS, _) => Outcome::Sent,
        (status, _) => Outcome::Failed {
            reason: status_text(status),
            status,
            vendor_code: entry.vendor_err,
            flushed: status == sys::WC_WR_FLUSH_ERR,
        },
    };
    Completion { id: entry.wr_id, outcome }
}

//! Queue pairs: through their states, and what is posted to them.

#![expect(unsafe_code, reason = "calls of libibverbs, requests that name memory by address")]

use super::{
    address::Gid,
    completions::{Completions, Queue},
    device::Device,
    error::{Result, VerbsError},
    memory::{Piece, Remote},
    sys::{self, Plain},
    units::{AckTimeout, Mtu, RnrTimer},
};
use std::{fmt::Write as _, io, ptr::NonNull, sync::Arc};

/// What is reserved of the 32 bits of a packet sequence number.
const SEQUENCE_BITS: u32 = 24;

/// How a queue pair is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Requests that may be under way.
    pub(crate) send_depth: u32,
    /// Receives that may be posted.
    pub(crate) receive_depth: u32,
    /// Bytes that travel within a request, if the device can.
    pub(crate) inline: u32,
}

/// What both ends tell each other of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) gid: Gid,
    pub(crate) lid: u16,
    pub(crate) number: u32,
    /// The first packet sequence number, 24 bits: random, so that a packet of a queue pair before this one does not match.
    pub(crate) sequence: u32,
    pub(crate) mtu: Mtu,
}

/// The attributes of a connection that can be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) ack_timeout: AckTimeout,
    /// Resends before the connection fails, 0 to 7.
    pub(crate) retries: u8,
    /// Waits for a receiver that is not ready, 0 to 6; 7: for ever.
    pub(crate) rnr_retries: u8,
    /// How long a sender waits that finds this end not ready.
    pub(crate) rnr_timer: RnrTimer,
    /// The largest packet.
    pub(crate) mtu: Mtu,
    pub(crate) traffic_class: u8,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Writes into the peer's memory; the peer hears nothing of it.
    Write,
    /// Writes into the peer's memory and sends a number, which a receive of the peer reports.
    WriteAndTell(u32),
    /// Reads from the peer's memory.
    Read,
}

/// A request that moves bytes between memory of this process and memory of the peer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Work {
    pub(crate) id: u64,
    pub(crate) what: What,
    pub(crate) here: Piece,
    pub(crate) there: Remote,
    /// It asks for a completion.
    pub(crate) signalled: bool,
}

/// One end of a reliable connection.
#[derive(Debug)]
pub(crate) struct QueuePair {
    device: Arc<Device>,
    _completions: Arc<Queue>,
    qp: NonNull<sys::Qp>,
    sequence: u32,
    inline: usize,
    /// Kept between calls, so that posting allocates nothing.
    requests: Vec<sys::SendWr>,
    pieces: Vec<sys::Sge>,
}

// SAFETY: the library's objects may be used from any thread; the pointers in the kept requests are written anew at each use.
unsafe impl Send for QueuePair {}

impl QueuePair {
    /// A queue pair that takes receives but is not connected. `random`: for its first packet sequence number.
    pub(crate) fn new(device: &Arc<Device>, completions: &mut Completions, shape: Shape, random: u32) -> Result<Self> {
        let most = u32::try_from(device.limits.max_qp_wr).unwrap_or(u32::MAX);
        for (name, depth) in [
            ("the depth of the send queue (verbs.send_depth)", shape.send_depth),
            ("the depth of the receive queue (from verbs.ring_bytes)", shape.receive_depth),
        ] {
            if depth == 0 || depth > most {
                let allowed = format!("the device allows 1 to {most}");
                return Err(VerbsError::Attribute { device: device.name(), name, value: depth.into(), allowed });
            }
        }
        let queue = completions.with_room(shape.send_depth + shape.receive_depth)?;
        let mut inline = shape.inline;
        let (qp, granted) = loop {
            let mut wanted = sys::QpInitAttr {
                send_cq: queue.cq.as_ptr(),
                recv_cq: queue.cq.as_ptr(),
                cap: sys::QpCap {
                    max_send_wr: shape.send_depth,
                    max_recv_wr: shape.receive_depth,
                    max_send_sge: 1,
                    max_recv_sge: 1,
                    max_inline_data: inline,
                },
                qp_type: sys::QPT_RC,
                ..sys::QpInitAttr::zeroed()
            };
            // SAFETY: a domain and queues of this device, a filled structure.
            match NonNull::new(unsafe { (device.library.ibv_create_qp)(device.pd.as_ptr(), &raw mut wanted) }) {
                Some(qp) => break (qp, wanted.cap.max_inline_data),
                // No device says how much it takes inline: less, until it takes it.
                None if inline > 0 => inline /= 2,
                None => return Err(device.failed("ibv_create_qp")),
            }
        };
        let mut made = QueuePair {
            device: device.clone(),
            _completions: queue,
            qp,
            sequence: random & ((1 << SEQUENCE_BITS) - 1),
            inline: granted.min(shape.inline) as usize,
            requests: Vec::new(),
            pieces: Vec::new(),
        };
        let port = device.port();
        let mut attributes = sys::QpAttr {
            qp_state: sys::QPS_INIT,
            pkey_index: 0,
            port_num: port.number,
            qp_access_flags: device.remote_access().unsigned_abs(),
            ..sys::QpAttr::zeroed()
        };
        let mask = sys::QP_STATE | sys::QP_PKEY_INDEX | sys::QP_PORT | sys::QP_ACCESS_FLAGS;
        made.modify(
            &mut attributes,
            mask,
            "ready to take receives (INIT)",
            &[
                ("pkey_index", 0, "0 to the size of the port's table"),
                ("port_num", port.number.into(), "1 to the number of ports"),
                (
                    "qp_access_flags",
                    u64::from(device.remote_access().unsigned_abs()),
                    "remote write, read, atomic operations",
                ),
            ],
        )?;
        Ok(made)
    }

    /// The library's object, for whoever drives the queue past it.
    pub(super) fn raw(&self) -> NonNull<sys::Qp> {
        self.qp
    }

    /// The queue that it reports to.
    pub(super) fn raw_completions(&self) -> NonNull<sys::Cq> {
        self._completions.cq
    }

    /// Bytes that travel within a request.
    pub(super) fn inline_bytes(&self) -> usize {
        self.inline
    }

    /// What the peer must know.
    pub(crate) fn endpoint(&self, mtu: Mtu) -> Endpoint {
        let port = self.device.port();
        // SAFETY: a queue pair that exists.
        let number = unsafe { self.qp.as_ref() }.qp_num;
        Endpoint { gid: port.gid, lid: port.lid, number, sequence: self.sequence, mtu }
    }

    /// Connects it with the peer's. After an error with [`is_transient`] it can be tried again.
    pub(crate) fn connect(&mut self, peer: &Endpoint, with: &Attributes) -> Result<()> {
        let mtu = peer.mtu.min(with.mtu).min(self.device.port().mtu);
        let mut attributes = sys::QpAttr {
            qp_state: sys::QPS_RTR,
            path_mtu: mtu.code().into(),
            dest_qp_num: peer.number,
            rq_psn: peer.sequence,
            max_dest_rd_atomic: 1,
            min_rnr_timer: with.rnr_timer.code(),
            ah_attr: self.device.way_to(peer.gid, peer.lid, with.traffic_class),
            ..sys::QpAttr::zeroed()
        };
        let mask = sys::QP_STATE
            | sys::QP_AV
            | sys::QP_PATH_MTU
            | sys::QP_DEST_QPN
            | sys::QP_RQ_PSN
            | sys::QP_MAX_DEST_RD_ATOMIC
            | sys::QP_MIN_RNR_TIMER;
        let reads = u64::try_from(self.device.limits.max_qp_rd_atom).unwrap_or_default();
        let reads = format!("0 to {reads}");
        self.modify(
            &mut attributes,
            mask,
            "ready to receive (RTR)",
            &[
                ("path_mtu", mtu.bytes().into(), "256 to 4096, at most both ports' MTU"),
                ("dest_qp_num", peer.number.into(), "0 to 16777215"),
                ("rq_psn", peer.sequence.into(), "0 to 16777215"),
                ("max_dest_rd_atomic", 1, &reads),
                ("min_rnr_timer", with.rnr_timer.code().into(), "0 to 31"),
                ("sgid_index", self.device.port().gid_index.into(), "a filled slot of the port's table"),
                ("traffic_class", with.traffic_class.into(), "0 to 255"),
            ],
        )?;
        let mut attributes = sys::QpAttr {
            qp_state: sys::QPS_RTS,
            sq_psn: self.sequence,
            max_rd_atomic: 1,
            timeout: with.ack_timeout.code(),
            retry_cnt: with.retries,
            rnr_retry: with.rnr_retries,
            ..sys::QpAttr::zeroed()
        };
        let mask = sys::QP_STATE
            | sys::QP_SQ_PSN
            | sys::QP_MAX_QP_RD_ATOMIC
            | sys::QP_TIMEOUT
            | sys::QP_RETRY_CNT
            | sys::QP_RNR_RETRY;
        self.modify(
            &mut attributes,
            mask,
            "ready to send (RTS)",
            &[
                ("sq_psn", self.sequence.into(), "0 to 16777215"),
                ("max_rd_atomic", 1, &reads),
                ("timeout", with.ack_timeout.code().into(), "0 to 31"),
                ("retry_cnt", with.retries.into(), "0 to 7"),
                ("rnr_retry", with.rnr_retries.into(), "0 to 7"),
            ],
        )
    }

    fn modify(
        &mut self,
        attributes: &mut sys::QpAttr,
        mask: i32,
        state: &'static str,
        given: &[(&str, u64, &str)],
    ) -> Result<()> {
        // SAFETY: a queue pair that exists, a filled structure. The result is the error's number.
        match unsafe { (self.device.library.ibv_modify_qp)(self.qp.as_ptr(), attributes, mask) } {
            0 => Ok(()),
            number => {
                let source = io::Error::from_raw_os_error(number);
                Err(VerbsError::State { device: self.device.name(), state, given: listed(given), source })
            }
        }
    }

    /// The attributes that the device says it has; the traffic class is not among them.
    pub(crate) fn read_back(&mut self) -> Result<Attributes> {
        let (mut attributes, mut made) = (sys::QpAttr::zeroed(), sys::QpInitAttr::zeroed());
        let mask = sys::QP_TIMEOUT
            | sys::QP_RETRY_CNT
            | sys::QP_RNR_RETRY
            | sys::QP_MIN_RNR_TIMER
            | sys::QP_PATH_MTU
            | sys::QP_AV;
        // SAFETY: a queue pair that exists, structures of the sizes that the library knows.
        let result =
            unsafe { (self.device.library.ibv_query_qp)(self.qp.as_ptr(), &raw mut attributes, mask, &raw mut made) };
        let mtu = Mtu::from_code(attributes.path_mtu);
        let (0, Some(mtu)) = (result, mtu) else {
            let source = io::Error::from_raw_os_error(result);
            return Err(VerbsError::Call { device: self.device.name(), call: "ibv_query_qp", source });
        };
        Ok(Attributes {
            ack_timeout: AckTimeout::from_code(attributes.timeout),
            retries: attributes.retry_cnt,
            rnr_retries: attributes.rnr_retry,
            rnr_timer: RnrTimer::from_code(attributes.min_rnr_timer),
            mtu,
            traffic_class: attributes.ah_attr.grh.traffic_class,
        })
    }

    /// Posts requests, in order, with one doorbell. Their memory must stay until a completion says that they are done.
    pub(crate) fn post(&mut self, works: &[Work]) -> Result<()> {
        self.pieces.clear();
        self.requests.clear();
        for Work { id, what, here: Piece { address, length, key }, there, signalled } in works.iter().copied() {
            self.pieces.push(sys::Sge { addr: address, length, lkey: key });
            let signal = if signalled { sys::SEND_SIGNALED } else { 0 };
            let fits = length > 0 && length as usize <= self.inline && what != What::Read;
            let (opcode, number) = match what {
                What::Write => (sys::WR_RDMA_WRITE, 0),
                What::WriteAndTell(number) => (sys::WR_RDMA_WRITE_WITH_IMM, number),
                What::Read => (sys::WR_RDMA_READ, 0),
            };
            self.requests.push(sys::SendWr {
                wr_id: id,
                num_sge: i32::from(length > 0),
                opcode,
                send_flags: signal | if fits { sys::SEND_INLINE } else { 0 },
                imm_data: number.to_be(),
                remote_addr: there.address,
                rkey: there.key,
                ..sys::SendWr::zeroed()
            });
        }
        let (requests, pieces) = (self.requests.as_mut_ptr(), self.pieces.as_mut_ptr());
        for index in 0..works.len() {
            // SAFETY: below the length of both; neither grows from here on.
            unsafe {
                (*requests.add(index)).sg_list = pieces.add(index);
                if index + 1 < works.len() {
                    (*requests.add(index)).next = requests.add(index + 1);
                }
            }
        }
        if works.is_empty() {
            return Ok(());
        }
        // SAFETY: an open device whose driver has filled its table.
        let Some(post) = unsafe { self.device.context.as_ref() }.post_send else {
            return Err(self.device.failed("ibv_post_send"));
        };
        let mut refused = std::ptr::null_mut();
        // SAFETY: a chain that ends with null, whose pieces are of registered memory, which its owner keeps until the
        // completion: a registration that goes earlier is an error of the request, not an access.
        self.result("ibv_post_send", unsafe { post(self.qp.as_ptr(), requests, &raw mut refused) })
    }

    /// Posts receives without memory: they only report what a peer has written.
    pub(crate) fn post_receives(&mut self, count: usize, id: u64) -> Result<()> {
        let mut requests = vec![sys::RecvWr { wr_id: id, ..sys::RecvWr::zeroed() }; count];
        let start = requests.as_mut_ptr();
        for index in 1..count {
            // SAFETY: below the length.
            unsafe { (*start.add(index - 1)).next = start.add(index) };
        }
        if count == 0 {
            return Ok(());
        }
        // SAFETY: an open device whose driver has filled its table.
        let Some(post) = unsafe { self.device.context.as_ref() }.post_recv else {
            return Err(self.device.failed("ibv_post_recv"));
        };
        let mut refused = std::ptr::null_mut();
        // SAFETY: a chain that ends with null and names no memory; the call copies it.
        self.result("ibv_post_recv", unsafe { post(self.qp.as_ptr(), start, &raw mut refused) })
    }

    fn result(&self, call: &'static str, number: i32) -> Result<()> {
        if number == 0 {
            return Ok(());
        }
        let source = io::Error::from_raw_os_error(number);
        Err(VerbsError::Call { device: self.device.name(), call, source })
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: nothing names it any more; the device stops using the memory of its requests.
        unsafe { (self.device.library.ibv_destroy_qp)(self.qp.as_ptr()) };
    }
}

/// Each attribute with its value and what is allowed.
fn listed(given: &[(&str, u64, &str)]) -> String {
    let mut text = String::new();
    for (name, value, allowed) in given {
        let separator = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{separator}{name} {value} ({allowed})");
    }
    text
}

/// Whether a connection may succeed when it is tried again: the way to the peer was not found in time.
pub(crate) fn is_transient(error: &VerbsError) -> bool {
    matches!(error, VerbsError::State { source, .. } if source.kind() == io::ErrorKind::TimedOut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attribute_of_a_refused_state_is_named_with_its_value_and_range() {
        assert_eq!(
            listed(&[("timeout", 40, "0 to 31"), ("retry_cnt", 7, "0 to 7")]),
            "timeout 40 (0 to 31), retry_cnt 7 (0 to 7)"
        );
    }

    #[test]
    fn only_a_way_that_was_not_found_in_time_is_tried_again() {
        let error = |number| VerbsError::State {
            device: "rxe0:1".into(),
            state: "ready to receive (RTR)",
            given: String::new(),
            source: io::Error::from_raw_os_error(number),
        };
        assert!(is_transient(&error(libc::ETIMEDOUT)));
        assert!(!is_transient(&error(libc::EINVAL)));
    }
}

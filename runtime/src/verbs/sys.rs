//! The definitions of `infiniband/verbs.h` that we use, as rdma-core has kept them since its library version 1.
//!
//! Our own and not the `ibverbs-sys` crate's: that one builds all of rdma-core with cmake and libclang for these few
//! structures, and makes the linker want a library that must not be needed. A test has the C compiler compare every size
//! and offset with the installed header.

use std::ffi::{c_char, c_int, c_void};

/// A device as the library lists it; only ever behind a pointer.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Device {
    _opaque: [u8; 0],
}

/// Declares structures whose layout the test compares with the header.
macro_rules! structures {
    ($($name:ident = $c:literal { $($field:ident: $type:ty = $c_field:literal,)+ })+) => {
        $(
            #[repr(C)]
            #[derive(Clone, Copy, Debug)]
            pub(super) struct $name { $(pub(super) $field: $type,)+ }

            // SAFETY: numbers, pointers and optional function pointers: zero is a value of each.
            #[expect(unsafe_code, reason = "structures of C")]
            unsafe impl Plain for $name {}
        )+

        /// For every structure its name in C and size, and for every field its name in C and offset.
        #[cfg(test)]
        pub(super) const LAYOUT: &[(&str, usize, &[(&str, usize)])] = &[
            $(($c, size_of::<$name>(), &[$(($c_field, std::mem::offset_of!($name, $field)),)+]),)+
        ];
    };
}

structures! {
    Context = "ibv_context" {
        device: *mut Device = "device",
        before: [usize; 11] = "ops",
        poll_cq: Option<unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int> = "ops.poll_cq",
        req_notify_cq: Option<unsafe extern "C" fn(*mut Cq, c_int) -> c_int> = "ops.req_notify_cq",
        between: [usize; 12] = "ops._compat_cq_event",
        post_send: Option<unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int> = "ops.post_send",
        post_recv: Option<unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int> = "ops.post_recv",
        after: [usize; 5] = "ops._compat_create_ah",
        cmd_fd: c_int = "cmd_fd",
        async_fd: c_int = "async_fd",
        num_comp_vectors: c_int = "num_comp_vectors",
        mutex: [u64; 5] = "mutex",
        abi_compat: *mut c_void = "abi_compat",
    }
    DeviceAttr = "ibv_device_attr" {
        fw_ver: [c_char; 64] = "fw_ver",
        node_guid: u64 = "node_guid",
        sys_image_guid: u64 = "sys_image_guid",
        max_mr_size: u64 = "max_mr_size",
        page_size_cap: u64 = "page_size_cap",
        vendor_id: u32 = "vendor_id",
        vendor_part_id: u32 = "vendor_part_id",
        hw_ver: u32 = "hw_ver",
        max_qp: c_int = "max_qp",
        max_qp_wr: c_int = "max_qp_wr",
        device_cap_flags: u32 = "device_cap_flags",
        max_sge: c_int = "max_sge",
        max_sge_rd: c_int = "max_sge_rd",
        max_cq: c_int = "max_cq",
        max_cqe: c_int = "max_cqe",
        max_mr: c_int = "max_mr",
        max_pd: c_int = "max_pd",
        max_qp_rd_atom: c_int = "max_qp_rd_atom",
        max_ee_rd_atom: c_int = "max_ee_rd_atom",
        max_res_rd_atom: c_int = "max_res_rd_atom",
        max_qp_init_rd_atom: c_int = "max_qp_init_rd_atom",
        max_ee_init_rd_atom: c_int = "max_ee_init_rd_atom",
        atomic_cap: c_int = "atomic_cap",
        more: [c_int; 14] = "max_ee",
        max_pkeys: u16 = "max_pkeys",
        local_ca_ack_delay: u8 = "local_ca_ack_delay",
        phys_port_cnt: u8 = "phys_port_cnt",
    }
    PortAttr = "ibv_port_attr" {
        state: c_int = "state",
        max_mtu: c_int = "max_mtu",
        active_mtu: c_int = "active_mtu",
        gid_tbl_len: c_int = "gid_tbl_len",
        port_cap_flags: u32 = "port_cap_flags",
        max_msg_sz: u32 = "max_msg_sz",
        bad_pkey_cntr: u32 = "bad_pkey_cntr",
        qkey_viol_cntr: u32 = "qkey_viol_cntr",
        pkey_tbl_len: u16 = "pkey_tbl_len",
        lid: u16 = "lid",
        sm_lid: u16 = "sm_lid",
        lmc: u8 = "lmc",
        max_vl_num: u8 = "max_vl_num",
        sm_sl: u8 = "sm_sl",
        subnet_timeout: u8 = "subnet_timeout",
        init_type_reply: u8 = "init_type_reply",
        active_width: u8 = "active_width",
        active_speed: u8 = "active_speed",
        phys_state: u8 = "phys_state",
        link_layer: u8 = "link_layer",
        flags: u8 = "flags",
        port_cap_flags2: u16 = "port_cap_flags2",
    }
    GlobalRoute = "ibv_global_route" {
        dgid: Gid = "dgid",
        flow_label: u32 = "flow_label",
        sgid_index: u8 = "sgid_index",
        hop_limit: u8 = "hop_limit",
        traffic_class: u8 = "traffic_class",
    }
    AhAttr = "ibv_ah_attr" {
        grh: GlobalRoute = "grh",
        dlid: u16 = "dlid",
        sl: u8 = "sl",
        src_path_bits: u8 = "src_path_bits",
        static_rate: u8 = "static_rate",
        is_global: u8 = "is_global",
        port_num: u8 = "port_num",
    }
    Pd = "ibv_pd" {
        context: *mut Context = "context",
        handle: u32 = "handle",
    }
    Mr = "ibv_mr" {
        context: *mut Context = "context",
        pd: *mut Pd = "pd",
        addr: *mut c_void = "addr",
        length: usize = "length",
        handle: u32 = "handle",
        lkey: u32 = "lkey",
        rkey: u32 = "rkey",
    }
    CompChannel = "ibv_comp_channel" {
        context: *mut Context = "context",
        fd: c_int = "fd",
        refcnt: c_int = "refcnt",
    }
    QpCap = "ibv_qp_cap" {
        max_send_wr: u32 = "max_send_wr",
        max_recv_wr: u32 = "max_recv_wr",
        max_send_sge: u32 = "max_send_sge",
        max_recv_sge: u32 = "max_recv_sge",
        max_inline_data: u32 = "max_inline_data",
    }
    QpInitAttr = "ibv_qp_init_attr" {
        qp_context: *mut c_void = "qp_context",
        send_cq: *mut Cq = "send_cq",
        recv_cq: *mut Cq = "recv_cq",
        srq: *mut c_void = "srq",
        cap: QpCap = "cap",
        qp_type: c_int = "qp_type",
        sq_sig_all: c_int = "sq_sig_all",
    }
    QpAttr = "ibv_qp_attr" {
        qp_state: c_int = "qp_state",
        cur_qp_state: c_int = "cur_qp_state",
        path_mtu: c_int = "path_mtu",
        path_mig_state: c_int = "path_mig_state",
        qkey: u32 = "qkey",
        rq_psn: u32 = "rq_psn",
        sq_psn: u32 = "sq_psn",
        dest_qp_num: u32 = "dest_qp_num",
        qp_access_flags: u32 = "qp_access_flags",
        cap: QpCap = "cap",
        ah_attr: AhAttr = "ah_attr",
        alt_ah_attr: AhAttr = "alt_ah_attr",
        pkey_index: u16 = "pkey_index",
        alt_pkey_index: u16 = "alt_pkey_index",
        en_sqd_async_notify: u8 = "en_sqd_async_notify",
        sq_draining: u8 = "sq_draining",
        max_rd_atomic: u8 = "max_rd_atomic",
        max_dest_rd_atomic: u8 = "max_dest_rd_atomic",
        min_rnr_timer: u8 = "min_rnr_timer",
        port_num: u8 = "port_num",
        timeout: u8 = "timeout",
        retry_cnt: u8 = "retry_cnt",
        rnr_retry: u8 = "rnr_retry",
        alt_port_num: u8 = "alt_port_num",
        alt_timeout: u8 = "alt_timeout",
        rate_limit: u32 = "rate_limit",
    }
    Wc = "ibv_wc" {
        wr_id: u64 = "wr_id",
        status: c_int = "status",
        opcode: c_int = "opcode",
        vendor_err: u32 = "vendor_err",
        byte_len: u32 = "byte_len",
        imm_data: u32 = "imm_data",
        qp_num: u32 = "qp_num",
        src_qp: u32 = "src_qp",
        wc_flags: u32 = "wc_flags",
        pkey_index: u16 = "pkey_index",
        slid: u16 = "slid",
        sl: u8 = "sl",
        dlid_path_bits: u8 = "dlid_path_bits",
    }
    Sge = "ibv_sge" {
        addr: u64 = "addr",
        length: u32 = "length",
        lkey: u32 = "lkey",
    }
    SendWr = "ibv_send_wr" {
        wr_id: u64 = "wr_id",
        next: *mut SendWr = "next",
        sg_list: *mut Sge = "sg_list",
        num_sge: c_int = "num_sge",
        opcode: c_int = "opcode",
        send_flags: u32 = "send_flags",
        imm_data: u32 = "imm_data",
        remote_addr: u64 = "wr.rdma.remote_addr",
        rkey: u32 = "wr.rdma.rkey",
        unused: [u32; 5] = "wr.rdma.rkey + 4",
        qp_type: u64 = "qp_type",
        bind: [u64; 6] = "bind_mw",
    }
    RecvWr = "ibv_recv_wr" {
        wr_id: u64 = "wr_id",
        next: *mut RecvWr = "next",
        sg_list: *mut Sge = "sg_list",
        num_sge: c_int = "num_sge",
    }
}

/// The address of a port: in RoCE an IPv6 or mapped IPv4 address. Aligned as `union ibv_gid`.
#[repr(C, align(8))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct Gid(pub(super) [u8; 16]);

/// The fields of `ibv_cq` that we read; the rest is the library's.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Cq {
    pub(super) context: *mut Context,
}

/// The fields of `ibv_qp` that we read; the rest is the library's.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Qp {
    pub(super) context: *mut Context,
    unread: [u64; 5],
    handle: u32,
    pub(super) qp_num: u32,
}

#[cfg(test)]
pub(super) const QP_NUM: (usize, usize) = (std::mem::offset_of!(Qp, qp_num), std::mem::offset_of!(Qp, handle));

/// An address handle; only ever behind a pointer.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Ah {
    _opaque: [u8; 0],
}

pub(super) const PORT_ACTIVE: c_int = 4;
pub(super) const LINK_LAYER_ETHERNET: u8 = 2;
/// `IBV_QPF_GRH_REQUIRED`.
pub(super) const PORT_GRH_REQUIRED: u8 = 1;
pub(super) const ACCESS_LOCAL_WRITE: c_int = 1;
pub(super) const ACCESS_REMOTE_WRITE: c_int = 1 << 1;
pub(super) const ACCESS_REMOTE_READ: c_int = 1 << 2;
pub(super) const ACCESS_REMOTE_ATOMIC: c_int = 1 << 3;
/// One of the flags that a device may ignore.
pub(super) const ACCESS_RELAXED_ORDERING: c_int = 1 << 20;
pub(super) const QPT_RC: c_int = 2;
pub(super) const QPS_INIT: c_int = 1;
pub(super) const QPS_RTR: c_int = 2;
pub(super) const QPS_RTS: c_int = 3;
pub(super) const WR_RDMA_WRITE: c_int = 0;
pub(super) const WR_RDMA_WRITE_WITH_IMM: c_int = 1;
pub(super) const WR_RDMA_READ: c_int = 4;
pub(super) const SEND_SIGNALED: u32 = 1 << 1;
pub(super) const SEND_INLINE: u32 = 1 << 3;
pub(super) const WC_SUCCESS: c_int = 0;
pub(super) const WC_WR_FLUSH_ERR: c_int = 5;
pub(super) const WC_RECV_RDMA_WITH_IMM: c_int = 129;

pub(super) const QP_STATE: c_int = 1;
pub(super) const QP_ACCESS_FLAGS: c_int = 1 << 3;
pub(super) const QP_PKEY_INDEX: c_int = 1 << 4;
pub(super) const QP_PORT: c_int = 1 << 5;
pub(super) const QP_AV: c_int = 1 << 7;
pub(super) const QP_PATH_MTU: c_int = 1 << 8;
pub(super) const QP_TIMEOUT: c_int = 1 << 9;
pub(super) const QP_RETRY_CNT: c_int = 1 << 10;
pub(super) const QP_RNR_RETRY: c_int = 1 << 11;
pub(super) const QP_RQ_PSN: c_int = 1 << 12;
pub(super) const QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
pub(super) const QP_MIN_RNR_TIMER: c_int = 1 << 15;
pub(super) const QP_SQ_PSN: c_int = 1 << 16;
pub(super) const QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
pub(super) const QP_DEST_QPN: c_int = 1 << 20;

/// A structure that may be all zero.
///
/// # Safety
/// Zero must be a value of every field.
#[expect(unsafe_code, reason = "structures of C")]
pub(super) unsafe trait Plain: Copy {
    /// All fields zero, as every caller of the library begins.
    fn zeroed() -> Self {
        // SAFETY: what the trait says.
        unsafe { std::mem::zeroed() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;
    use std::process::{Command, Stdio};

    #[test]
    fn every_size_and_offset_is_the_one_of_the_header() {
        let mut text = String::from("#include <stddef.h>\n#include <infiniband/verbs.h>\n");
        for (name, size, fields) in LAYOUT {
            let _ = writeln!(text, "_Static_assert(sizeof(struct {name}) == {size}, \"size of {name}\");");
            for (field, offset) in *fields {
                let (field, more) = field.split_once(" + ").unwrap_or((field, "0"));
                let _ = writeln!(
                    text,
                    "_Static_assert(offsetof(struct {name}, {field}) + {more} == {offset}, \"{name}.{field}\");"
                );
            }
        }
        let (number, handle) = QP_NUM;
        let _ = writeln!(text, "_Static_assert(offsetof(struct ibv_qp, qp_num) == {number}, \"ibv_qp.qp_num\");");
        let _ = writeln!(text, "_Static_assert(offsetof(struct ibv_qp, handle) == {handle}, \"ibv_qp.handle\");");
        let _ = writeln!(text, "_Static_assert(offsetof(struct ibv_cq, context) == 0, \"ibv_cq.context\");");
        let _ = writeln!(text, "_Static_assert(sizeof(union ibv_gid) == 16, \"ibv_gid\");");
        for (name, ours) in [
            ("IBV_PORT_ACTIVE", PORT_ACTIVE),
            ("IBV_LINK_LAYER_ETHERNET", LINK_LAYER_ETHERNET.into()),
            ("IBV_QPF_GRH_REQUIRED", PORT_GRH_REQUIRED.into()),
            ("IBV_QPT_RC", QPT_RC),
            ("IBV_QPS_INIT", QPS_INIT),
            ("IBV_QPS_RTR", QPS_RTR),
            ("IBV_QPS_RTS", QPS_RTS),
            ("IBV_ACCESS_LOCAL_WRITE", ACCESS_LOCAL_WRITE),
            ("IBV_ACCESS_REMOTE_WRITE", ACCESS_REMOTE_WRITE),
            ("IBV_ACCESS_REMOTE_ATOMIC", ACCESS_REMOTE_ATOMIC),
            ("IBV_ACCESS_REMOTE_READ", ACCESS_REMOTE_READ),
            ("IBV_ACCESS_RELAXED_ORDERING", ACCESS_RELAXED_ORDERING),
            ("IBV_WR_RDMA_WRITE", WR_RDMA_WRITE),
            ("IBV_WR_RDMA_WRITE_WITH_IMM", WR_RDMA_WRITE_WITH_IMM),
            ("IBV_WR_RDMA_READ", WR_RDMA_READ),
            ("IBV_WC_SUCCESS", WC_SUCCESS),
            ("IBV_WC_WR_FLUSH_ERR", WC_WR_FLUSH_ERR),
            ("IBV_WC_RECV_RDMA_WITH_IMM", WC_RECV_RDMA_WITH_IMM),
            ("IBV_QP_STATE", QP_STATE),
            ("IBV_QP_ACCESS_FLAGS", QP_ACCESS_FLAGS),
            ("IBV_QP_PKEY_INDEX", QP_PKEY_INDEX),
            ("IBV_QP_PORT", QP_PORT),
            ("IBV_QP_AV", QP_AV),
            ("IBV_QP_PATH_MTU", QP_PATH_MTU),
            ("IBV_QP_TIMEOUT", QP_TIMEOUT),
            ("IBV_QP_RETRY_CNT", QP_RETRY_CNT),
            ("IBV_QP_RNR_RETRY", QP_RNR_RETRY),
            ("IBV_QP_RQ_PSN", QP_RQ_PSN),
            ("IBV_QP_MAX_QP_RD_ATOMIC", QP_MAX_QP_RD_ATOMIC),
            ("IBV_QP_MIN_RNR_TIMER", QP_MIN_RNR_TIMER),
            ("IBV_QP_SQ_PSN", QP_SQ_PSN),
            ("IBV_QP_MAX_DEST_RD_ATOMIC", QP_MAX_DEST_RD_ATOMIC),
            ("IBV_QP_DEST_QPN", QP_DEST_QPN),
        ] {
            let _ = writeln!(text, "_Static_assert((int){name} == {ours}, \"{name}\");");
        }
        for (name, ours) in [("IBV_SEND_SIGNALED", SEND_SIGNALED), ("IBV_SEND_INLINE", SEND_INLINE)] {
            let _ = writeln!(text, "_Static_assert((unsigned){name} == {ours}u, \"{name}\");");
        }
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("layout.c");
        let compile = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Command::new("cc").arg("-fsyntax-only").arg(&file).stdin(Stdio::null()).output()
        };
        let header = compile("#include <infiniband/verbs.h>\n");
        if !header.is_ok_and(|output| output.status.success()) {
            eprintln!("no C compiler or no infiniband/verbs.h (cargo xtask setup): the layout was NOT compared");
            return;
        }
        let output = compile(&text).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

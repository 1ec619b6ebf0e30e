//! What a send queue's entry says, read from its bytes: the formats of `infiniband/mlx5dv.h`, written down here from that
//! header alone. Nothing is shared with the side that writes entries, so that a mistake there is found here.
//!
//! Pure: bytes in, work or a fault out. Every field is looked at, also those that must be zero.

use super::fault::Fault;

/// Bytes of a block of the send queue (`MLX5_SEND_WQE_BB`).
pub const BLOCK: usize = 64;
/// Bytes of a segment: the unit of the count in the control segment.
pub(crate) const SEGMENT: usize = 16;
/// The most segments of an entry: six bits.
pub(crate) const MOST_SEGMENTS: usize = 63;
/// Bytes of a completion (`struct mlx5_cqe64`).
pub(crate) const COMPLETION: usize = 64;

const NOP: u8 = 0x00;
const RDMA_WRITE: u8 = 0x08;
const ATOMIC_FETCH_ADD: u8 = 0x12;
/// `MLX5_WQE_CTRL_CQ_UPDATE`, and `MLX5_WQE_CTRL_SOLICITED`.
const CQ_UPDATE: u8 = 2 << 2;
const SOLICITED: u8 = 1 << 1;
/// `MLX5_WQE_CTRL_FENCE` and `MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE`: bits 5 to 7.
const FENCES: u8 = 7 << 5;
/// `MLX5_INLINE_SEG`.
const INLINE: u32 = 0x8000_0000;

/// Completion operations and error syndromes.
pub(crate) const CQE_REQ: u8 = 0;
pub(crate) const CQE_REQ_ERR: u8 = 13;
pub(crate) const CQE_INVALID: u8 = 15;

/// A place in registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The key under which it is registered.
    pub key: u32,
    /// The address under that key.
    pub address: u64,
}

/// Bytes that an operation sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// To be read from registered memory.
    Gather {
        /// Where.
        from: Place,
        /// How many.
        bytes: u32,
    },
    /// Carried by the entry.
    Inline(Vec<u8>),
}

/// What an entry asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing.
    Nop,
    /// Bytes into the memory of the peer.
    Write {
        /// Where to.
        to: Place,
        /// What.
        payload: Payload,
    },
    /// An addition to a word of the peer; what was there goes to the result.
    FetchAdd {
        /// The word.
        at: Place,
        /// What is added.
        add: u64,
        /// Where the result goes: 8 bytes.
        result: Place,
    },
}

/// An entry that makes sense.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What it asks for.
    pub work: Work,
    /// `MLX5_OPCODE_*`, as completions repeat it.
    pub operation: u8,
    /// Blocks that it takes.
    pub blocks: u64,
    /// Whether it wants a completion.
    pub completes: bool,
}

/// Where an entry must be.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    /// The position of its first block, modulo 2^16.
    pub index: u16,
    /// Its queue pair: 24 bits.
    pub number: u32,
}

fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// How many blocks the entry that begins in this block says that it takes, at least one.
#[must_use]
pub fn blocks(block: &[u8; BLOCK]) -> u64 {
    let segments = u64::from(be32(block, 4) & 0x3f);
    (segments * SEGMENT as u64).div_ceil(BLOCK as u64).max(1)
}

/// Reads an entry from the bytes of its blocks: as many as [`blocks`] says.
///
/// # Errors
/// The first thing that is wrong.
///
/// # Panics
/// When there are fewer bytes than the entry says.
pub fn decode(bytes: &[u8], expected: Expected) -> Result<Entry, Fault> {
    // struct mlx5_wqe_ctrl_seg
    let (first, second) = (be32(bytes, 0), be32(bytes, 4));
    let operation = (first & 0xff) as u8;
    let index = (first >> 8 & 0xffff) as u16;
    let modifier = (first >> 24) as u8;
    let (number, segments) = (second >> 8, (second & 0xff) as usize);
    if index != expected.index {
        return Err(Fault::Index { expected: expected.index, found: index });
    }
    if number != expected.number {
        return Err(Fault::Number { expected: expected.number, found: number });
    }
    if segments > MOST_SEGMENTS {
        return Err(Fault::Segments { operation, needed: MOST_SEGMENTS, found: segments });
    }
    if modifier != 0 {
        return Err(Fault::Modifier(modifier));
    }
    // No signature unless the queue pair was made with one.
    if bytes[8] != 0 {
        return Err(Fault::Reserved("the signature"));
    }
    if bytes[9..11] != [0; 2] {
        return Err(Fault::Reserved("the stream channel"));
    }
    let flags = bytes[11];
    if flags & !(CQ_UPDATE | SOLICITED | FENCES) != 0 || flags & FENCES == FENCES {
        return Err(Fault::Flags(flags));
    }
    if be32(bytes, 12) != 0 {
        return Err(Fault::Reserved("the immediate"));
    }
    let needs = |needed: usize| {
        if segments == needed { Ok(()) } else { Err(Fault::Segments { operation, needed, found: segments }) }
    };
    let work = match operation {
        NOP => needs(1).map(|()| Work::Nop)?,
        RDMA_WRITE => {
            if segments < 3 {
                return Err(Fault::Segments { operation, needed: 3, found: segments });
            }
            let to = remote(bytes)?;
            let length = be32(bytes, 32);
            if length & INLINE != 0 {
                // struct mlx5_wqe_inl_data_seg: the bytes follow it, and fill the segments that the entry has.
                let length = (length & !INLINE) as usize;
                needs(2 + (4 + length).div_ceil(SEGMENT))?;
                Work::Write { to, payload: Payload::Inline(bytes[36..36 + length].to_vec()) }
            } else {
                needs(3)?;
                let (from, bytes) = data(bytes, 32)?;
                Work::Write { to, payload: Payload::Gather { from, bytes } }
            }
        }
        ATOMIC_FETCH_ADD => {
            needs(4)?;
            let at = remote(bytes)?;
            // struct mlx5_wqe_atomic_seg
            let add = be64(bytes, 32);
            if be64(bytes, 40) != 0 {
                return Err(Fault::Reserved("the value to compare with"));
            }
            let (result, length) = data(bytes, 48)?;
            if length != 8 {
                return Err(Fault::Result(length));
            }
            if !at.address.is_multiple_of(8) {
                return Err(Fault::Alignment(at.address));
            }
            Work::FetchAdd { at, add, result }
        }
        _ => return Err(Fault::Operation(operation)),
    };
    let blocks = ((segments * SEGMENT) as u64).div_ceil(BLOCK as u64);
    Ok(Entry { work, operation, blocks, completes: flags & CQ_UPDATE != 0 })
}

/// `struct mlx5_wqe_raddr_seg`, always the second one here.
fn remote(bytes: &[u8]) -> Result<Place, Fault> {
    if be32(bytes, 28) != 0 {
        return Err(Fault::Reserved("the last word of the remote segment"));
    }
    Ok(Place { key: be32(bytes, 24), address: be64(bytes, 16) })
}

/// `struct mlx5_wqe_data_seg`
fn data(bytes: &[u8], at: usize) -> Result<(Place, u32), Fault> {
    match be32(bytes, at) {
        0 => Err(Fault::Length),
        length => Ok((Place { key: be32(bytes, at + 4), address: be64(bytes, at + 8) }, length)),
    }
}

/// A completion of the entry whose first block has this index; `owner` is 1 in every other lap of the completion queue.
/// `struct mlx5_cqe64`, and `struct mlx5_err_cqe` for a fault.
pub(crate) fn completion(
    number: u32,
    operation: u8,
    index: u16,
    bytes: u32,
    owner: u8,
    fault: Option<&Fault>,
) -> [u8; COMPLETION] {
    let mut completion = [0; COMPLETION];
    let opcode = match fault {
        None => {
            completion[44..48].copy_from_slice(&bytes.to_be_bytes());
            CQE_REQ
        }
        Some(fault) => {
            completion[54] = fault.code();
            completion[55] = fault.syndrome() as u8;
            CQE_REQ_ERR
        }
    };
    completion[56..60].copy_from_slice(&(u32::from(operation) << 24 | number).to_be_bytes());
    completion[60..62].copy_from_slice(&index.to_be_bytes());
    completion[63] = opcode << 4 | owner;
    completion
}

#[cfg(test)]
mod tests {
    use super::{super::fault::Syndrome, *};
    use std::process::{Command, Stdio};

    /// What this module takes from the header, as C expressions.
    const FACTS: &[(&str, u64)] = &[
        ("MLX5_SEND_WQE_BB", BLOCK as u64),
        ("MLX5_OPCODE_NOP", NOP as u64),
        ("MLX5_OPCODE_RDMA_WRITE", RDMA_WRITE as u64),
        ("MLX5_OPCODE_ATOMIC_FA", ATOMIC_FETCH_ADD as u64),
        ("MLX5_WQE_CTRL_CQ_UPDATE", CQ_UPDATE as u64),
        ("MLX5_WQE_CTRL_SOLICITED", SOLICITED as u64),
        ("(MLX5_WQE_CTRL_FENCE | MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE) & ~0xe0", 0),
        ("MLX5_INLINE_SEG", INLINE as u64),
        ("sizeof(struct mlx5_wqe_ctrl_seg)", SEGMENT as u64),
        ("offsetof(struct mlx5_wqe_ctrl_seg, opmod_idx_opcode)", 0),
        ("offsetof(struct mlx5_wqe_ctrl_seg, qpn_ds)", 4),
        ("offsetof(struct mlx5_wqe_ctrl_seg, signature)", 8),
        ("offsetof(struct mlx5_wqe_ctrl_seg, dci_stream_channel_id)", 9),
        ("offsetof(struct mlx5_wqe_ctrl_seg, fm_ce_se)", 11),
        ("offsetof(struct mlx5_wqe_ctrl_seg, imm)", 12),
        ("sizeof(struct mlx5_wqe_raddr_seg)", SEGMENT as u64),
        ("offsetof(struct mlx5_wqe_raddr_seg, raddr) + 16", 16),
        ("offsetof(struct mlx5_wqe_raddr_seg, rkey) + 16", 24),
        ("offsetof(struct mlx5_wqe_raddr_seg, reserved) + 16", 28),
        ("sizeof(struct mlx5_wqe_data_seg)", SEGMENT as u64),
        ("offsetof(struct mlx5_wqe_data_seg, byte_count)", 0),
        ("offsetof(struct mlx5_wqe_data_seg, lkey)", 4),
        ("offsetof(struct mlx5_wqe_data_seg, addr)", 8),
        ("sizeof(struct mlx5_wqe_inl_data_seg)", 4),
        ("sizeof(struct mlx5_wqe_atomic_seg)", SEGMENT as u64),
        ("offsetof(struct mlx5_wqe_atomic_seg, swap_add)", 0),
        ("offsetof(struct mlx5_wqe_atomic_seg, compare)", 8),
        ("sizeof(struct mlx5_cqe64)", COMPLETION as u64),
        ("offsetof(struct mlx5_cqe64, byte_cnt)", 44),
        ("offsetof(struct mlx5_cqe64, sop_drop_qpn)", 56),
        ("offsetof(struct mlx5_cqe64, wqe_counter)", 60),
        ("offsetof(struct mlx5_cqe64, op_own)", 63),
        ("sizeof(struct mlx5_err_cqe)", COMPLETION as u64),
        ("offsetof(struct mlx5_err_cqe, vendor_err_synd)", 54),
        ("offsetof(struct mlx5_err_cqe, syndrome)", 55),
        ("offsetof(struct mlx5_err_cqe, s_wqe_opcode_qpn)", 56),
        ("offsetof(struct mlx5_err_cqe, wqe_counter)", 60),
        ("offsetof(struct mlx5_err_cqe, op_own)", 63),
        ("MLX5_CQE_OWNER_MASK", 1),
        ("MLX5_CQE_REQ", CQE_REQ as u64),
        ("MLX5_CQE_REQ_ERR", CQE_REQ_ERR as u64),
        ("MLX5_CQE_INVALID", CQE_INVALID as u64),
        ("MLX5_SND_DBR", super::super::SEND_RECORD as u64),
        ("MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR", Syndrome::LocalLength as u64),
        ("MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR", Syndrome::LocalOperation as u64),
        ("MLX5_CQE_SYNDROME_LOCAL_PROT_ERR", Syndrome::LocalProtection as u64),
        ("MLX5_CQE_SYNDROME_WR_FLUSH_ERR", Syndrome::Flushed as u64),
        ("MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR", Syndrome::RemoteInvalidRequest as u64),
        ("MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR", Syndrome::RemoteAccess as u64),
    ];

    #[test]
    fn the_formats_are_those_of_the_published_header() {
        let include = "#include <stddef.h>\n#include <infiniband/mlx5dv.h>\n";
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("format.c");
        let compile = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Command::new("cc").arg("-fsyntax-only").arg(&file).stdin(Stdio::null()).output()
        };
        if !compile(include).is_ok_and(|output| output.status.success()) {
            eprintln!("no C compiler or no infiniband/mlx5dv.h (cargo xtask setup): the formats were NOT compared");
            return;
        }
        let asserts: String = FACTS
            .iter()
            .map(|(fact, value)| format!("_Static_assert((unsigned long long)({fact}) == {value}ull, \"{fact}\");\n"))
            .collect();
        let output = compile(&format!("{include}{asserts}")).unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    const EXPECTED: Expected = Expected { index: 0x1234, number: 0xabcdef };

    /// A write of 5 bytes that the entry carries.
    fn sample() -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        block[..8].copy_from_slice(&[0, 0x12, 0x34, 0x08, 0xab, 0xcd, 0xef, 3]);
        block[11] = 8;
        block[16..28].copy_from_slice(&[0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0, 0, 7]);
        block[32..41].copy_from_slice(&[0x80, 0, 0, 5, 1, 2, 3, 4, 5]);
        block
    }

    #[test]
    fn an_entry_written_byte_by_byte_from_the_published_format_is_understood() {
        let to = Place { key: 7, address: 0x1000 };
        let payload = Payload::Inline(vec![1, 2, 3, 4, 5]);
        let entry = Entry { work: Work::Write { to, payload }, operation: 8, blocks: 1, completes: true };
        assert_eq!(decode(&sample(), EXPECTED), Ok(entry));
    }

    #[test]
    fn every_wrong_field_is_a_fault_of_its_own() {
        let broken = |change: &[(usize, u8)]| {
            let mut block = sample();
            change.iter().for_each(|(at, value)| block[*at] = *value);
            decode(&block, EXPECTED).expect_err("a fault")
        };
        assert_eq!(broken(&[(3, 0x0a)]), Fault::Operation(0x0a));
        assert_eq!(broken(&[(0, 1)]), Fault::Modifier(1));
        assert_eq!(broken(&[(2, 0x35)]), Fault::Index { expected: 0x1234, found: 0x1235 });
        assert_eq!(broken(&[(4, 0)]), Fault::Number { expected: 0xabcdef, found: 0xcdef });
        for segments in [0, 1, 2, 4, 63, 64, 255] {
            assert!(matches!(broken(&[(7, segments)]), Fault::Segments { .. }), "{segments}");
        }
        assert!(matches!(broken(&[(35, 13)]), Fault::Segments { .. }), "more bytes than there are segments for");
        assert_eq!(broken(&[(8, 1)]), Fault::Reserved("the signature"));
        assert_eq!(broken(&[(9, 1)]), Fault::Reserved("the stream channel"));
        assert_eq!(broken(&[(11, 0x18)]), Fault::Flags(0x18));
        assert_eq!(broken(&[(15, 1)]), Fault::Reserved("the immediate"));
        assert_eq!(broken(&[(31, 1)]), Fault::Reserved("the last word of the remote segment"));
        assert_eq!(broken(&[(32, 0), (35, 0)]), Fault::Length);
        // As an atomic operation the same bytes lack their result.
        assert!(matches!(broken(&[(3, 0x12)]), Fault::Segments { needed: 4, .. }));
        let atomic = [(3, 0x12), (7, 4), (32, 0), (35, 1), (51, 8)];
        let with = |more: (usize, u8)| {
            broken(&[&atomic[..], &[(36, 0), (37, 0), (38, 0), (39, 0), (40, 0)], &[more]].concat())
        };
        assert_eq!(with((47, 1)), Fault::Reserved("the value to compare with"));
        assert_eq!(with((51, 4)), Fault::Result(4));
        assert_eq!(with((23, 4)), Fault::Alignment(0x1004));
    }
}

//! What can be wrong with an entry or a doorbell, and what hardware says for it (`MLX5_CQE_SYNDROME_*`).

/// Why a completion is an error: the values of `MLX5_CQE_SYNDROME_*`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Syndrome {
    /// The local side has another length than the operation.
    LocalLength = 0x01,
    /// The entry makes no sense on this queue pair.
    LocalOperation = 0x02,
    /// The local key or range is not registered.
    LocalProtection = 0x04,
    /// The queue had failed before.
    Flushed = 0x05,
    /// The request makes no sense at the target.
    RemoteInvalidRequest = 0x12,
    /// The remote key or range is not registered, or not for this.
    RemoteAccess = 0x13,
}

/// What is wrong with an entry, or with how it was announced. Each has a number, which completions carry as the vendor's
/// syndrome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// An operation that this NIC does not know.
    #[error("operation {0:#04x} is not known here")]
    Operation(u8),
    /// Bits of the operation that mean nothing.
    #[error("operation modifier {0:#04x}, which must be 0")]
    Modifier(u8),
    /// The entry's index is not where it lies.
    #[error("index {found} in block {expected} of the queue")]
    Index {
        /// The position of its first block, modulo 2^16.
        expected: u16,
        /// What it says.
        found: u16,
    },
    /// An entry of another queue pair.
    #[error("queue pair {found:#x} in the queue of {expected:#x}")]
    Number {
        /// The queue pair whose queue it is.
        expected: u32,
        /// What it says.
        found: u32,
    },
    /// The count of segments does not fit the operation.
    #[error("{found} segments where operation {operation:#04x} needs {needed}")]
    Segments {
        /// The operation.
        operation: u8,
        /// What it needs, at least.
        needed: usize,
        /// What the entry says.
        found: usize,
    },
    /// The entry goes beyond what a doorbell covers.
    #[error("an entry of {blocks} blocks where the doorbell covers {covered}")]
    Uncovered {
        /// Blocks of the entry.
        blocks: u64,
        /// Blocks to where the doorbell goes.
        covered: u64,
    },
    /// A field that must be zero is not.
    #[error("{0} is not zero")]
    Reserved(&'static str),
    /// Flags that mean nothing.
    #[error("flags {0:#04x}")]
    Flags(u8),
    /// Data of length 0, which the hardware takes for 2^31.
    #[error("a data segment of 0 bytes, which is taken for 2^31")]
    Length,
    /// An atomic operation with another local length than 8.
    #[error("an atomic operation with a result of {0} bytes")]
    Result(u32),
    /// An atomic operation on a word that is not aligned.
    #[error("an atomic operation at {0:#x}, which is no multiple of 8")]
    Alignment(u64),
    /// A local key or range that is not registered.
    #[error("local key {key:#x} does not cover {bytes} bytes at {address:#x}")]
    Local {
        /// The key.
        key: u32,
        /// The address.
        address: u64,
        /// The length.
        bytes: u64,
    },
    /// A remote key or range that is not registered for this.
    #[error("remote key {key:#x} does not allow {bytes} bytes at {address:#x}")]
    Remote {
        /// The key.
        key: u32,
        /// The address.
        address: u64,
        /// The length.
        bytes: u64,
    },
    /// The doorbell register names more than the doorbell record.
    #[error("the doorbell register says {register}, the doorbell record {record}: the record must be visible first")]
    Record {
        /// Blocks in the register, modulo 2^16.
        register: u16,
        /// Blocks in the record, modulo 2^16.
        record: u16,
    },
    /// A doorbell for another queue pair.
    #[error("a doorbell for queue pair {found:#x} in the register of {expected:#x}")]
    Doorbell {
        /// The queue pair whose register it is.
        expected: u32,
        /// What it says.
        found: u32,
    },
    /// More blocks are announced than the queue has.
    #[error("{announced} blocks are announced where {free} are free: entries were overwritten before they were done")]
    QueueOverrun {
        /// Blocks that the doorbell adds.
        announced: u64,
        /// Blocks of the queue that the NIC has done with.
        free: u64,
    },
    /// There is no room for a completion. None is written for this.
    #[error("the completion queue is full: completions are lost")]
    CompletionOverrun,
    /// The queue had failed before this entry.
    #[error("the queue had failed before")]
    Flushed,
}

impl Fault {
    /// What hardware says for it.
    #[must_use]
    pub fn syndrome(&self) -> Syndrome {
        match self {
            Fault::Length => Syndrome::LocalLength,
            Fault::Result(_) => Syndrome::LocalLength,
            Fault::Local { .. } => Syndrome::LocalProtection,
            Fault::Remote { .. } => Syndrome::RemoteAccess,
            Fault::Alignment(_) => Syndrome::RemoteInvalidRequest,
            Fault::Flushed => Syndrome::Flushed,
            _ => Syndrome::LocalOperation,
        }
    }

    /// Its number, 1 and above.
    #[must_use]
    pub fn code(&self) -> u8 {
        match self {
            Fault::Operation(_) => 1,
            Fault::Modifier(_) => 2,
            Fault::Index { .. } => 3,
            Fault::Number { .. } => 4,
            Fault::Segments { .. } => 5,
            Fault::Uncovered { .. } => 6,
            Fault::Reserved(_) => 7,
            Fault::Flags(_) => 8,
            Fault::Length => 9,
            Fault::Result(_) => 10,
            Fault::Alignment(_) => 11,
            Fault::Local { .. } => 12,
            Fault::Remote { .. } => 13,
            Fault::Record { .. } => 14,
            Fault::Doorbell { .. } => 15,
            Fault::QueueOverrun { .. } => 16,
            Fault::CompletionOverrun => 17,
            Fault::Flushed => 18,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_numbers_of_their_own() {
        let place = (0, 0, 0);
        let (key, address, bytes) = place;
        let all = [
            Fault::Operation(0),
            Fault::Modifier(0),
            Fault::Index { expected: 0, found: 0 },
            Fault::Number { expected: 0, found: 0 },
            Fault::Segments { operation: 0, needed: 0, found: 0 },
            Fault::Uncovered { blocks: 0, covered: 0 },
            Fault::Reserved(""),
            Fault::Flags(0),
            Fault::Length,
            Fault::Result(0),
            Fault::Alignment(0),
            Fault::Local { key, address, bytes },
            Fault::Remote { key, address, bytes },
            Fault::Record { register: 0, record: 0 },
            Fault::Doorbell { expected: 0, found: 0 },
            Fault::QueueOverrun { announced: 0, free: 0 },
            Fault::CompletionOverrun,
            Fault::Flushed,
        ];
        let mut codes: Vec<u8> = all.iter().map(Fault::code).collect();
        codes.sort_unstable();
        assert_eq!(codes, (1..=18).collect::<Vec<u8>>());
    }
}

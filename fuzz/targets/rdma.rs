//! What ranks tell each other before they talk over RDMA, and records of one-sided operations: whatever the bytes are, they
//! are a message or none, and a record is carried out, refused, or an error.

#![no_main]

use libfuzzer_sys::fuzz_target;
use spmd::fuzzing::{one_sided_record, rdma_agreement};

fuzz_target!(|bytes: &[u8]| {
    rdma_agreement(bytes);
    one_sided_record(bytes);
});

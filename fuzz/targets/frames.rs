//! Frames from a peer: whatever the bytes are, decoding ends in a message or an error, and what was decoded can be
//! encoded again to something that decodes to the same.

#![no_main]

use libfuzzer_sys::fuzz_target;
use spmd::bootstrap::{
    frame::{self, Decoder},
    messages::{Boot, FromAgent, FromRank, ToAgent, ToRank},
    onward::FromBelow,
};

fn check<M: serde_like::Message>(bytes: &[u8]) {
    if let Ok(message) = frame::decode::<M>(bytes) {
        let again = frame::encode(&message).expect("what was decoded can be encoded");
        let twice: M = frame::decode(&again).expect("what was encoded can be decoded");
        assert_eq!(format!("{message:?}"), format!("{twice:?}"));
    }
}

/// The bounds of a message in one name.
mod serde_like {
    pub trait Message: serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug {}
    impl<M: serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug> Message for M {}
}

fuzz_target!(|bytes: &[u8]| {
    check::<FromAgent>(bytes);
    check::<ToAgent>(bytes);
    check::<FromRank>(bytes);
    check::<ToRank>(bytes);
    check::<Boot>(bytes);
    // What is passed on for others is a message of its own.
    if let Ok(ToAgent::Below { message, .. }) = frame::decode(bytes) {
        check::<ToAgent>(&message);
    }
    if let Ok(FromAgent::Below { said: FromBelow::Message(message), .. }) = frame::decode(bytes) {
        check::<FromAgent>(&message);
    }
    // The same bytes as a stream, in two pieces.
    let mut decoder = Decoder::default();
    let (first, second) = bytes.split_at(bytes.len() / 2);
    for piece in [first, second] {
        decoder.push(piece);
        while let Ok(Some(_)) = decoder.next_frame::<FromAgent>() {}
    }
    // Passed on, frame by frame, nothing is lost and nothing is added.
    let mut decoder = Decoder::default();
    decoder.push(bytes);
    let mut passed = Vec::new();
    while let Ok(Some(frame)) = decoder.next_raw() {
        passed.extend(frame);
    }
    assert!(bytes.starts_with(&passed));
});

//! How two ranks prove to each other over TCP that they belong to the same job: a mutual challenge and response with
//! HMAC-SHA-256 (RFC 2104) over the job's key. Pure: bytes in, bytes out.
//!
//! Dialer: hello (who, to whom, nonce). Acceptor: its nonce and proof. Dialer: its proof. Acceptor: verdict. The key
//! never travels, and a proof holds for one pair of nonces, one pair of ranks and one direction only.

use crate::bootstrap::messages::{JobKey, PROTOCOL};
use hmac::{Hmac, Mac};
use sha2::Sha256;

const MAGIC: [u8; 8] = *b"SPMDLINK";
/// Bytes of a nonce.
pub(super) const NONCE: usize = 16;
/// Bytes of the dialer's first message.
pub(super) const HELLO: usize = 8 + 4 + 4 + 4 + NONCE;
/// Bytes of the acceptor's answer.
pub(super) const ANSWER: usize = NONCE + PROOF;
/// Bytes of a proof.
pub(super) const PROOF: usize = 32;
/// The connection is open.
pub(super) const ACCEPTED: u8 = 1;
/// The ranks dialled each other at the same time and the other connection is the one that stays.
pub(super) const DUPLICATE: u8 = 2;

/// What both sides know of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) dialer: u32,
    pub(super) acceptor: u32,
    pub(super) dialer_nonce: [u8; NONCE],
    pub(super) acceptor_nonce: [u8; NONCE],
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    Dialer,
    Acceptor,
}

pub(super) fn hello(dialer: u32, acceptor: u32, nonce: &[u8; NONCE]) -> [u8; HELLO] {
    let mut bytes = [0; HELLO];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&PROTOCOL.to_le_bytes());
    bytes[12..16].copy_from_slice(&dialer.to_le_bytes());
    bytes[16..20].copy_from_slice(&acceptor.to_le_bytes());
    bytes[20..].copy_from_slice(nonce);
    bytes
}

/// The dialer's rank and nonce, if these bytes greet rank `me` in this protocol.
pub(super) fn parse_hello(bytes: &[u8; HELLO], me: u32) -> Option<(u32, [u8; NONCE])> {
    let word = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).ok();
    let nonce = bytes[20..].try_into().ok()?;
    (bytes[..8] == MAGIC && word(8)? == PROTOCOL && word(16)? == me).then_some((word(12)?, nonce))
}

fn mac(key: &JobKey, side: Side, attempt: &Attempt) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(&key.0).expect("HMAC takes keys of any length");
    mac.update(match side {
        Side::Dialer => b"dialer  ",
        Side::Acceptor => b"acceptor",
    });
    mac.update(&PROTOCOL.to_le_bytes());
    mac.update(&attempt.dialer.to_le_bytes());
    mac.update(&attempt.acceptor.to_le_bytes());
    mac.update(&attempt.dialer_nonce);
    mac.update(&attempt.acceptor_nonce);
    mac
}

pub(super) fn prove(key: &JobKey, side: Side, attempt: &Attempt) -> [u8; PROOF] {
    mac(key, side, attempt).finalize().into_bytes().into()
}

/// Whether `proof` is right, in constant time.
pub(super) fn verify(key: &JobKey, side: Side, attempt: &Attempt, proof: &[u8]) -> bool {
    mac(key, side, attempt).verify_slice(proof).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ATTEMPT: Attempt = Attempt { dialer: 3, acceptor: 4, dialer_nonce: [1; NONCE], acceptor_nonce: [2; NONCE] };

    #[test]
    fn a_proof_holds_for_its_key_side_ranks_and_nonces_only() {
        let key = JobKey([7; 32]);
        let proof = prove(&key, Side::Dialer, &ATTEMPT);
        assert!(verify(&key, Side::Dialer, &ATTEMPT, &proof));
        assert!(!verify(&JobKey([8; 32]), Side::Dialer, &ATTEMPT, &proof));
        assert!(!verify(&key, Side::Acceptor, &ATTEMPT, &proof));
        for other in [
            Attempt { dialer: 5, ..ATTEMPT },
            Attempt { acceptor: 5, ..ATTEMPT },
            Attempt { dialer_nonce: [9; NONCE], ..ATTEMPT },
            Attempt { acceptor_nonce: [9; NONCE], ..ATTEMPT },
        ] {
            assert!(!verify(&key, Side::Dialer, &other, &proof), "{other:?}");
        }
        assert!(!verify(&key, Side::Dialer, &ATTEMPT, &proof[..31]));
    }

    #[test]
    fn a_hello_is_understood_by_the_rank_it_is_meant_for_only() {
        let bytes = hello(3, 4, &[5; NONCE]);
        assert_eq!(parse_hello(&bytes, 4), Some((3, [5; NONCE])));
        assert_eq!(parse_hello(&bytes, 5), None);
        for at in 0..20 {
            let mut wrong = bytes;
            wrong[at] ^= 1;
            assert_ne!(parse_hello(&wrong, 4), Some((3, [5; NONCE])), "byte {at}");
        }
    }
}

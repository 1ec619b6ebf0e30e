//! How two ranks prove to each other over TCP that they belong to the same job: a mutual challenge and response with
//! HMAC-SHA-256 (RFC 2104) over the job's key. Pure: bytes in, bytes out.
//!
//! Dialer: hello (who, to whom, for which lane and how far that has come, nonce). Acceptor: its nonce and proof. Dialer:
//! its proof. Acceptor: verdict, and how far the lane has come there. The key never travels, and a proof holds for one
//! pair of nonces, one pair of ranks, one claim and one direction only.

use crate::bootstrap::messages::{JobKey, PROTOCOL};
use hmac::{Hmac, Mac};
use sha2::Sha256;

const MAGIC: [u8; 8] = *b"SPMDLINK";
/// Bytes of a nonce.
pub(super) const NONCE: usize = 16;
/// Bytes of the dialer's first message.
pub(super) const HELLO: usize = 8 + 4 + 4 + 4 + CLAIM + NONCE;
/// Bytes of a claim.
const CLAIM: usize = 4 + PROGRESS;
/// Bytes of a progress.
const PROGRESS: usize = 4 + 8;
/// Bytes of the acceptor's answer.
pub(super) const ANSWER: usize = NONCE + PROOF;
/// Bytes of a proof.
pub(super) const PROOF: usize = 32;
/// Bytes of a verdict.
pub(super) const VERDICT: usize = 1 + PROGRESS;
/// The connection is open.
const ACCEPTED: u8 = 1;
/// The ranks dialled each other at the same time and the other connection is the one that stays.
const DUPLICATE: u8 = 2;

/// How far a lane has come on one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Connections that have carried it so far.
    pub(super) epoch: u32,
    /// Bytes of the lane that have arrived there.
    pub(super) received: u64,
}

/// What a dialer wants: a connection for this lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) lane: u32,
    pub(super) progress: Progress,
}

impl Progress {
    fn to_bytes(self) -> [u8; PROGRESS] {
        let mut bytes = [0; PROGRESS];
        bytes[..4].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[4..].copy_from_slice(&self.received.to_le_bytes());
        bytes
    }

    fn from_bytes(bytes: &[u8; PROGRESS]) -> Self {
        let (mut epoch, mut received) = ([0; 4], [0; 8]);
        epoch.copy_from_slice(&bytes[..4]);
        received.copy_from_slice(&bytes[4..]);
        Progress { epoch: u32::from_le_bytes(epoch), received: u64::from_le_bytes(received) }
    }
}

impl Claim {
    fn to_bytes(self) -> [u8; CLAIM] {
        let mut bytes = [0; CLAIM];
        bytes[..4].copy_from_slice(&self.lane.to_le_bytes());
        bytes[4..].copy_from_slice(&self.progress.to_bytes());
        bytes
    }
}

/// What both sides know of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    pub(super) dialer: u32,
    pub(super) acceptor: u32,
    pub(super) claim: Claim,
    pub(super) dialer_nonce: [u8; NONCE],
    pub(super) acceptor_nonce: [u8; NONCE],
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Side {
    Dialer,
    Acceptor,
}

/// What an acceptor decides about a dialer that has proved itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The connection carries the lane from now on; epoch and bytes are the acceptor's, this connection counted.
    Accepted(Progress),
    /// The other connection of the two stays.
    Duplicate,
}

impl Verdict {
    pub(super) fn to_bytes(self) -> [u8; VERDICT] {
        let (code, progress) = match self {
            Verdict::Accepted(progress) => (ACCEPTED, progress),
            Verdict::Duplicate => (DUPLICATE, Progress::default()),
        };
        let mut bytes = [code; VERDICT];
        bytes[1..].copy_from_slice(&progress.to_bytes());
        bytes
    }

    pub(super) fn from_bytes(bytes: &[u8; VERDICT]) -> Option<Self> {
        let (code, progress) = bytes.split_first()?;
        match *code {
            ACCEPTED => Some(Verdict::Accepted(Progress::from_bytes(progress.try_into().ok()?))),
            DUPLICATE => Some(Verdict::Duplicate),
            _ => None,
        }
    }
}

pub(super) fn hello(dialer: u32, acceptor: u32, claim: Claim, nonce: &[u8; NONCE]) -> [u8; HELLO] {
    let mut bytes = [0; HELLO];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&PROTOCOL.to_le_bytes());
    bytes[12..16].copy_from_slice(&dialer.to_le_bytes());
    bytes[16..20].copy_from_slice(&acceptor.to_le_bytes());
    bytes[20..20 + CLAIM].copy_from_slice(&claim.to_bytes());
    bytes[20 + CLAIM..].copy_from_slice(nonce);
    bytes
}

/// The dialer's rank, claim and nonce, if these bytes greet rank `me` in this protocol.
pub(super) fn parse_hello(bytes: &[u8; HELLO], me: u32) -> Option<(u32, Claim, [u8; NONCE])> {
    let word = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).ok();
    let progress = Progress::from_bytes(bytes[24..24 + PROGRESS].try_into().ok()?);
    let nonce = bytes[20 + CLAIM..].try_into().ok()?;
    let claim = Claim { lane: word(20)?, progress };
    (bytes[..8] == MAGIC && word(8)? == PROTOCOL && word(16)? == me).then_some((word(12)?, claim, nonce))
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
    mac.update(&attempt.claim.to_bytes());
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

    const CLAIMED: Claim = Claim { lane: 2, progress: Progress { epoch: 3, received: 1 << 40 } };
    const ATTEMPT: Attempt =
        Attempt { dialer: 3, acceptor: 4, claim: CLAIMED, dialer_nonce: [1; NONCE], acceptor_nonce: [2; NONCE] };

    #[test]
    fn a_proof_holds_for_its_key_side_ranks_claim_and_nonces_only() {
        let key = JobKey([7; 32]);
        let proof = prove(&key, Side::Dialer, &ATTEMPT);
        assert!(verify(&key, Side::Dialer, &ATTEMPT, &proof));
        assert!(!verify(&JobKey([8; 32]), Side::Dialer, &ATTEMPT, &proof));
        assert!(!verify(&key, Side::Acceptor, &ATTEMPT, &proof));
        let progress = CLAIMED.progress;
        for other in [
            Attempt { dialer: 5, ..ATTEMPT },
            Attempt { acceptor: 5, ..ATTEMPT },
            Attempt { claim: Claim { lane: 1, ..CLAIMED }, ..ATTEMPT },
            Attempt { claim: Claim { progress: Progress { epoch: 4, ..progress }, ..CLAIMED }, ..ATTEMPT },
            Attempt { claim: Claim { progress: Progress { received: 0, ..progress }, ..CLAIMED }, ..ATTEMPT },
            Attempt { dialer_nonce: [9; NONCE], ..ATTEMPT },
            Attempt { acceptor_nonce: [9; NONCE], ..ATTEMPT },
        ] {
            assert!(!verify(&key, Side::Dialer, &other, &proof), "{other:?}");
        }
        assert!(!verify(&key, Side::Dialer, &ATTEMPT, &proof[..31]));
    }

    #[test]
    fn a_hello_is_understood_by_the_rank_it_is_meant_for_only() {
        let bytes = hello(3, 4, CLAIMED, &[5; NONCE]);
        assert_eq!(parse_hello(&bytes, 4), Some((3, CLAIMED, [5; NONCE])));
        assert_eq!(parse_hello(&bytes, 5), None);
        for at in 0..HELLO {
            let mut wrong = bytes;
            wrong[at] ^= 1;
            assert_ne!(parse_hello(&wrong, 4), Some((3, CLAIMED, [5; NONCE])), "byte {at}");
        }
    }

    #[test]
    fn a_verdict_survives_its_bytes() {
        for verdict in [Verdict::Accepted(CLAIMED.progress), Verdict::Duplicate] {
            assert_eq!(Verdict::from_bytes(&verdict.to_bytes()), Some(verdict));
        }
        assert_eq!(Verdict::from_bytes(&[0; VERDICT]), None);
    }
}

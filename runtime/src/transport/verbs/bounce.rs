//! Places that one-sided operations take on their way: the bytes of a put until the device has sent them, those of a get
//! until they are taken. Which is free is pure bookkeeping over numbers of requests.

use crate::{transport::MOST_FETCHED, verbs::Region};

/// Bytes of a place: what one request moves at most.
pub(super) const PLACE: usize = MOST_FETCHED;
/// Places of a connection.
pub(super) const PLACES: usize = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    /// Until this request is done.
    Sending(u64),
    /// Until its bytes are taken.
    Fetching(u64),
}

/// Which places are free.
#[derive(Debug)]
pub(super) struct Places([State; PLACES]);

impl Places {
    pub(super) fn new() -> Self {
        Places([State::Free; PLACES])
    }

    /// A place that is free now. `is_done`: whether a request is.
    pub(super) fn free(&mut self, is_done: impl Fn(u64) -> bool) -> Option<usize> {
        self.0.iter().position(|state| match state {
            State::Free => true,
            State::Sending(request) => is_done(*request),
            State::Fetching(_) => false,
        })
    }

    pub(super) fn send(&mut self, place: usize, request: u64) {
        self.0[place] = State::Sending(request);
    }

    pub(super) fn fetch(&mut self, place: usize, request: u64) {
        self.0[place] = State::Fetching(request);
    }

    /// Where the bytes of a get are, which are taken now.
    pub(super) fn take(&mut self, request: u64) -> Option<usize> {
        let place = self.0.iter().position(|state| *state == State::Fetching(request))?;
        self.0[place] = State::Free;
        Some(place)
    }
}

/// The places and their memory.
#[derive(Debug)]
pub(super) struct Bounce {
    pub(super) memory: Region,
    pub(super) places: Places,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_free_again_when_its_put_is_sent_and_when_its_get_is_taken() {
        let mut places = Places::new();
        for request in 1..=PLACES as u64 {
            let place = places.free(|_| false).unwrap();
            if request == 3 { places.fetch(place, request) } else { places.send(place, request) }
        }
        assert_eq!(places.free(|_| false), None);
        assert_eq!(places.free(|request| request <= 1), Some(0));
        assert_eq!(places.free(|request| request == 3), None, "what was fetched is not taken yet");
        assert_eq!(places.take(3), Some(2));
        assert_eq!(places.take(3), None);
        assert_eq!(places.free(|_| false), Some(2));
    }
}

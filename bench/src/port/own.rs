//! The port of this project's library.

use super::{Failure, Port, Window};
use spmd::{Communicator, HeapBuffer, RecvRequest, SendRequest, SymmetricHeap};
use spmd_collectives::prelude::*;

/// Messages of the measured loops; the library's own traffic has a space of its own.
const TAG: i32 = 0;

/// A communicator, and room for the requests of a window.
#[derive(Debug)]
pub struct Own {
    communicator: Communicator,
    receives: Vec<RecvRequest<u8>>,
    sends: Vec<SendRequest<u8>>,
    exposed: Option<(SymmetricHeap, HeapBuffer<u8>)>,
}

impl Own {
    /// Measures on a communicator.
    #[must_use]
    pub fn new(communicator: Communicator) -> Self {
        Own { communicator, receives: Vec::new(), sends: Vec::new(), exposed: None }
    }
}

impl Port for Own {
    fn rank(&self) -> usize {
        self.communicator.rank()
    }

    fn size(&self) -> usize {
        self.communicator.size()
    }

    #[inline]
    fn send(&mut self, data: &[u8], to: usize) -> Result<(), Failure> {
        Ok(self.communicator.send(data, to, TAG)?)
    }

    #[inline]
    fn receive(&mut self, room: &mut [u8], from: usize) -> Result<(), Failure> {
        self.communicator.recv(room, from, TAG)?;
        Ok(())
    }

    fn windows(&mut self, receives: &mut [Window], sends: &mut [Window]) -> Result<(), Failure> {
        let counts = |windows: &[Window]| windows.iter().map(|window| window.buffers.len()).collect::<Vec<_>>();
        let (receive_counts, send_counts) = (counts(receives), counts(sends));
        for window in &mut *receives {
            for buffer in window.buffers.drain(..) {
                self.receives.push(self.communicator.irecv(buffer, window.peer, TAG)?);
            }
        }
        for window in &mut *sends {
            for buffer in window.buffers.drain(..) {
                self.sends.push(self.communicator.isend(buffer, window.peer, TAG)?);
            }
        }
        let mut under_way = self.sends.drain(..);
        for (window, count) in sends.iter_mut().zip(send_counts) {
            for request in under_way.by_ref().take(count) {
                window.buffers.push(request.wait()?);
            }
        }
        let mut under_way = self.receives.drain(..);
        for (window, count) in receives.iter_mut().zip(receive_counts) {
            for request in under_way.by_ref().take(count) {
                window.buffers.push(request.wait()?.0);
            }
        }
        Ok(())
    }

    #[inline]
    fn barrier(&mut self) -> Result<(), Failure> {
        Ok(self.communicator.barrier()?)
    }

    #[inline]
    fn all_reduce(&mut self, data: &[f32], result: &mut [f32]) -> Result<(), Failure> {
        Ok(self.communicator.all_reduce_into(data, result, Sum)?)
    }

    fn expose(&mut self, bytes: usize) -> Result<(), Failure> {
        self.exposed = None;
        let heap = SymmetricHeap::new(&self.communicator, bytes.max(1))?;
        let buffer = heap.alloc(bytes)?;
        self.exposed = Some((heap, buffer));
        Ok(())
    }

    fn put(&mut self, window: &Window) -> Result<(), Failure> {
        let (heap, room) = self.exposed.as_ref().ok_or("nothing is exposed")?;
        let mut at = 0;
        for buffer in &window.buffers {
            room.slice(at..at + buffer.len()).put(buffer, window.peer)?;
            at += buffer.len();
        }
        Ok(heap.quiet()?)
    }

    fn exposed(&mut self) -> Result<Vec<u8>, Failure> {
        let (_, room) = self.exposed.as_ref().ok_or("nothing is exposed")?;
        Ok(room.to_vec())
    }
}

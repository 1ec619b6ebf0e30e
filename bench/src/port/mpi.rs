//! The port of an MPI, through the C interface that the crate `mpi` gives access to: its safe layer would charge its own
//! bookkeeping to the peer.

#![expect(unsafe_code, reason = "calls of a C library")]

use super::{Failure, Port, Window};
use mpi::ffi;
use mpi::traits::Communicator as _;

const TAG: i32 = 0;

/// `MPI_COMM_WORLD` of an MPI that stays initialized as long as this lives.
pub struct Mpi {
    rank: usize,
    size: usize,
    requests: Vec<ffi::MPI_Request>,
    exposed: Option<Exposed>,
    // Finalizes when it is dropped.
    _universe: mpi::environment::Universe,
}

impl Mpi {
    /// Initializes MPI.
    ///
    /// # Errors
    /// It has been initialized before.
    pub fn start() -> Result<Self, Failure> {
        let universe = mpi::initialize().ok_or("MPI is initialized already")?;
        let world = universe.world();
        let (rank, size) = (usize::try_from(world.rank())?, usize::try_from(world.size())?);
        Ok(Mpi { rank, size, requests: Vec::new(), exposed: None, _universe: universe })
    }

    /// What the library calls itself, as far as its first comma.
    #[must_use]
    pub fn version() -> String {
        let text = mpi::environment::library_version().unwrap_or_default();
        let name = text.split([',', '\n', '\0']).next().unwrap_or_default();
        name.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Memory that MPI has allocated on every rank, with an access to all ranks that is open as long as this lives.
struct Exposed {
    window: ffi::MPI_Win,
    memory: *mut u8,
    bytes: usize,
}

impl Exposed {
    fn new(bytes: usize) -> Result<Self, Failure> {
        let mut memory: *mut u8 = std::ptr::null_mut();
        // SAFETY: a constant of the library.
        let mut window = unsafe { ffi::RSMPI_WIN_NULL };
        // SAFETY: both results are written by the call; the memory is the library's until `MPI_Win_free`.
        let code = unsafe {
            ffi::MPI_Win_allocate(
                bytes.try_into()?,
                1,
                ffi::RSMPI_INFO_NULL,
                ffi::RSMPI_COMM_WORLD,
                (&raw mut memory).cast(),
                &raw mut window,
            )
        };
        check(code, "MPI_Win_allocate")?;
        // SAFETY: the window has just been made; 0 asserts nothing.
        check(unsafe { ffi::MPI_Win_lock_all(0, window) }, "MPI_Win_lock_all")?;
        Ok(Exposed { window, memory, bytes })
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        // SAFETY: the window is open, its access is ended once, and it is freed once, before `MPI_Finalize` (the field stands
        // before the universe). By default MPI ends the job at an error.
        unsafe {
            ffi::MPI_Win_unlock_all(self.window);
            ffi::MPI_Win_free(&raw mut self.window);
        }
    }
}

impl std::fmt::Debug for Mpi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "MPI rank {} of {}", self.rank, self.size)
    }
}

/// By default MPI ends the job with a message at any error; a code is still looked at.
fn check(code: i32, call: &str) -> Result<(), Failure> {
    if code == 0 { Ok(()) } else { Err(format!("{call} failed with code {code}").into()) }
}

impl Port for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    #[inline]
    fn send(&mut self, data: &[u8], to: usize) -> Result<(), Failure> {
        let (count, to) = (i32::try_from(data.len())?, i32::try_from(to)?);
        // SAFETY: the buffer has `count` bytes and lives until this blocking call returns; handles are the library's.
        let code =
            unsafe { ffi::MPI_Send(data.as_ptr().cast(), count, ffi::RSMPI_UINT8_T, to, TAG, ffi::RSMPI_COMM_WORLD) };
        check(code, "MPI_Send")
    }

    #[inline]
    fn receive(&mut self, room: &mut [u8], from: usize) -> Result<(), Failure> {
        let (count, from) = (i32::try_from(room.len())?, i32::try_from(from)?);
        // SAFETY: as for `send`, and the buffer is borrowed for writing.
        let code = unsafe {
            ffi::MPI_Recv(
                room.as_mut_ptr().cast(),
                count,
                ffi::RSMPI_UINT8_T,
                from,
                TAG,
                ffi::RSMPI_COMM_WORLD,
                ffi::RSMPI_STATUS_IGNORE,
            )
        };
        check(code, "MPI_Recv")
    }

    fn windows(&mut self, receives: &mut [Window], sends: &mut [Window]) -> Result<(), Failure> {
        self.requests.clear();
        for window in receives {
            let from = i32::try_from(window.peer)?;
            for buffer in &mut window.buffers {
                let count = i32::try_from(buffer.len())?;
                // SAFETY: `MPI_REQUEST_NULL` is a constant of the library.
                let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
                // SAFETY: the buffer has `count` bytes and is borrowed until `MPI_Waitall` below has completed it; no
                // path between returns but by errors that MPI ends the job for.
                let code = unsafe {
                    ffi::MPI_Irecv(
                        buffer.as_mut_ptr().cast(),
                        count,
                        ffi::RSMPI_UINT8_T,
                        from,
                        TAG,
                        ffi::RSMPI_COMM_WORLD,
                        &raw mut request,
                    )
                };
                check(code, "MPI_Irecv")?;
                self.requests.push(request);
            }
        }
        for window in sends {
            let to = i32::try_from(window.peer)?;
            for buffer in &window.buffers {
                let count = i32::try_from(buffer.len())?;
                // SAFETY: as above.
                let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
                // SAFETY: as above; the buffer is only read.
                let code = unsafe {
                    ffi::MPI_Isend(
                        buffer.as_ptr().cast(),
                        count,
                        ffi::RSMPI_UINT8_T,
                        to,
                        TAG,
                        ffi::RSMPI_COMM_WORLD,
                        &raw mut request,
                    )
                };
                check(code, "MPI_Isend")?;
                self.requests.push(request);
            }
        }
        let count = i32::try_from(self.requests.len())?;
        // SAFETY: `count` requests made above, each completed here once.
        let code = unsafe { ffi::MPI_Waitall(count, self.requests.as_mut_ptr(), ffi::RSMPI_STATUSES_IGNORE) };
        check(code, "MPI_Waitall")
    }

    #[inline]
    fn barrier(&mut self) -> Result<(), Failure> {
        // SAFETY: the communicator is the library's constant.
        check(unsafe { ffi::MPI_Barrier(ffi::RSMPI_COMM_WORLD) }, "MPI_Barrier")
    }

    #[inline]
    fn all_reduce(&mut self, data: &[f32], result: &mut [f32]) -> Result<(), Failure> {
        let count = i32::try_from(data.len().min(result.len()))?;
        // SAFETY: both buffers have `count` elements of that type and are borrowed for the time of the call.
        let code = unsafe {
            ffi::MPI_Allreduce(
                data.as_ptr().cast(),
                result.as_mut_ptr().cast(),
                count,
                ffi::RSMPI_FLOAT,
                ffi::RSMPI_SUM,
                ffi::RSMPI_COMM_WORLD,
            )
        };
        check(code, "MPI_Allreduce")
    }

    fn expose(&mut self, bytes: usize) -> Result<(), Failure> {
        self.exposed = None;
        self.exposed = Some(Exposed::new(bytes)?);
        Ok(())
    }

    fn put(&mut self, window: &Window) -> Result<(), Failure> {
        let exposed = self.exposed.as_ref().ok_or("nothing is exposed")?;
        let to = i32::try_from(window.peer)?;
        let mut at = 0;
        for buffer in &window.buffers {
            let count = i32::try_from(buffer.len())?;
            // SAFETY: the buffer is borrowed until `MPI_Win_flush` below has completed the put; the library checks the place.
            let code = unsafe {
                ffi::MPI_Put(
                    buffer.as_ptr().cast(),
                    count,
                    ffi::RSMPI_UINT8_T,
                    to,
                    at,
                    count,
                    ffi::RSMPI_UINT8_T,
                    exposed.window,
                )
            };
            check(code, "MPI_Put")?;
            at += count as ffi::MPI_Aint;
        }
        // SAFETY: the access to all ranks is open.
        check(unsafe { ffi::MPI_Win_flush(to, exposed.window) }, "MPI_Win_flush")
    }

    fn exposed(&mut self) -> Result<Vec<u8>, Failure> {
        let exposed = self.exposed.as_ref().ok_or("nothing is exposed")?;
        // SAFETY: the access is open.
        check(unsafe { ffi::MPI_Win_sync(exposed.window) }, "MPI_Win_sync")?;
        if exposed.bytes == 0 {
            return Ok(Vec::new());
        }
        // SAFETY: the library's memory of so many bytes; nobody puts between its message that all is there and our answer.
        Ok(unsafe { std::slice::from_raw_parts(exposed.memory, exposed.bytes) }.to_vec())
    }
}

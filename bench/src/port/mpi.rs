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
        Ok(Mpi { rank, size, requests: Vec::new(), _universe: universe })
    }

    /// What the library calls itself, as far as its first comma.
    #[must_use]
    pub fn version() -> String {
        let text = mpi::environment::library_version().unwrap_or_default();
        let name = text.split([',', '\n', '\0']).next().unwrap_or_default();
        name.split_whitespace().collect::<Vec<_>>().join(" ")
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
}

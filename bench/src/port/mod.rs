//! What a message-passing library must offer to be measured: the few calls that all patterns are made of.
//!
//! The measured loops are generic over it, so that every library does the identical thing. Knows no pattern.

#[cfg(feature = "mpi")]
pub mod mpi;
pub mod own;

/// Why a measurement ended.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Messages of one window to or from one rank.
#[derive(Debug)]
pub struct Window {
    /// The other rank.
    pub peer: usize,
    /// One buffer a message. The library may have them while the window is under way; they come back in order.
    pub buffers: Vec<Vec<u8>>,
}

impl Window {
    /// `count` messages of `bytes` zeros.
    #[must_use]
    pub fn new(peer: usize, count: usize, bytes: usize) -> Self {
        Window { peer, buffers: vec![vec![0; bytes]; count] }
    }
}

/// A rank's end of a message-passing library.
///
/// # Errors
/// Every call fails as the library says.
pub trait Port {
    /// This process's rank.
    fn rank(&self) -> usize;

    /// How many ranks there are.
    fn size(&self) -> usize;

    /// A blocking send.
    ///
    /// # Errors
    /// See [`Port`].
    fn send(&mut self, data: &[u8], to: usize) -> Result<(), Failure>;

    /// A blocking receive of a message as long as `room`.
    ///
    /// # Errors
    /// See [`Port`].
    fn receive(&mut self, room: &mut [u8], from: usize) -> Result<(), Failure>;

    /// Begins all receives, then all sends, then waits for all of them.
    ///
    /// # Errors
    /// See [`Port`].
    fn windows(&mut self, receives: &mut [Window], sends: &mut [Window]) -> Result<(), Failure>;

    /// Waits until every rank has entered.
    ///
    /// # Errors
    /// See [`Port`].
    fn barrier(&mut self) -> Result<(), Failure>;

    /// Adds up the values of all ranks, element by element; all get the sums.
    ///
    /// # Errors
    /// See [`Port`].
    fn all_reduce(&mut self, data: &[f32], result: &mut [f32]) -> Result<(), Failure>;

    /// Gives every rank memory of so many bytes that the others may put into, instead of what it had before. Collective.
    ///
    /// # Errors
    /// See [`Port`].
    fn expose(&mut self, bytes: usize) -> Result<(), Failure>;

    /// Puts the buffers one behind the other into the exposed memory of a rank and waits until they are there.
    ///
    /// # Errors
    /// See [`Port`].
    fn put(&mut self, window: &Window) -> Result<(), Failure>;

    /// A copy of this rank's exposed memory, with what others had put before they told.
    ///
    /// # Errors
    /// See [`Port`].
    fn exposed(&mut self) -> Result<Vec<u8>, Failure>;
}

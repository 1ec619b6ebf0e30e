//! Calls whose ranks give different numbers of elements, started and waited for later, or with their counts settled once.

use super::Prepared;
use crate::error::Result;
use crate::varied::{Checked, Settled};
use spmd::comm::CollectiveRequest;
use spmd::element::Element;

impl<T: Element> Checked<'_, Vec<T>> {
    /// Starts it; `finish` makes the result out of what comes and the counts that this rank is told.
    pub(super) fn start<R>(
        self,
        finish: impl FnOnce(Vec<T>, Vec<usize>) -> R + Send + 'static,
    ) -> Result<CollectiveRequest<R>> {
        let (comm, at) = (self.call.comm, self.at::<T>());
        let (shown, machine) = self.machine::<T>()?;
        let started = comm.start(shown, machine, move |machine| match machine {
            Ok(machine) => {
                let (all, counts) = machine.results();
                Ok(finish(all, counts))
            }
            Err(source) => Err(at.failed(source).into()),
        });
        started.map_err(|source| at.failed(source))
    }

    /// Tells the counts, once and for all, and prepares what is done each time; gives the counts that this rank was told, too.
    pub(super) fn prepare(self) -> Result<(Prepared<T>, Vec<usize>)> {
        let (call, at) = (self.call, self.at::<T>());
        let Settled { input, plan, output, told } = self.settle()?;
        Ok((Prepared::of_plan(&call, at, plan, input, output, None), told))
    }
}

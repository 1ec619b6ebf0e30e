//! Calls that own their buffers: what non-blocking and persistent collectives are made of.
//!
//! Knows no algorithm. A blocking call is the same execution on borrowed buffers.

mod nonblocking;
mod persistent;
mod prepare;
mod varied;

pub use nonblocking::NonBlockingCollectives;
pub use persistent::{PersistentCollective, PersistentCollectives};

use crate::call::{Call, Place};
use crate::error::Result;
use crate::execute::Execution;
use crate::operators::Op;
use crate::plan::Plan;
use spmd::Communicator;
use spmd::comm::{self, CollectiveRequest};
use spmd::element::Element;
use std::sync::Arc;

/// Blocks, one for each rank in rank order, one after another, and how many elements each has.
pub type Blocks<T> = (Vec<T>, Vec<usize>);

/// A call with its buffers that is not under way.
struct Prepared<T> {
    call: comm::Call,
    at: Place,
    execution: Owned<T>,
}

type Owned<T> = Execution<Arc<Plan>, Vec<T>, Vec<T>, BoxedOp<T>, T>;

pub(crate) type BoxedOp<T> = Box<dyn Op<T> + Send>;

impl<T: Element> Prepared<T> {
    fn new(call: &Call<'_>, input: Vec<T>, output: Vec<T>, op: Option<BoxedOp<T>>) -> Result<Prepared<T>> {
        let plan = call.plan(&input, &output, op.as_ref().map(|op| op as &dyn Op<T>))?;
        let at = call.at(plan.algorithm, call.elements.saturating_mul(size_of::<T>()));
        Ok(Prepared::of_plan(call, at, plan, input, output, op))
    }

    fn of_plan(
        call: &Call<'_>,
        at: Place,
        plan: Arc<Plan>,
        input: Vec<T>,
        output: Vec<T>,
        op: Option<BoxedOp<T>>,
    ) -> Prepared<T> {
        let shown = call.shown(plan.mark, plan.algorithm, op.as_ref().map_or("", |op| op.name()));
        Prepared { call: shown, at, execution: Execution::new(plan, input, output, op) }
    }

    fn start<R>(
        self,
        comm: &Communicator,
        finish: impl FnOnce(Owned<T>) -> R + Send + 'static,
    ) -> Result<CollectiveRequest<R>> {
        let at = self.at;
        let finish = move |execution: spmd::Result<Owned<T>>| match execution {
            Ok(execution) => Ok(finish(execution)),
            Err(source) => Err(at.failed(source).into()),
        };
        comm.start(self.call, self.execution, finish).map_err(|source| at.failed(source))
    }
}

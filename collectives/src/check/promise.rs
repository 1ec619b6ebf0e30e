//! What each collective starts from and what it promises, element by element.

use super::Task;
use super::fault::Fault;
use super::run::Run;
use super::symbols::Value;
use crate::algorithms::Collective;
use crate::schedule::{Buffer, Schedule};

/// A task, asked for its buffers and their contents.
pub(super) struct Promise<'a> {
    pub(super) task: &'a Task,
}

impl<'a> Promise<'a> {
    pub(super) fn of(task: &'a Task) -> Promise<'a> {
        Promise { task }
    }

    /// Elements of input and output of a rank.
    fn lengths(&self, rank: usize) -> (usize, usize) {
        let Task { collective, size, elements, root, .. } = *self.task;
        let at_root = |length: usize| if rank == root { length } else { 0 };
        let total = size.saturating_mul(elements);
        match collective {
            Collective::Barrier => (0, 0),
            Collective::Broadcast | Collective::AllReduce | Collective::Scan => (0, elements),
            Collective::Reduce => (elements, at_root(elements)),
            Collective::Gather => (elements, at_root(total)),
            Collective::AllGather => (elements, total),
            Collective::Scatter => (at_root(total), elements),
            Collective::AllToAll => (total, total),
            Collective::ReduceScatter => (total, elements),
            Collective::Exscan => (elements, if rank == 0 { 0 } else { elements }),
        }
    }

    pub(super) fn check_buffers(&self, rank: usize, schedule: &Schedule) -> Result<(), Fault> {
        if (schedule.rank(), schedule.size()) != (rank, self.task.size) {
            return Err(Fault::Place { rank, given: schedule.rank(), size: schedule.size() });
        }
        let (input, output) = self.lengths(rank);
        for (buffer, expected) in [(Buffer::Input, input), (Buffer::Output, output)] {
            let found = schedule.lengths().of(buffer);
            if found != expected {
                let collective = self.task.collective;
                return Err(Fault::BufferLength { rank, collective, buffer, expected, found });
            }
        }
        Ok(())
    }

    /// What a buffer holds before the first step.
    pub(super) fn contents(&self, rank: usize, buffer: Buffer, length: usize) -> Vec<Value> {
        let given = match (self.task.collective, buffer) {
            (_, Buffer::Scratch) => false,
            (_, Buffer::Input) | (Collective::AllReduce | Collective::Scan, Buffer::Output) => true,
            (Collective::Broadcast, Buffer::Output) => rank == self.task.root,
            (_, Buffer::Output) => false,
        };
        (0..length).map(|element| if given { Value::of(rank, element) } else { Value::UNDEFINED }).collect()
    }

    pub(super) fn check_outputs(&self, run: &Run<'_>) -> Result<(), Fault> {
        if self.task.collective == Collective::Barrier {
            return run.check_barrier();
        }
        let mut reference: Option<&[Value]> = None;
        for rank in 0..self.task.size {
            let output = run.output(rank);
            for (element, &value) in output.iter().enumerate() {
                self.check_element(run, rank, element, value).map_err(|what| Fault::WrongResult {
                    rank,
                    element,
                    what,
                })?;
            }
            if self.task.collective == Collective::AllReduce {
                let reference = *reference.get_or_insert(output);
                if let Some(element) = output.iter().zip(reference).position(|(value, first)| value != first) {
                    let what = "was combined in another way than on rank 0, so that rounding may differ";
                    return Err(Fault::WrongResult { rank, element, what });
                }
            }
        }
        Ok(())
    }

    fn check_element(&self, run: &Run<'_>, rank: usize, element: usize, value: Value) -> Result<(), &'static str> {
        let Task { collective, size, elements: n, root, rank_order } = *self.task;
        if value.is_undefined() {
            return Err("was never written");
        }
        let expected = match collective {
            Collective::Reduce | Collective::AllReduce | Collective::ReduceScatter => {
                let block = if collective == Collective::ReduceScatter { rank * n } else { 0 };
                return if value.element != block + element {
                    Err("is the result of another element")
                } else if !run.symbols().is_complete(value.tree) {
                    Err("lacks the contribution of some rank")
                } else if rank_order && !run.symbols().is_in_rank_order(value.tree, size) {
                    Err("was not combined in rank order")
                } else {
                    Ok(())
                };
            }
            Collective::Scan | Collective::Exscan => {
                let count = if collective == Collective::Scan { rank + 1 } else { rank };
                return if value.element != element {
                    Err("is the result of another element")
                } else if !run.symbols().is_in_rank_order(value.tree, count) {
                    Err("does not combine the ranks up to there in their order")
                } else {
                    Ok(())
                };
            }
            Collective::Barrier => return Ok(()),
            Collective::Broadcast => Value::of(root, element),
            Collective::Gather | Collective::AllGather => Value::of(element / n, element % n),
            Collective::Scatter => Value::of(root, rank * n + element),
            Collective::AllToAll => Value::of(element / n, rank * n + element % n),
        };
        if value == expected { Ok(()) } else { Err("is not the element that belongs there") }
    }
}

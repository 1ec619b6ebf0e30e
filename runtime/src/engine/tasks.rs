//! Operations of several messages that go on by themselves: whoever makes progress carries them on.
//!
//! Knows nothing of what they are. Their buffers are lent whenever they make progress, whoever's call that is.

use super::{
    Engine,
    operation::{Awaited, Buffers, Lent},
};
use crate::error::Result;
use std::any::Any;

/// Names a task for the engine's lifetime.
pub(crate) type TaskId = u64;

/// Polls without news between two times at which tasks look at the clock.
const LOOK_POLLS: u32 = 256;

/// An operation that goes on by itself.
pub(crate) trait Task: Buffers + Send {
    /// Goes as far as that is possible now; the result once it is over.
    fn go_on(&mut self, engine: &mut Engine) -> Option<Result<()>>;
    fn into_any(self: Box<Self>) -> Box<dyn Any + Send>;
}

struct Running {
    id: TaskId,
    task: Box<dyn Task>,
    done: Option<Result<()>>,
    /// Nobody will ask: forget it when it is done.
    detached: bool,
}

/// The tasks of a rank, in the order in which they were started.
#[derive(Default)]
pub(super) struct Tasks {
    list: Vec<Running>,
    /// Those that nobody will ask for. They may own a communicator, whose end needs the engine: whoever has locked it drops
    /// them afterwards.
    over: Vec<Box<dyn Task>>,
}

impl Tasks {
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Whether there is anything to be dropped once the engine is not locked any more.
    #[inline]
    pub(super) fn are_any_over(&self) -> bool {
        !self.over.is_empty()
    }

    /// What is to be dropped once the engine is not locked any more.
    #[cold]
    pub(super) fn take_over(&mut self) -> Box<[Box<dyn Task>]> {
        std::mem::take(&mut self.over).into_boxed_slice()
    }
}

/// The buffers of the call that makes progress and of all tasks.
struct All<'a> {
    caller: &'a mut dyn Buffers,
    list: &'a mut [Running],
}

impl Buffers for All<'_> {
    fn source(&self, lent: Lent) -> Option<&[u8]> {
        let of_tasks = || self.list.iter().find_map(|running| running.task.source(lent));
        self.caller.source(lent).or_else(of_tasks)
    }

    fn destination(&mut self, lent: Lent) -> Option<&mut [u8]> {
        if self.caller.destination(lent).is_some() {
            return self.caller.destination(lent);
        }
        self.list.iter_mut().find_map(|running| running.task.destination(lent))
    }

    fn awaited(&mut self) -> Option<(&mut Awaited, &mut [u8])> {
        self.caller.awaited()
    }
}

impl Engine {
    pub(crate) fn start_task(&mut self, mut task: Box<dyn Task>) -> TaskId {
        self.next_task += 1;
        let done = task.go_on(self);
        self.core.news += 1;
        self.tasks.list.push(Running { id: self.next_task, task, done, detached: false });
        self.next_task
    }

    /// As a step without tasks, and lets those go on that can.
    pub(super) fn step_with_tasks(&mut self, buffers: &mut dyn Buffers) -> Result<bool> {
        let mut list = std::mem::take(&mut self.tasks.list);
        let stepped = self.carry_on(&mut list, buffers);
        list.append(&mut self.tasks.list);
        self.tasks.list = list;
        stepped
    }

    fn carry_on(&mut self, list: &mut Vec<Running>, buffers: &mut dyn Buffers) -> Result<bool> {
        let mut moved = self.step(&mut All { caller: buffers, list })?;
        if moved || self.polls.is_multiple_of(LOOK_POLLS) {
            for running in list.iter_mut().filter(|running| running.done.is_none()) {
                running.done = running.task.go_on(self);
                moved |= running.done.is_some();
            }
            let over = list.extract_if(.., |running| running.detached && running.done.is_some());
            self.tasks.over.extend(over.map(|running| running.task));
            // What they have begun leaves now.
            moved |= self.flush(&mut All { caller: buffers, list })?;
        }
        Ok(moved)
    }

    pub(crate) fn is_task_done(&self, id: TaskId) -> bool {
        self.tasks.list.iter().find(|running| running.id == id).is_none_or(|running| running.done.is_some())
    }

    /// A task that is done, well or badly.
    pub(crate) fn take_task(&mut self, id: TaskId) -> Option<Result<Box<dyn Task>>> {
        let at = self.tasks.list.iter().position(|running| running.id == id && running.done.is_some())?;
        let Running { task, done, .. } = self.tasks.list.remove(at);
        Some(match done? {
            Ok(()) => Ok(task),
            Err(error) => {
                self.tasks.over.push(task);
                Err(error)
            }
        })
    }

    /// Nobody will ask for this task; it is returned if it is done.
    pub(crate) fn forget_task(&mut self, id: TaskId) -> Option<Box<dyn Task>> {
        let at = self.tasks.list.iter().position(|running| running.id == id)?;
        if self.tasks.list[at].done.is_none() {
            self.tasks.list[at].detached = true;
            return None;
        }
        Some(self.tasks.list.remove(at).task)
    }
}

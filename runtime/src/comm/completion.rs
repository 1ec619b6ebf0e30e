//! Waiting for one, some or all of many requests, sends and receives of any element types mixed. A request that is found
//! complete is not used up: its own `wait` then returns at once with the buffer, or with the error.

use super::Communicator;
use crate::{
    engine::{
        Engine, Runtime,
        operation::{NoBuffers, OperationId},
        tasks::TaskId,
    },
    error::Result,
    memory::Activity,
};

/// A request of any kind: what [`Communicator::wait_any`] and its like take.
pub trait Request: Handled {}

/// How the runtime finds a request. Its name is not public, so that only the runtime implements it.
pub trait Handled {
    #[doc(hidden)]
    fn handle(&self) -> Handle<'_>;
}

/// A request as the engine knows it.
#[doc(hidden)]
#[derive(Debug)]
pub struct Handle<'a> {
    pub(super) runtime: &'a Runtime,
    /// The send, receive or collective that is under way; none: it was complete from the beginning.
    pub(super) send: Option<OperationId>,
    pub(super) receive: Option<OperationId>,
    pub(super) task: Option<TaskId>,
}

impl Handle<'_> {
    fn is_complete(&self, engine: &Engine) -> bool {
        self.send.is_none_or(|id| engine.is_send_done(id))
            && self.receive.is_none_or(|id| engine.is_receive_done(id))
            && self.task.is_none_or(|id| engine.is_task_done(id))
    }
}

impl<R: Handled + ?Sized> Handled for &R {
    fn handle(&self) -> Handle<'_> {
        (**self).handle()
    }
}

impl<R: Request + ?Sized> Request for &R {}

impl<R: Handled + ?Sized> Handled for Box<R> {
    fn handle(&self) -> Handle<'_> {
        (**self).handle()
    }
}

impl<R: Request + ?Sized> Request for Box<R> {}

impl Communicator {
    /// Waits until one of the requests is complete and returns its index; `None` when there are none. Of several that are
    /// complete it is the first.
    ///
    /// ```
    /// use spmd::{Request, prelude::*};
    ///
    /// spmd::local::run(2, |world| {
    ///     let comm = world.communicator();
    ///     let peer = 1 - comm.rank();
    ///     let send = comm.isend(vec![1.5_f64], peer, 0).unwrap();
    ///     let receive = comm.irecv(vec![0.0_f64], peer, 0).unwrap();
    ///     let requests: [&dyn Request; 2] = [&send, &receive];
    ///     assert!(comm.wait_any(&requests).unwrap().is_some());
    ///     comm.wait_all(&requests).unwrap();
    ///     assert_eq!(receive.wait().unwrap().0, [1.5]);
    ///     send.wait().unwrap();
    /// });
    /// ```
    ///
    /// # Errors
    /// When the job is ending. The error of a request is reported by its own `wait`.
    ///
    /// # Panics
    /// When a request belongs to another [`World`](crate::World), which takes ranks that are threads.
    pub fn wait_any<R: Request>(&self, requests: &[R]) -> Result<Option<usize>> {
        if requests.is_empty() {
            return Ok(None);
        }
        let handles = self.handles(requests);
        self.wait_for(|engine| handles.iter().position(|handle| handle.is_complete(engine))).map(Some)
    }

    /// Waits until at least one of the requests is complete and returns the indices of all that are, ascending; none when
    /// there are none.
    ///
    /// # Errors
    /// As for [`Communicator::wait_any`].
    ///
    /// # Panics
    /// As for [`Communicator::wait_any`].
    pub fn wait_some<R: Request>(&self, requests: &[R]) -> Result<Vec<usize>> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let handles = self.handles(requests);
        self.wait_for(|engine| Some(complete(&handles, engine)).filter(|complete| !complete.is_empty()))
    }

    /// Waits until all requests are complete.
    ///
    /// # Errors
    /// As for [`Communicator::wait_any`].
    ///
    /// # Panics
    /// As for [`Communicator::wait_any`].
    pub fn wait_all<R: Request>(&self, requests: &[R]) -> Result<()> {
        let handles = self.handles(requests);
        // Those before it are complete, and stay so.
        let mut next = 0;
        self.wait_for(|engine| {
            while handles.get(next).is_some_and(|handle| handle.is_complete(engine)) {
                next += 1;
            }
            (next == handles.len()).then_some(())
        })
    }

    /// As [`Communicator::wait_any`], without waiting: `None` when none is complete.
    ///
    /// # Errors
    /// As for [`Communicator::wait_any`].
    ///
    /// # Panics
    /// As for [`Communicator::wait_any`].
    pub fn test_any<R: Request>(&self, requests: &[R]) -> Result<Option<usize>> {
        let handles = self.handles(requests);
        self.runtime().poke()?;
        let engine = self.runtime().lock();
        Ok(handles.iter().position(|handle| handle.is_complete(&engine)))
    }

    /// As [`Communicator::wait_some`], without waiting: nothing when none is complete.
    ///
    /// # Errors
    /// As for [`Communicator::wait_any`].
    ///
    /// # Panics
    /// As for [`Communicator::wait_any`].
    pub fn test_some<R: Request>(&self, requests: &[R]) -> Result<Vec<usize>> {
        let handles = self.handles(requests);
        self.runtime().poke()?;
        Ok(complete(&handles, &self.runtime().lock()))
    }

    /// Whether all requests are complete, without waiting.
    ///
    /// # Errors
    /// As for [`Communicator::wait_any`].
    ///
    /// # Panics
    /// As for [`Communicator::wait_any`].
    pub fn test_all<R: Request>(&self, requests: &[R]) -> Result<bool> {
        let handles = self.handles(requests);
        self.runtime().poke()?;
        let engine = self.runtime().lock();
        Ok(handles.iter().all(|handle| handle.is_complete(&engine)))
    }

    fn handles<'a, R: Request>(&self, requests: &'a [R]) -> Vec<Handle<'a>> {
        let handles: Vec<Handle<'a>> = requests.iter().map(Handled::handle).collect();
        assert!(
            handles.iter().all(|handle| std::ptr::eq(handle.runtime, self.runtime())),
            "a request belongs to another world than the communicator that waits for it"
        );
        handles
    }

    fn wait_for<A>(&self, mut answer: impl FnMut(&Engine) -> Option<A>) -> Result<A> {
        let mut engine = self.runtime().lock();
        // Sends that count as complete may have been kept to leave together: waiting ends that.
        if engine.is_unflushed() {
            engine.progress(&mut NoBuffers)?;
        }
        drop(engine);
        self.runtime().wait(Activity::Request, &mut NoBuffers, |engine, _| answer(engine).map(Ok))
    }
}

fn complete(handles: &[Handle<'_>], engine: &Engine) -> Vec<usize> {
    (0..handles.len()).filter(|index| handles[*index].is_complete(engine)).collect()
}

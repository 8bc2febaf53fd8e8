//! Starts the tasks of the program, and stops the program.
//!
//! Stopping has four steps. *Withdrawn*: the readiness check fails, and all requests are still served. *Draining*:
//! new acquires are refused, and leases already granted keep working. *Closing*: connections end after their
//! current request. *Stopping*: when all work is done, background tasks finish what the work has left to them.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, timeout_at};
use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFutureOwned},
    task::TaskTracker,
};

use super::{Worker, Workers};

/// A handle through which every task of the program is started and stopped. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Lifecycle(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    workers: Workers,
    work: TaskTracker,
    background: TaskTracker,
    withdrawn: Step,
    draining: Step,
    closing: Step,
    stopping: Step,
}

/// One step of stopping the program, such as *draining*.
#[derive(Debug, Default)]
struct Step {
    /// Whether the step is reached: every request reads it, and reading the token would take a lock.
    is_reached: AtomicBool,
    /// Wakes the tasks that wait for the step: cancelled when the step is reached.
    reached: CancellationToken,
}

/// An error: this many tasks were still running when the grace period for stopping ended.
#[derive(Debug, thiserror::Error)]
#[error("{0} tasks had not ended when the grace period was over")]
pub struct TasksLeft(pub usize);

// === impl Lifecycle ===

impl Lifecycle {
    /// A new lifecycle, without worker threads.
    pub fn new() -> Self {
        Self::default()
    }

    /// A lifecycle whose requests are answered on these worker threads.
    pub fn on(workers: Workers) -> Self {
        Self(Arc::new(Inner {
            workers,
            ..Inner::default()
        }))
    }

    /// The threads that answer requests.
    pub fn workers(&self) -> &Workers {
        &self.0.workers
    }

    /// Starts a task that counts as work: it ends without being told, soon after [`Lifecycle::closed`] at the
    /// latest.
    pub fn spawn<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.work.spawn(task);
    }

    /// Starts a task like [`Lifecycle::spawn`], on the worker thread if one is given.
    pub fn spawn_on<F>(&self, worker: Option<Worker>, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        match worker {
            Some(worker) => {
                let runtime = self.0.workers.runtime(worker);
                self.0.work.spawn_on(task, runtime);
            }
            None => self.spawn(task),
        }
    }

    /// Starts a background task, which runs until [`Lifecycle::stopped`], when all work has ended.
    pub fn spawn_background<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.background.spawn(task);
    }

    /// Starts a background task that need not end itself: it is dropped at [`Lifecycle::stopped`] or when `ended`
    /// is cancelled.
    pub fn spawn_until<F>(&self, ended: &CancellationToken, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (stopped, ended) = (self.stopped(), ended.clone());
        self.spawn_background(async move {
            tokio::select! {
                () = task => {}
                () = stopped => {}
                () = ended.cancelled() => {}
            }
        });
    }

    /// Begins the step *withdrawn*: readiness fails from now on, and all requests are still served.
    pub fn withdraw(&self) {
        self.0.withdrawn.reach();
    }

    /// Whether readiness fails because the program is about to stop, so that requests should be sent to other
    /// gateways.
    pub fn is_withdrawn(&self) -> bool {
        self.0.withdrawn.is_reached()
    }

    /// Waits until the step *withdrawn* is reached.
    pub fn withdrawn(&self) -> WaitForCancellationFutureOwned {
        self.0.withdrawn.reached()
    }

    /// Begins the step *draining*: [`Lifecycle::is_draining`] is true from now on.
    pub fn drain(&self) {
        self.withdraw();
        self.0.draining.reach();
    }

    /// Whether new acquires are refused, because the program is about to stop.
    pub fn is_draining(&self) -> bool {
        self.0.draining.is_reached()
    }

    /// Waits until the step *draining* is reached.
    pub fn drained(&self) -> WaitForCancellationFutureOwned {
        self.0.draining.reached()
    }

    /// Whether each connection must end after its current request.
    pub fn is_closing(&self) -> bool {
        self.0.closing.is_reached()
    }

    /// Waits until the step *closing* is reached, after which each connection ends with its current request.
    pub fn closed(&self) -> WaitForCancellationFutureOwned {
        self.0.closing.reached()
    }

    /// Waits until the step *stopping* is reached, in which background tasks must finish.
    pub fn stopped(&self) -> WaitForCancellationFutureOwned {
        self.0.stopping.reached()
    }

    /// Waits until no work is running. New work may start afterwards.
    pub async fn quiet(&self) {
        self.0.work.close();
        self.0.work.wait().await;
    }

    /// Ends all work and then all background tasks, within `grace` in total. A quarter of this time is reserved
    /// for the background tasks, so that slow work does not prevent them from releasing undelivered leases. The
    /// background tasks need milliseconds if the store is reachable, and waiting longer is useless if it is not.
    pub async fn stop(&self, grace: Duration) -> Result<(), TasksLeft> {
        let deadline = Instant::now() + grace;
        self.drain();
        self.0.closing.reach();
        let work = timeout_at(deadline - grace / 4, self.quiet()).await;
        self.0.stopping.reach();
        self.0.background.close();
        let background = timeout_at(deadline, self.0.background.wait()).await;
        match (work, background) {
            (Ok(()), Ok(())) => Ok(()),
            _ => Err(TasksLeft(self.0.work.len() + self.0.background.len())),
        }
    }
}

// === impl Step ===

impl Step {
    fn reach(&self) {
        self.is_reached.store(true, Ordering::Release);
        self.reached.cancel();
    }

    fn is_reached(&self) -> bool {
        self.is_reached.load(Ordering::Acquire)
    }

    /// Waits until this step of stopping is reached.
    fn reached(&self) -> WaitForCancellationFutureOwned {
        self.reached.clone().cancelled_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_ends_before_the_background_is_told_to() {
        let lifecycle = Lifecycle::new();
        let (sender, mut received) = tokio::sync::mpsc::channel(2);
        let work = sender.clone();
        let closed = lifecycle.closed();
        lifecycle.spawn(async move {
            closed.await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            work.send("work").await.unwrap();
        });
        let stopped = lifecycle.stopped();
        lifecycle.spawn_background(async move {
            stopped.await;
            sender.send("background").await.unwrap();
        });
        lifecycle.stop(Duration::from_secs(2)).await.unwrap();
        assert_eq!(received.recv().await, Some("work"));
        assert_eq!(received.recv().await, Some("background"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_background_finishes_although_work_took_all_of_the_grace() {
        let lifecycle = Lifecycle::new();
        lifecycle.spawn(std::future::pending());
        let (sender, mut received) = tokio::sync::mpsc::channel(1);
        let stopped = lifecycle.stopped();
        lifecycle.spawn_background(async move {
            stopped.await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            sender.send(()).await.unwrap();
        });
        lifecycle.stop(Duration::from_secs(8)).await.unwrap_err();
        assert!(received.try_recv().is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_does_not_end_is_counted_and_not_waited_for() {
        let lifecycle = Lifecycle::new();
        lifecycle.spawn(std::future::pending());
        let started = Instant::now();
        let error = lifecycle.stop(Duration::from_secs(3)).await.unwrap_err();
        assert_eq!(error.0, 1);
        assert_eq!(started.elapsed(), Duration::from_millis(2_250));
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_outlasts_the_grace() {
        let lifecycle = Lifecycle::new();
        lifecycle.spawn(std::future::pending());
        lifecycle.spawn_background(std::future::pending());
        let started = Instant::now();
        let error = lifecycle.stop(Duration::from_secs(3)).await.unwrap_err();
        assert_eq!(error.0, 2);
        assert_eq!(started.elapsed(), Duration::from_secs(3));
    }
}

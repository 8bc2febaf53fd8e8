//! How tasks are started, and how the program stops.
//!
//! Stopping has four steps. *Withdrawn*: readiness says no, and everything is served as before.
//! *Draining*: no new acquires, everything already held keeps working.
//! *Closing*: connections end after the request they are at. *Stopping*: when all work is done,
//! background tasks finish what the work has left to them.

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

/// A step of stopping.
#[derive(Debug, Default)]
struct Step {
    /// Every request looks at it, and the token would lock.
    is_reached: AtomicBool,
    /// For those who wait for the step.
    reached: CancellationToken,
}

/// Tasks were still running when the grace period ended.
#[derive(Debug, thiserror::Error)]
#[error("{0} tasks had not ended when the grace period was over")]
pub struct TasksLeft(pub usize);

// === impl Lifecycle ===

impl Lifecycle {
    /// A lifecycle of its own, not yet draining.
    pub fn new() -> Self {
        Self::default()
    }

    /// One of a program in which these threads answer requests.
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

    /// Starts a task that ends by itself, soon after [`Lifecycle::closed`] at the latest.
    pub fn spawn<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.work.spawn(task);
    }

    /// The same on a thread that answers requests, if one is named.
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

    /// Starts a task that goes on until [`Lifecycle::stopped`]: by then all work has ended.
    pub fn spawn_background<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.background.spawn(task);
    }

    /// The same for a task that also ends when `ended` is cancelled, and that need not end by itself.
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

    /// Says from now on that no more requests should be sent here, and goes on serving all that come.
    pub fn withdraw(&self) {
        self.0.withdrawn.reach();
    }

    /// Whether requests should be sent elsewhere: the program is about to stop.
    pub fn is_withdrawn(&self) -> bool {
        self.0.withdrawn.is_reached()
    }

    /// Ends when requests should be sent elsewhere.
    pub fn withdrawn(&self) -> WaitForCancellationFutureOwned {
        self.0.withdrawn.reached()
    }

    /// Begins to drain: from now on [`Lifecycle::is_draining`] is true.
    pub fn drain(&self) {
        self.withdraw();
        self.0.draining.reach();
    }

    /// Whether new acquires are refused.
    pub fn is_draining(&self) -> bool {
        self.0.draining.is_reached()
    }

    /// Ends when draining begins.
    pub fn drained(&self) -> WaitForCancellationFutureOwned {
        self.0.draining.reached()
    }

    /// Whether connections must end after the request that they are at.
    pub fn is_closing(&self) -> bool {
        self.0.closing.is_reached()
    }

    /// Ends when connections must end after the request that they are at.
    pub fn closed(&self) -> WaitForCancellationFutureOwned {
        self.0.closing.reached()
    }

    /// Ends when background tasks must finish.
    pub fn stopped(&self) -> WaitForCancellationFutureOwned {
        self.0.stopping.reached()
    }

    /// Ends when no work is left, although more may come.
    pub async fn quiet(&self) {
        self.0.work.close();
        self.0.work.wait().await;
    }

    /// Ends all work and then all background tasks, within `grace` altogether. A quarter of it is kept for
    /// the background tasks: what the work has left to them must not go undone because the work took long.
    /// Giving back undelivered grants takes milliseconds if the store is reachable, and waiting is useless if
    /// it is not.
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

    /// Ends when the step is reached.
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

//! Who may start a task, and how the program stops.
//!
//! Stopping has four steps. *Withdrawn*: readiness says no, and everything is served as before.
//! *Draining*: no new acquires, everything already held keeps working.
//! *Closing*: connections end after the request they are at. *Stopping*: when all work is done,
//! background tasks finish what the work has left to them.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, timeout_at};
use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFutureOwned},
    task::TaskTracker,
};

/// A cloneable handle through which every task of the program is started and stopped.
#[derive(Debug, Clone, Default)]
pub struct Lifecycle(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    work: TaskTracker,
    background: TaskTracker,
    /// The [`Phase`] as a number. Every request looks at it, and a token would take a lock to answer.
    phase: AtomicU8,
    withdrawn: CancellationToken,
    draining: CancellationToken,
    closing: CancellationToken,
    stopping: CancellationToken,
}

/// How far the program has come with stopping.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Phase {
    Withdrawn = 1,
    Draining = 2,
    Closing = 3,
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

    /// Starts a task that ends by itself, soon after [`Lifecycle::closed`] at the latest.
    pub fn spawn<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.work.spawn(task);
    }

    /// Starts a task that goes on until [`Lifecycle::stopped`]: by then all work has ended.
    pub fn spawn_background<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.background.spawn(task);
    }

    /// Says from now on that no more requests should be sent here, and goes on serving all that come.
    pub fn withdraw(&self) {
        self.reach(Phase::Withdrawn);
        self.0.withdrawn.cancel();
    }

    /// Whether requests should be sent elsewhere: the program is about to stop.
    pub fn is_withdrawn(&self) -> bool {
        self.has_reached(Phase::Withdrawn)
    }

    /// Ends when requests should be sent elsewhere.
    pub fn withdrawn(&self) -> WaitForCancellationFutureOwned {
        self.0.withdrawn.clone().cancelled_owned()
    }

    /// Begins to drain: from now on [`Lifecycle::is_draining`] is true.
    pub fn drain(&self) {
        self.withdraw();
        self.reach(Phase::Draining);
        self.0.draining.cancel();
    }

    /// Whether new acquires are refused.
    pub fn is_draining(&self) -> bool {
        self.has_reached(Phase::Draining)
    }

    /// Ends when draining begins.
    pub fn drained(&self) -> WaitForCancellationFutureOwned {
        self.0.draining.clone().cancelled_owned()
    }

    /// Whether connections must end after the request that they are at.
    pub fn is_closing(&self) -> bool {
        self.has_reached(Phase::Closing)
    }

    /// Ends when connections must end after the request that they are at.
    pub fn closed(&self) -> WaitForCancellationFutureOwned {
        self.0.closing.clone().cancelled_owned()
    }

    /// Ends when background tasks must finish.
    pub fn stopped(&self) -> WaitForCancellationFutureOwned {
        self.0.stopping.clone().cancelled_owned()
    }

    /// Ends when no work is left, although more may come.
    pub async fn quiet(&self) {
        self.0.work.close();
        self.0.work.wait().await;
    }

    /// Ends all work and then all background tasks, within `grace` altogether. A quarter of it is
    /// kept for the background tasks: what the work has left to them must not go undone because the
    /// work took long. Giving back what could not be delivered takes milliseconds if the store is
    /// there, and if it is not there is nobody to wait for.
    pub async fn stop(&self, grace: Duration) -> Result<(), TasksLeft> {
        let deadline = Instant::now() + grace;
        self.drain();
        self.reach(Phase::Closing);
        self.0.closing.cancel();
        let work = timeout_at(deadline - grace / 4, self.quiet()).await;
        self.0.stopping.cancel();
        self.0.background.close();
        let background = timeout_at(deadline, self.0.background.wait()).await;
        match (work, background) {
            (Ok(()), Ok(())) => Ok(()),
            _ => Err(TasksLeft(self.0.work.len() + self.0.background.len())),
        }
    }

    /// Before those are woken who wait for the phase.
    fn reach(&self, phase: Phase) {
        self.0.phase.fetch_max(phase as u8, Ordering::Release);
    }

    fn has_reached(&self, phase: Phase) -> bool {
        self.0.phase.load(Ordering::Acquire) >= phase as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn work_ends_before_the_background_is_told_to() {
        let lifecycle = Lifecycle::new();
        let (say, mut said) = tokio::sync::mpsc::channel(2);
        let work = say.clone();
        let closed = lifecycle.closed();
        lifecycle.spawn(async move {
            closed.await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            work.send("work").await.unwrap();
        });
        let stopped = lifecycle.stopped();
        lifecycle.spawn_background(async move {
            stopped.await;
            say.send("background").await.unwrap();
        });
        lifecycle.stop(Duration::from_secs(2)).await.unwrap();
        assert_eq!(said.recv().await, Some("work"));
        assert_eq!(said.recv().await, Some("background"));
    }

    #[tokio::test(start_paused = true)]
    async fn the_background_finishes_although_work_took_all_of_the_grace() {
        let lifecycle = Lifecycle::new();
        lifecycle.spawn(std::future::pending());
        let (say, mut said) = tokio::sync::mpsc::channel(1);
        let stopped = lifecycle.stopped();
        lifecycle.spawn_background(async move {
            stopped.await;
            tokio::time::sleep(Duration::from_secs(1)).await;
            say.send(()).await.unwrap();
        });
        lifecycle.stop(Duration::from_secs(8)).await.unwrap_err();
        assert!(said.try_recv().is_ok());
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

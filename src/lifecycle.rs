//! Who may start a task, and how the program stops.
//!
//! Stopping has two steps. *Draining*: no new acquires, everything already held keeps working.
//! *Stopping*: background tasks end. Whoever stops the program then waits for all tasks.

use std::{future::Future, time::Duration};

use tokio_util::{
    sync::{CancellationToken, WaitForCancellationFutureOwned},
    task::TaskTracker,
};

/// A cloneable handle through which every task of the program is started and stopped.
#[derive(Debug, Clone, Default)]
pub struct Lifecycle {
    tracker: TaskTracker,
    draining: CancellationToken,
    stopping: CancellationToken,
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

    /// Starts a task that shutdown waits for.
    pub fn spawn<F>(&self, task: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tracker.spawn(task);
    }

    /// Begins to drain: from now on [`Lifecycle::is_draining`] is true.
    pub fn drain(&self) {
        self.draining.cancel();
    }

    /// Whether new acquires are refused.
    pub fn is_draining(&self) -> bool {
        self.draining.is_cancelled()
    }

    /// Ends when draining begins.
    pub fn drained(&self) -> WaitForCancellationFutureOwned {
        self.draining.clone().cancelled_owned()
    }

    /// Ends when background tasks must end.
    pub fn stopped(&self) -> WaitForCancellationFutureOwned {
        self.stopping.clone().cancelled_owned()
    }

    /// Tells background tasks to end and waits for all tasks, at most for `grace`.
    pub async fn stop(&self, grace: Duration) -> Result<(), TasksLeft> {
        self.draining.cancel();
        self.stopping.cancel();
        self.tracker.close();
        tokio::time::timeout(grace, self.tracker.wait())
            .await
            .map_err(|_elapsed| TasksLeft(self.tracker.len()))
    }
}

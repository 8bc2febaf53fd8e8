//! What goes on after its caller has gone.

use std::sync::Arc;

use tokio::{runtime::Handle, sync::watch};

/// Counts what goes on. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Background(Arc<watch::Sender<usize>>);

/// One piece of work that goes on, or was dropped with its runtime.
struct Running(Background);

// === impl Background ===

impl Background {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    /// Goes on with it on this runtime, for as long as that is there.
    pub(crate) fn spawn(&self, runtime: &Handle, work: impl Future<Output = ()> + Send + 'static) {
        self.0.send_modify(|count| *count += 1);
        let running = Running(self.clone());
        // Whoever waits for the end of the program waits for it by `done`.
        drop(runtime.spawn(async move {
            let _running = running;
            work.await;
        }));
    }

    /// Ends when nothing goes on.
    pub(crate) async fn done(&self) {
        let mut count = self.0.subscribe();
        // The other end is here.
        let _: Result<_, _> = count.wait_for(|count| *count == 0).await;
    }
}

// === impl Running ===

impl Drop for Running {
    fn drop(&mut self) {
        self.0.0.send_modify(|count| *count -= 1);
    }
}

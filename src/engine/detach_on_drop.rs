//! A command that runs to its end although its caller drops it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    task::{Context, Poll, ready},
    thread,
};

use tokio::{
    runtime::Handle,
    sync::oneshot::{self, error::TryRecvError},
    time::Instant,
};

use crate::{
    lifecycle::Lifecycle,
    store::{StoreError, Uncertainty},
};

tokio::task_local! {
    /// When the caller of the command hung up. A task-local value, because a request whose caller hangs up is moved to
    /// another task half-way, and the command is deep within it.
    static HUNG_UP_AT: Instant;
}

/// Runs the rest of a command whose caller has just hung up.
pub fn without_caller<F: Future>(command: F) -> impl Future<Output = F::Output> + use<F> {
    HUNG_UP_AT.scope(Instant::now(), command)
}

/// When the caller of the command that runs now hung up; `None` while the caller waits, as far as is known.
pub(super) fn hung_up_at() -> Option<Instant> {
    HUNG_UP_AT.try_with(|at| *at).ok()
}

/// A command that its caller polls. If the caller drops the command, it continues in a separate task and its outcome
/// is discarded.
///
/// Running every command in a task from the beginning would do the same, but would cost each of them two task
/// switches for the few callers that hang up.
pub(super) struct DetachOnDrop<O: 'static> {
    /// The command; `None` once the command has ended.
    command: Option<Pin<Box<dyn Future<Output = O> + Send>>>,
    begun: bool,
    lifecycle: Lifecycle,
    /// Dropping this sender tells a command that waits that its caller has gone.
    caller: Option<oneshot::Sender<()>>,
}

/// A future that ends when the caller of a command has gone.
pub(super) struct CallerGone(oneshot::Receiver<()>);

// === impl DetachOnDrop ===

impl<O: 'static> DetachOnDrop<O> {
    /// Wraps a command that need not know whether its caller has gone.
    pub(super) fn new(
        lifecycle: &Lifecycle,
        command: impl Future<Output = O> + Send + 'static,
    ) -> Self {
        Self {
            command: Some(Box::pin(command)),
            begun: false,
            lifecycle: lifecycle.clone(),
            caller: None,
        }
    }

    /// Wraps a command that waits, and that is told when its caller has gone.
    pub(super) fn waiting<F>(lifecycle: &Lifecycle, command: impl FnOnce(CallerGone) -> F) -> Self
    where
        F: Future<Output = O> + Send + 'static,
    {
        let (caller, gone) = oneshot::channel();
        let mut waiting = Self::new(lifecycle, command(CallerGone(gone)));
        waiting.caller = Some(caller);
        waiting
    }
}

impl<T: 'static, E: From<StoreError> + 'static> Future for DetachOnDrop<Result<T, E>> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<T, E>> {
        self.begun = true;
        let command = self.command.as_mut();
        let command = command.expect("not polled after completion");
        let polled = catch_unwind(AssertUnwindSafe(|| command.as_mut().poll(cx)));
        // The command may have panicked at any point, so its outcome is unknown.
        let lost = |_panic| Poll::Ready(Err(StoreError::from(Uncertainty::Interrupted).into()));
        let outcome = ready!(polled.unwrap_or_else(lost));
        self.command = None;
        Poll::Ready(outcome)
    }
}

impl<O: 'static> Drop for DetachOnDrop<O> {
    fn drop(&mut self) {
        drop(self.caller.take());
        // A command that never began need not continue. A command whose caller panics continues only within a
        // runtime: without a runtime, starting a task would be a second panic, which ends the process.
        if let Some(command) = self.command.take()
            && self.begun
            && (!thread::panicking() || Handle::try_current().is_ok())
        {
            let command = without_caller(command);
            self.lifecycle.spawn(async move {
                // The caller has gone, so the outcome is dropped. If the outcome is a grant, this releases the
                // lease.
                drop(command.await);
            });
        }
    }
}

// === impl CallerGone ===

impl CallerGone {
    /// Whether the caller has gone. May be called after this future has ended, too.
    pub(super) fn has_gone(&mut self) -> bool {
        matches!(self.0.try_recv(), Err(TryRecvError::Closed))
    }
}

impl Future for CallerGone {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(cx).map(drop)
    }
}

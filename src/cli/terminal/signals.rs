//! The signals that a command handles, instead of being ended by them.

use std::{
    fs,
    future::poll_fn,
    io,
    pin::pin,
    task::{Context, Poll},
    time::Duration,
};

use rustix::process::Signal;
use tokio::{
    signal::unix::{self, SignalKind, signal},
    time::timeout,
};

/// Signals that end a command which does not handle them.
pub(crate) const ENDING: [Signal; 4] = [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT];

/// The signals that end a command's wait for a lock: those that end a command, and those that would end it if it had no
/// handler for them. During the wait there is no child to which they could be passed on.
pub(crate) const GIVING_UP: [Signal; 6] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
];

/// How long signals cannot interrupt the cleanup at the end of a command. A supervisor may send several signals at
/// once, or one to each process, which does not mean that the user no longer wants to wait.
pub(crate) const CLEANUP_GRACE: Duration = Duration::from_secs(1);

/// A set of signals, received from the creation of this value.
pub(crate) struct Signals(Vec<(Signal, unix::Signal)>);

// === impl Signals ===

impl Signals {
    /// Starts to receive signals, except signals that the program that started this process wants ignored: HUP
    /// under `nohup`, Ctrl-C for a background job of a shell.
    pub(crate) fn listen(signals: impl IntoIterator<Item = Signal>) -> io::Result<Self> {
        let ignored = ignored();
        let wanted = signals.into_iter().filter(|&signal| {
            // CHILD is received even if it is ignored, because a command must see the end of its child.
            signal == Signal::CHILD || ignored & (1 << (signal.as_raw() - 1)) == 0
        });
        let stream = |kind: Signal| Ok((kind, signal(SignalKind::from_raw(kind.as_raw()))?));
        Ok(Self(wanted.map(stream).collect::<io::Result<_>>()?))
    }

    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        poll_fn(|context| self.poll_next(context)).await
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Signal> {
        for (kind, stream) in &mut self.0 {
            if stream.poll_recv(context).is_ready() {
                return Poll::Ready(*kind);
            }
        }
        Poll::Pending
    }

    /// Waits for the next signal that ends a command. Other signals are dropped.
    pub(crate) async fn ending(&mut self) -> Signal {
        self.one_of(&ENDING).await
    }

    /// Waits for the next signal of this list. Other signals are dropped.
    pub(crate) async fn one_of(&mut self, signals: &[Signal]) -> Signal {
        loop {
            let signal = self.next().await;
            if signals.contains(&signal) {
                return signal;
            }
        }
    }

    /// Runs the cleanup at the end of a command. Returns `None` if a signal after the first moment interrupts the
    /// cleanup.
    pub(crate) async fn until_second_signal<T>(
        &mut self,
        cleanup: impl Future<Output = T>,
    ) -> Option<T> {
        let mut cleanup = pin!(cleanup);
        if let Ok(done) = timeout(CLEANUP_GRACE, &mut cleanup).await {
            return Some(done);
        }
        poll_fn(|context| {
            while self.poll_next(context).is_ready() {}
            Poll::Ready(())
        })
        .await;
        tokio::select! {
            biased;
            done = cleanup => Some(done),
            _ = self.ending() => None,
        }
    }
}

/// The signals that this process was started to ignore, as a bit mask; 0 on systems that do not show it.
fn ignored() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .unwrap_or_default();
    u64::from_str_radix(mask.trim(), 16).unwrap_or_default()
}

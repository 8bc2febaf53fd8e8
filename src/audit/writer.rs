//! The thread that writes the audit log.

use std::{
    io,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use tokio::sync::oneshot;
use tracing::{error, info};

use crate::clock::Clock;

use super::{bounds::Bounds, entry::Entry, output::Output};

/// What is sent to the thread.
pub(super) enum Message {
    /// A line to write.
    Line(Vec<u8>),
    /// A line of what is bounded. Only so many of them wait.
    Bounded(Vec<u8>),
    /// A line to write, and to tell when it is kept.
    Kept(Vec<u8>, oneshot::Sender<()>),
    /// The file may have been moved away.
    Reopen,
    /// Tell when everything before this was written, or could not be.
    Flush(oneshot::Sender<()>),
}

/// What is known of the lines that could not be written.
#[derive(Debug, Default)]
pub(super) struct Missing {
    /// Those of which the log does not tell yet.
    untold: AtomicU64,
    /// All of them.
    total: AtomicU64,
    /// Why the last one is missing.
    why: Mutex<Option<String>>,
}

/// All that the thread owns.
pub(super) struct Writer {
    pub(super) messages: Receiver<Message>,
    pub(super) output: Output,
    pub(super) missing: Arc<Missing>,
    pub(super) bounds: Arc<Bounds>,
    pub(super) clock: Arc<dyn Clock>,
}

/// How often a log that cannot be written is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How many messages are written together.
const BATCH: usize = 256;

// === impl Writer ===

impl Writer {
    /// Writes until every handle is gone.
    pub(super) fn run(mut self) {
        loop {
            match self.messages.recv_timeout(RETRY) {
                Ok(first) => {
                    let more = self.messages.try_iter().take(BATCH - 1);
                    let batch: Vec<_> = std::iter::once(first).chain(more).collect();
                    self.serve(batch);
                }
                Err(RecvTimeoutError::Timeout) => self.tell_missing(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn serve(&mut self, batch: Vec<Message>) {
        let (mut lines, mut count) = (Vec::new(), 0);
        for message in batch {
            match message {
                Message::Line(line) => {
                    lines.extend(line);
                    count += 1;
                }
                Message::Bounded(line) => {
                    self.bounds.taken();
                    lines.extend(line);
                    count += 1;
                }
                Message::Kept(line, kept) => {
                    lines.extend(line);
                    self.write(&std::mem::take(&mut lines), count + 1, Output::sync);
                    count = 0;
                    // Told in either case: the answer must not wait for a disk that is full.
                    kept.send(()).ok();
                }
                Message::Reopen => {
                    self.write(&std::mem::take(&mut lines), count, |_| Ok(()));
                    count = 0;
                    self.reopen();
                }
                Message::Flush(done) => {
                    self.write(&std::mem::take(&mut lines), count, |_| Ok(()));
                    count = 0;
                    done.send(()).ok();
                }
            }
        }
        self.write(&lines, count, |_| Ok(()));
    }

    /// Writes lines behind the note of those that are missing before them.
    fn write(&mut self, lines: &[u8], count: u64, then: impl Fn(&Output) -> io::Result<()>) {
        if count == 0 {
            return;
        }
        self.tell_missing();
        let written = self.output.write(lines).and_then(|()| then(&self.output));
        if let Err(error) = written {
            self.missing.add(count, &error.to_string());
        }
    }

    /// Notes in the log that something is missing from it, if that is so and it can be written again.
    fn tell_missing(&mut self) {
        let untold = self.missing.untold.load(Ordering::Relaxed);
        if untold == 0 {
            return;
        }
        let entry = Entry {
            count: Some(untold),
            ..Entry::new("lines-missing", self.clock.wall())
        };
        if self.output.write(&entry.line()).is_ok() {
            self.missing.told(untold);
            info!(missing = untold, "the audit log can be written again");
        }
    }

    fn reopen(&mut self) {
        match self.output.reopen() {
            Ok(()) => info!("the audit log was opened again"),
            Err(error) => {
                error!(%error, "cannot open the audit log again; it goes on in the file it had");
            }
        }
    }
}

// === impl Missing ===

impl Missing {
    /// Counts lines that could not be written. The first of them is logged.
    pub(super) fn add(&self, count: u64, why: &str) {
        self.total.fetch_add(count, Ordering::Relaxed);
        if self.untold.fetch_add(count, Ordering::Relaxed) == 0 {
            error!(
                why,
                "the audit log cannot be written; lines are missing from it"
            );
        }
        *self.why.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_owned());
    }

    fn told(&self, count: u64) {
        self.untold.fetch_sub(count, Ordering::Relaxed);
    }

    pub(super) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// What an operator should know, while it is so.
    pub(super) fn trouble(&self) -> Option<String> {
        let untold = self.untold.load(Ordering::Relaxed);
        if untold == 0 {
            return None;
        }
        let why = self.why.lock().unwrap_or_else(PoisonError::into_inner);
        let why = why.as_deref().unwrap_or("it is not known why");
        Some(format!("{untold} lines could not be written: {why}"))
    }
}

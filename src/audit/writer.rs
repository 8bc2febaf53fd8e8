//! The thread that writes the audit log.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, RecvTimeoutError},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tracing::{error, info};

use crate::clock::Clock;

use super::{bounds::Bounds, entry::AuditEntry, event::Output};

/// What is sent to the thread.
pub(super) enum WriterMessage {
    /// A line to write.
    Line(Vec<u8>),
    /// A line of what is bounded. Only so many of them wait.
    Bounded(Vec<u8>),
    /// Lines to write, and to tell when they are kept.
    Kept {
        /// All of them, one after the other.
        lines: Vec<u8>,
        /// How many they are.
        count: u64,
        /// Whom to tell.
        kept: oneshot::Sender<()>,
    },
    /// The file may have been moved away.
    Reopen,
    /// Tell when everything before this was written, or could not be.
    Flush(oneshot::Sender<()>),
}

/// What is known of the lines that could not be written.
#[derive(Debug, Default)]
pub(super) struct MissingLines {
    /// Those of which the log does not tell yet.
    unreported: AtomicU64,
    /// All of them.
    total: AtomicU64,
    /// Why the last one is missing.
    why: Mutex<Option<String>>,
}

/// All that the thread owns.
pub(super) struct Writer {
    pub(super) messages: Receiver<WriterMessage>,
    pub(super) output: Output,
    pub(super) missing: Arc<MissingLines>,
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
                Err(RecvTimeoutError::Timeout) => self.report_missing(),
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn serve(&mut self, batch: Vec<WriterMessage>) {
        let (mut lines, mut count) = (Vec::new(), 0);
        for message in batch {
            match message {
                WriterMessage::Line(line) => {
                    lines.extend(line);
                    count += 1;
                }
                WriterMessage::Bounded(line) => {
                    self.bounds.taken();
                    lines.extend(line);
                    count += 1;
                }
                WriterMessage::Kept {
                    lines: more,
                    count: how_many,
                    kept,
                } => {
                    lines.extend(more);
                    self.write(&std::mem::take(&mut lines), count + how_many, Output::sync);
                    count = 0;
                    // Told in either case: the answer must not wait for a disk that is full.
                    kept.send(()).ok();
                }
                WriterMessage::Reopen => {
                    self.write(&std::mem::take(&mut lines), count, |_| Ok(()));
                    count = 0;
                    self.reopen();
                }
                WriterMessage::Flush(done) => {
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
        self.report_missing();
        let written = self.output.write(lines).and_then(|()| then(&self.output));
        if let Err(error) = written {
            self.missing.add(count, &error.to_string());
        }
    }

    /// Notes in the log that something is missing from it, if that is so and it can be written again.
    fn report_missing(&mut self) {
        let unreported = self.missing.unreported.load(Ordering::Relaxed);
        if unreported == 0 {
            return;
        }
        let mut entry = AuditEntry::new("lines-missing", self.clock.wall());
        entry.set("count", unreported);
        if self.output.write(&entry.line()).is_ok() {
            self.missing.reported(unreported);
            info!(missing = unreported, "the audit log can be written again");
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

// === impl MissingLines ===

impl MissingLines {
    /// Counts lines that could not be written. The first of them is logged.
    pub(super) fn add(&self, count: u64, why: &str) {
        self.total.fetch_add(count, Ordering::Relaxed);
        if self.unreported.fetch_add(count, Ordering::Relaxed) == 0 {
            error!(
                why,
                "the audit log cannot be written; lines are missing from it"
            );
        }
        *self.why.lock() = Some(why.to_owned());
    }

    fn reported(&self, count: u64) {
        self.unreported.fetch_sub(count, Ordering::Relaxed);
    }

    pub(super) fn total(&self) -> u64 {
        self.total.load(Ordering::Relaxed)
    }

    /// What an operator should know, while it is so.
    pub(super) fn trouble(&self) -> Option<String> {
        let unreported = self.unreported.load(Ordering::Relaxed);
        if unreported == 0 {
            return None;
        }
        let why = self.why.lock();
        let why = why.as_deref().unwrap_or("it is not known why");
        Some(format!("{unreported} lines could not be written: {why}"))
    }
}

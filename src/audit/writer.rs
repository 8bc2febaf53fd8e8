//! The writer thread of the audit log, and its file.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rustix::fs::OFlags;
use tokio::{
    sync::{mpsc::Receiver, oneshot},
    time::timeout,
};
use tracing::{error, info};

use crate::clock::Clock;

use super::event::AuditEntry;

/// A message to the writer thread of the audit log.
pub(super) enum WriterMessage {
    /// Write this line to the audit log.
    Line(Vec<u8>),
    /// Lines to write, possibly none. `kept` is notified when these and all earlier lines are on the disk, or have
    /// failed.
    Kept {
        /// The text of all lines to write.
        lines: Vec<u8>,
        /// The number of lines in `lines`.
        count: u64,
        /// Notifies the caller that waits until the lines are on the disk.
        kept: oneshot::Sender<()>,
    },
    /// Open the audit log's file again, because another program may have moved it away.
    Reopen,
}

/// Counts of audit lines that could not be written.
#[derive(Debug, Default)]
pub(super) struct MissingLines {
    /// The number of missing lines that the audit log does not report yet.
    unreported: AtomicU64,
    /// The number of all missing lines since the start.
    total: AtomicU64,
    /// Why the last missing line could not be written.
    why: Mutex<Option<String>>,
}

/// The state of the audit log's writer thread.
pub(super) struct Writer {
    pub(super) messages: Receiver<WriterMessage>,
    pub(super) output: Output,
    pub(super) missing: Arc<MissingLines>,
    pub(super) clock: Arc<dyn Clock>,
}

/// How often a failed write of the audit log is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// The maximum number of messages to the writer thread that are written together.
const BATCH: usize = 256;

// === impl Writer ===

impl Writer {
    /// Writes audit lines until all handles to the audit log are dropped.
    pub(super) async fn run(mut self) {
        loop {
            let mut batch = Vec::new();
            match timeout(RETRY, self.messages.recv_many(&mut batch, BATCH)).await {
                Ok(0) => return,
                Ok(_) => self.serve(batch),
                Err(_) => self.report_missing(),
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
                WriterMessage::Kept {
                    lines: more,
                    count: how_many,
                    kept,
                } => {
                    lines.extend(more);
                    self.write(&std::mem::take(&mut lines), count + how_many, Output::sync);
                    count = 0;
                    // The caller is notified even after a failure: its answer must not wait for a full disk.
                    kept.send(()).ok();
                }
                WriterMessage::Reopen => {
                    self.write(&std::mem::take(&mut lines), count, |_| Ok(()));
                    count = 0;
                    self.reopen();
                }
            }
        }
        self.write(&lines, count, |_| Ok(()));
    }

    /// Writes audit lines, after a line that reports how many lines are missing before them, if any are.
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

    /// Writes a line that reports missing lines, if there are any and the log can be written again.
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
                error!(%error, "cannot open the audit log again; the gateway goes on with the old \
                                file");
            }
        }
    }
}

// === impl MissingLines ===

impl MissingLines {
    /// Counts audit lines that could not be written. The ordinary log gets an error for the first failure only.
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

    /// A description for the operator, while missing lines are not reported in the log.
    pub(super) fn trouble(&self) -> Option<String> {
        let unreported = self.unreported.load(Ordering::Relaxed);
        if unreported == 0 {
            return None;
        }
        let why = self.why.lock();
        let why = why.as_deref().unwrap_or("the cause is unknown");
        Some(format!("{unreported} lines could not be written: {why}"))
    }
}

// === Output ===
//
// The destination of the lines.

/// The destination of the audit lines: standard output or a file.
pub(super) enum Output {
    Stdout,
    File(Appended),
}

/// The file to which audit lines are appended.
pub(super) struct Appended {
    path: PathBuf,
    file: File,
    /// Whether the last write ended within a line. Then the next write starts with a newline.
    torn: bool,
}

/// The mode of a new file: only its owner may read and write it.
const MODE: u32 = 0o600;

// === impl Output ===

impl Output {
    pub(super) fn open(path: &str) -> io::Result<Self> {
        if path == "-" {
            return Ok(Self::Stdout);
        }
        let path = PathBuf::from(path);
        let file = append(&path)?;
        let torn = is_torn(&path, &file);
        Ok(Self::File(Appended { path, file, torn }))
    }

    /// Opens the audit log's file again, because another program may have moved it away. If that fails, the old
    /// file stays in use.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        if let Self::File(appended) = self {
            appended.file = append(&appended.path)?;
            // The path may lead to the same file as before, which may end within a line.
            appended.torn = is_torn(&appended.path, &appended.file);
        }
        Ok(())
    }

    /// Writes whole audit lines to the file or to standard output.
    pub(super) fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        match self {
            Self::Stdout => {
                let mut stdout = io::stdout().lock();
                stdout.write_all(lines)?;
                stdout.flush()
            }
            Self::File(appended) => appended.write(lines),
        }
    }

    /// Syncs the file to the disk, so that its lines survive a crash of the machine. Does nothing for standard
    /// output.
    pub(super) fn sync(&self) -> io::Result<()> {
        match self {
            Self::Stdout => Ok(()),
            Self::File(appended) => match appended.file.sync_data() {
                // This is no failure: a pipe or a terminal cannot be synced.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
                synced => synced,
            },
        }
    }
}

// === impl Appended ===

impl Appended {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        if self.torn {
            self.file.write_all(b"\n")?;
            self.torn = false;
        }
        let mut left = lines;
        while !left.is_empty() {
            match self.file.write(left) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => {
                    self.torn = left[written - 1] != b'\n';
                    left = &left[written..];
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Whether the audit log's file ends within a line, because the disk was full or the machine crashed.
fn is_torn(path: &Path, file: &File) -> bool {
    match file.metadata() {
        Ok(data) if data.is_file() && data.len() > 0 => {
            let mut last = [0];
            let read = File::open(path).and_then(|it| it.read_exact_at(&mut last, data.len() - 1));
            // If the end of the file cannot be read, it counts as torn: an empty line does less harm than two
            // lines joined into one.
            read.is_err() || last != [b'\n']
        }
        _ => false,
    }
}

fn append(path: &Path) -> io::Result<File> {
    // The file is opened without blocking: opening a pipe that no program reads must fail instead of stopping the
    // gateway.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    OpenOptions::new()
        .append(true)
        .create(true)
        .mode(MODE)
        .custom_flags(nonblocking)
        .open(path)
}

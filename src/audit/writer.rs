//! The writer thread of the audit log, and its file.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rustix::fs::OFlags;
use tokio::sync::{mpsc::Receiver, oneshot};
use tracing::{error, info};

/// A message to the writer thread of the audit log.
pub(super) enum WriterMessage {
    /// Write this line to the audit log.
    Line(Vec<u8>),
    /// Write these lines and sync them to the disk; without lines, nothing is synced. The sender is notified when the
    /// lines are on the disk and all earlier lines are written, or the write has failed.
    Kept(Vec<u8>, oneshot::Sender<()>),
    /// Open the audit log's file again, because another program may have moved it away.
    Reopen,
}

/// Whether the audit log can be written, as far as the last line shows. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct AuditHealth(Arc<AtomicBool>);

/// The state of the audit log's writer thread.
pub(super) struct Writer {
    pub(super) messages: Receiver<WriterMessage>,
    pub(super) output: Output,
    pub(super) health: AuditHealth,
}

/// The maximum number of messages to the writer thread that are written together.
const BATCH: usize = 256;

// === impl Writer ===

impl Writer {
    /// Writes audit lines until all handles to the audit log are dropped.
    pub(super) fn run(mut self) {
        let mut batch = Vec::new();
        while self.messages.blocking_recv_many(&mut batch, BATCH) > 0 {
            let mut lines = Vec::new();
            for message in batch.drain(..) {
                match message {
                    WriterMessage::Line(line) => lines.extend(line),
                    WriterMessage::Kept(more, kept) => {
                        lines.extend(more);
                        self.write(&std::mem::take(&mut lines), Output::sync);
                        // The sender is notified even after a failure: its answer must not wait for a full disk.
                        kept.send(()).ok();
                    }
                    WriterMessage::Reopen => {
                        self.write(&std::mem::take(&mut lines), |_| Ok(()));
                        self.reopen();
                    }
                }
            }
            self.write(&lines, |_| Ok(()));
        }
    }

    fn write(&mut self, lines: &[u8], then: impl Fn(&Output) -> io::Result<()>) {
        if lines.is_empty() {
            return;
        }
        match self.output.write(lines).and_then(|()| then(&self.output)) {
            Ok(()) => self.health.written(),
            Err(error) => self.health.failed(&error.to_string()),
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

// === impl AuditHealth ===

impl AuditHealth {
    /// Records that lines could not be written. The ordinary log gets an error for the first failure only.
    pub(super) fn failed(&self, why: &str) {
        if !self.0.swap(true, Ordering::Relaxed) {
            error!(
                why,
                "the audit log cannot be written; lines are missing from it"
            );
        }
    }

    fn written(&self) {
        if self.0.swap(false, Ordering::Relaxed) {
            info!("the audit log can be written again");
        }
    }

    /// Whether the last lines could not be written.
    pub(super) fn is_failing(&self) -> bool {
        self.0.load(Ordering::Relaxed)
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

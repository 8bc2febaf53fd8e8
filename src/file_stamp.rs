//! Detects whether a file has changed, and reads files again that have changed.

use std::{
    fmt::Display,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    pin::pin,
    sync::Arc,
    time::Duration,
};

use tokio::{
    sync::Notify,
    task::spawn_blocking,
    time::{MissedTickBehavior, interval},
};

use crate::lifecycle::Lifecycle;

/// Properties that change when a file changes; the default if the file does not exist or cannot be read. Links are
/// followed, because Kubernetes replaces a file by changing a link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FileStamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

// === impl FileStamp ===

impl FileStamp {
    /// The current stamp of a file.
    pub fn read(path: &Path) -> Self {
        let Ok(data) = std::fs::metadata(path) else {
            return Self::default();
        };
        Self {
            device: data.dev(),
            inode: data.ino(),
            size: data.size(),
            modified: (data.mtime(), data.mtime_nsec()),
            changed: (data.ctime(), data.ctime_nsec()),
        }
    }
}

/// Reads files again when one of them has changed, or on request.
#[derive(Debug)]
pub struct FileWatch<const N: usize> {
    paths: [PathBuf; N],
    /// The stamps of the files when they were last read, whether or not the files could be used.
    read: [FileStamp; N],
    /// The stamps of the files at the last check. The files are read when two checks find the same stamps, because a
    /// writer may not be done at the first: otherwise half of a file could be read, or a certificate without its key.
    changing: Option<[FileStamp; N]>,
}

/// How often the files are checked.
const PERIOD: Duration = Duration::from_secs(1);

// === impl FileWatch ===

impl<const N: usize> FileWatch<N> {
    /// Watches files. Call this before the files are read for the first time, so that a change in between is noticed.
    pub fn new(paths: [&Path; N]) -> Self {
        Self {
            read: paths.map(FileStamp::read),
            paths: paths.map(Path::to_owned),
            changing: None,
        }
    }

    /// Reads the files again, with `read`, whenever they have changed, until the gateway stops. A notification of `asked`
    /// makes the watch read them at once. `report` is called after each check, with the outcome if the files were read.
    pub async fn keep_current<T: Send + 'static, E: Display + Send + 'static>(
        mut self,
        read: impl Fn() -> Result<T, E> + Send + Sync + 'static,
        asked: Arc<Notify>,
        lifecycle: Lifecycle,
        mut report: impl FnMut(Option<Result<T, String>>),
    ) {
        let read = Arc::new(read);
        let mut checks = interval(PERIOD);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut stopped = pin!(lifecycle.stopped());
        loop {
            let is_asked = tokio::select! {
                () = &mut stopped => return,
                () = asked.notified() => true,
                _ = checks.tick() => false,
            };
            let read = Arc::clone(&read);
            let work = spawn_blocking(move || {
                let outcome = self.has_changed(is_asked).then(|| read());
                (self, outcome)
            });
            let Ok((watch, outcome)) = work.await else {
                // Reading the files fails like this only if the runtime ends, or by a bug.
                return report(Some(Err("it is no longer watched".to_owned())));
            };
            self = watch;
            report(outcome.map(|read| read.map_err(|error| error.to_string())));
        }
    }

    /// Whether the files must be read again: they have changed, or a read was requested.
    fn has_changed(&mut self, is_asked: bool) -> bool {
        let now = self.paths.each_ref().map(|path| FileStamp::read(path));
        let is_settled = self.changing.replace(now) == Some(now);
        if !is_asked && (now == self.read || !is_settled) {
            return false;
        }
        self.read = now;
        true
    }
}

//! The data directory: who may use it, and where its files are.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
};

use super::log::{LAYOUT, LogError, Segment, Unreadable, Volume};

/// A data directory that is ours until this is dropped.
///
/// The lock is a file of its own and not a segment of the log, which comes and goes.
#[derive(Debug)]
pub(super) struct Directory {
    path: PathBuf,
    lock: File,
}

const LOCK: &str = "latchgate.lock";

// === impl Directory ===

impl Directory {
    /// Takes a directory, and makes it if need be.
    pub(super) fn take(path: &Path) -> Result<Self, OpenError> {
        create(path).map_err(|source| match source.kind() {
            // Itself, or something above it.
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => OpenError::NotADirectory {
                path: path.to_owned(),
            },
            _ => OpenError::CreateDirectory {
                path: path.to_owned(),
                source,
            },
        })?;
        let lock_path = path.join(LOCK);
        let lock =
            open_private(&lock_path, true).map_err(|source| OpenError::of(&lock_path, source))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                path: path.to_owned(),
                lock,
            }),
            Err(TryLockError::WouldBlock) => Err(OpenError::InUse(path.to_owned())),
            Err(TryLockError::Error(source)) => Err(OpenError::of(&lock_path, source)),
        }
    }

    /// The directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Where the segments of the log are.
    pub(super) fn files(&self) -> LogFiles {
        LogFiles {
            directory: self.path.clone(),
        }
    }

    /// What is in the directory now: the lock, and these segments of the log.
    pub(super) fn open_files(&self, segments: impl Iterator<Item = u64>) -> io::Result<OpenFiles> {
        let mut open_files = OpenFiles::of(self.path.join(LOCK), &self.lock)?;
        let files = self.files();
        open_files.set_segments(segments.map(|segment| files.path(segment)));
        Ok(open_files)
    }
}

// === Segments of the log ===

/// The segments of the log in a data directory.
#[derive(Debug)]
pub(super) struct LogFiles {
    directory: PathBuf,
}

const PREFIX: &str = "latchgate.";
const SUFFIX: &str = ".log";

// === impl LogFiles ===

impl LogFiles {
    /// Where a segment is.
    pub(super) fn path(&self, generation: u64) -> PathBuf {
        self.directory
            .join(format!("{PREFIX}{generation:08}{SUFFIX}"))
    }

    /// Where a segment is made: one in its place that cannot be read is damaged, and never merely
    /// unfinished. What a crash has left here is worth nothing.
    fn draft_path(&self) -> PathBuf {
        self.directory.join("latchgate.log.new")
    }
}

impl Volume for LogFiles {
    fn generations(&self) -> io::Result<Vec<u64>> {
        let mut generations = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let name = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            let number = name.and_then(|name| name.strip_suffix(SUFFIX)?.parse().ok());
            // No other spelling of the number is ours.
            generations.extend(number.filter(|&number| self.path(number).exists()));
        }
        Ok(generations)
    }

    fn read(&self, generation: u64) -> io::Result<Vec<u8>> {
        fs::read(self.path(generation))
    }

    fn open(&self, generation: u64) -> io::Result<Box<dyn Segment>> {
        Ok(Box::new(open_private(&self.path(generation), false)?))
    }

    fn draft(&self, bytes: &[u8]) -> io::Result<Box<dyn Segment>> {
        let path = self.draft_path();
        let file = open_private(&path, true)?;
        file.set_len(0)?;
        let written = file.write_all_at(bytes, 0).and_then(|()| file.sync_all());
        if let Err(error) = written {
            // On a full disk its space is needed by others.
            fs::remove_file(&path).ok();
            return Err(error);
        }
        Ok(Box::new(file))
    }

    fn put_in_place(&self, generation: u64) -> io::Result<()> {
        fs::rename(self.draft_path(), self.path(generation))?;
        sync(&self.directory)
    }

    fn remove(&self, generation: u64) -> io::Result<()> {
        fs::remove_file(self.path(generation))
    }
}

impl Segment for File {
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// Opens a file that only this user may read and write.
pub(super) fn open_private(path: &Path, create: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(create)
        .truncate(false);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

fn create(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(path)?;
    // The new entry itself must survive a loss of power, in whatever directory it was made.
    let absolute = std::path::absolute(path)?;
    absolute.parent().map_or(Ok(()), sync)
}

/// Makes the entries of a directory durable.
fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

// === Open files ===
//
// Whether the files that are open are still the ones in the data directory.

/// What the data directory held when it was taken.
///
/// A file that was removed can be written for as long as it is open, and is gone afterwards: whoever
/// was answered meanwhile would have been promised what no start remembers.
#[derive(Debug)]
pub(super) struct OpenFiles {
    /// The first is the lock.
    files: Vec<(PathBuf, FileId)>,
}

/// Tells files apart, whatever they are called.
type FileId = (u64, u64);

const REMOVED: &str = "was removed while the gateway was running; if it was moved, move it back; if \
    it was deleted, start the gateway again once the longest TTL in use is over: it then begins empty \
    and does not know who holds a lock";
const REPLACED: &str = "was replaced while the gateway was running; put the old one back, or start the \
    gateway again once the longest TTL in use is over: it then knows only what the new one holds";

// === impl OpenFiles ===

impl OpenFiles {
    /// The open file, which is at this path.
    pub(super) fn of(path: PathBuf, file: &File) -> io::Result<Self> {
        let files = vec![(path, file_id(&file.metadata()?))];
        Ok(Self { files })
    }

    /// The files at these paths belong to it, too, and none that did before. One that is not there does not.
    pub(super) fn set_segments(&mut self, paths: impl Iterator<Item = PathBuf>) {
        self.files.truncate(1);
        for path in paths {
            if let Ok(metadata) = fs::metadata(&path) {
                self.files.push((path, file_id(&metadata)));
            }
        }
    }

    /// Says what to do if something is not in its place any more. A directory that cannot be looked
    /// into for another reason is none: what is open may be in order.
    pub(super) fn check(&self) -> Result<(), String> {
        for (path, expected) in &self.files {
            let what = match fs::metadata(path) {
                Ok(metadata) if file_id(&metadata) == *expected => continue,
                Ok(_) => REPLACED,
                Err(error) if error.kind() == ErrorKind::NotFound => REMOVED,
                Err(_) => continue,
            };
            return Err(format!("{} {what}", path.display()));
        }
        Ok(())
    }
}

fn file_id(metadata: &fs::Metadata) -> FileId {
    (metadata.dev(), metadata.ino())
}

// === Open error ===
//
// Why the embedded store could not be opened, and what to do about it.

/// Why the embedded store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The data directory does not exist and could not be made.
    #[error(
        "cannot create the data directory {path:?}: {source}; create it, or choose another with --store embedded:DIR"
    )]
    CreateDirectory {
        /// The directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// There is a file where the data directory should be.
    #[error(
        "the data directory {path:?} is a file, or below one; choose a directory with --store embedded:DIR"
    )]
    NotADirectory {
        /// What was to be the directory.
        path: PathBuf,
    },
    /// The data directory or a file in it may not be written.
    #[error(
        "cannot write {path:?}: {source}; give this user the right to write there, mount it read-write, or choose another directory with --store embedded:DIR"
    )]
    NotWritable {
        /// The directory or file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// Another process has the directory open.
    #[error(
        "the data directory {0:?} is in use by another process; stop that one, or choose another directory with --store embedded:DIR"
    )]
    InUse(PathBuf),
    /// The file is not one of ours, or is damaged.
    #[error(
        "the file {path:?} is damaged or was not written by latchgate: {what}; restore it from a backup, or move it away to begin with no locks held"
    )]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What was found.
        what: String,
    },
    /// The file was written by a newer version of this program.
    #[error(
        "the file {path:?} has the layout version {found}, this program knows {known}; start the version of latchgate that wrote it, or a newer one"
    )]
    NewerLayout {
        /// The file.
        path: PathBuf,
        /// The version in the file.
        found: u32,
        /// The version that this program reads and writes.
        known: u32,
    },
    /// There is no space left for the file.
    #[error("no space is left to write {path:?}: {source}; free some, then start again")]
    DiskFull {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The disk failed in another way.
    #[error("cannot use {path:?}: {source}; look at the disk and at the log of the system")]
    Io {
        /// The directory or file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// No thread could be started for the writer.
    #[error("cannot start the thread that writes: {0}; look at the limits of this process")]
    Thread(io::Error),
}

// === impl OpenError ===

impl OpenError {
    /// Sorts what the operating system said about a file or directory.
    pub(super) fn of(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                Self::NotWritable { path, source }
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::DiskFull { path, source },
            _ => Self::Io { path, source },
        }
    }

    /// Sorts what was found while the log was read.
    pub(super) fn of_log(files: &LogFiles, unreadable: Unreadable) -> Self {
        let path = files.path(unreadable.generation);
        match unreadable.error {
            LogError::Io(error) => Self::of(&path, error),
            LogError::Layout(found) if found > LAYOUT => Self::NewerLayout {
                path,
                found,
                known: LAYOUT,
            },
            damaged @ (LogError::NoLog
            | LogError::Layout(_)
            | LogError::CutShort
            | LogError::Gap(_)
            | LogError::Damaged(_)
            | LogError::Row { .. }
            | LogError::Count { .. }) => Self::Corrupt {
                path,
                what: damaged.to_string(),
            },
        }
    }
}

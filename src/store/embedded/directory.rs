//! The data directory: who may use it, and where its files are.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{
    file::FileError,
    row::{Meta, RowError},
};

/// A data directory that is ours until this is dropped.
///
/// The lock is a file of its own and not the database, which is closed and opened again when its
/// disk fails: nobody may come in between.
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

    /// Where the database is.
    pub(super) fn database(&self) -> PathBuf {
        self.path.join("latchgate.redb")
    }

    /// What is in the directory now: the lock, and the database if there is one.
    pub(super) fn open_files(&self) -> Result<OpenFiles, OpenError> {
        let path = self.path.join(LOCK);
        let mut open_files =
            OpenFiles::of(path.clone(), &self.lock).map_err(|error| OpenError::of(&path, error))?;
        open_files.and(self.database());
        Ok(open_files)
    }

    /// Where a new database is made, before it takes its place. Whatever is left there by a crash is
    /// worth nothing.
    pub(super) fn draft(&self) -> Result<PathBuf, OpenError> {
        let path = self.path.join("latchgate.redb.new");
        match fs::remove_file(&path) {
            Ok(()) => Ok(path),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(path),
            Err(error) => Err(OpenError::of(&path, error)),
        }
    }

    /// Puts a finished draft in its place, so that it is there after a loss of power.
    pub(super) fn put_in_place(&self, draft: &Path) -> Result<(), OpenError> {
        fs::rename(draft, self.database())
            .and_then(|()| sync(&self.path))
            .map_err(|error| OpenError::of(&self.path, error))
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

    /// The file at this path belongs to it, too. One that is not there does not.
    pub(super) fn and(&mut self, path: PathBuf) {
        if let Ok(metadata) = fs::metadata(&path) {
            self.files.push((path, file_id(&metadata)));
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
        found: u8,
        /// The version that this program reads and writes.
        known: u8,
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

    /// Sorts what the database said about its file.
    pub(super) fn of_database(path: &Path, error: redb::Error) -> Self {
        let corrupt = |what: String| Self::Corrupt {
            path: path.to_owned(),
            what,
        };
        match error {
            redb::Error::Io(error) => match error.kind() {
                ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::InvalidInput => {
                    corrupt(error.to_string())
                }
                _ => Self::of(path, error),
            },
            redb::Error::DatabaseAlreadyOpen => Self::InUse(path.to_owned()),
            // The rest says in one way or another that what it found makes no sense.
            other => corrupt(other.to_string()),
        }
    }

    /// Sorts what was found while the file was opened and read.
    pub(super) fn of_file(path: &Path, error: FileError) -> Self {
        let path = path.to_owned();
        match error {
            FileError::Database(error) => Self::of_database(&path, error),
            FileError::Row {
                error: RowError::Version(found),
                ..
            } if found > Meta::LAYOUT => Self::NewerLayout {
                path,
                found,
                known: Meta::LAYOUT,
            },
            unreadable @ (FileError::NoMeta
            | FileError::Row { .. }
            | FileError::Count { .. }
            | FileError::Panicked) => Self::Corrupt {
                path,
                what: unreadable.to_string(),
            },
        }
    }
}

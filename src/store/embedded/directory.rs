//! The data directory: who may use it, and where its files are.

use std::{
    fs::{self, DirBuilder, File, OpenOptions, TryLockError},
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

use super::{open_error::OpenError, open_files::OpenFiles};

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

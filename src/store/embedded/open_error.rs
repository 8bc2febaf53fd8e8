//! Why the embedded store could not be opened, and what to do about it.

use super::{field::RowError, file::FileError, meta::Meta};

use std::{
    io::{self, ErrorKind},
    path::{Path, PathBuf},
};

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

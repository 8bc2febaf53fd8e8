//! The log of the embedded store on disk: its directory and files, their layout, snapshots and backups, and how the log
//! is read.

mod append;
mod directory;
mod layout;
mod replay;
mod snapshot;

pub use directory::OpenError;
pub use snapshot::{BackupError, check_backup};

pub(super) use append::{Log, LogEnd, Volume, WriteFailure};
pub(super) use directory::{Directory, LogFiles, OpenFiles, RESERVE};
pub(super) use replay::Contents;
pub(super) use snapshot::Backup;

#[cfg(test)]
pub(super) use {
    append::DiskFile,
    layout::{LAYOUT, LogError},
};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use replay::fuzzed_row;

//! The embedded store: leases in a log of this process, durable before the answer.

mod backup;
mod catalog;
mod command;
mod directory;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzed_row;
mod health;
mod held;
mod layout;
mod lease;
mod list;
mod log;
mod operations;
mod queue;
mod replay;
mod row;
mod snapshot;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod undo;
mod writer;

pub use backup::{BackupError, check_backup};
pub use directory::OpenError;
pub use store::{EmbeddedStore, StoreBackup};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use fuzzed_row::fuzzed_row;

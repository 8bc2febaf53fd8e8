//! The embedded store: leases in a file of this process, durable before the answer.

mod acquire;
mod break_lock;
mod catalog;
mod command;
mod confirm;
mod directory;
mod field;
mod file;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzed_row;
mod give_back;
mod hand_off;
mod header_last;
mod health;
mod join;
mod lease;
mod lease_row;
mod leave;
mod list;
mod meta;
mod moment;
mod notice;
mod open_error;
mod open_files;
mod positions;
mod queue;
mod queued;
mod queues;
mod release;
mod renew;
mod row_key;
mod rows;
mod seal;
mod start;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod writer;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use fuzzed_row::fuzzed_row;
pub use open_error::OpenError;
pub use store::EmbeddedStore;

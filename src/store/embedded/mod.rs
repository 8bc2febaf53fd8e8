//! The embedded store: leases in a log of this process, durable before the answer.
//!
//! All state is in memory; the log is read at a start and written otherwise. One batch of commands is one record: the rows that
//! changed, and a checksum. A record is written when the one before is durable, so at most the last record can be torn. What a torn
//! record cannot have left (a beginning that is neither its own nor zeros, bytes behind its end) is damage and stops the start.
//!
//! A log file (`latchgate.NUMBER.log`) is filled with zeros ahead of its end, so a sync changes data only. When the file is long, the
//! next one is made beside it: a part of all rows is copied after each batch, and each batch is added. When it is complete, and as
//! long as a full disk may need it, it takes the place of the one before. So the file with the highest number always holds
//! everything. Whatever fails in the middle of a record, and every start, begins a file with all rows: nothing is appended to what
//! might not be on disk.
//!
//! **A full disk.** `latchgate.reserve` is at least twice as long as all rows, and 256 KiB, and so is the log file. When no file can
//! grow, all rows are written into the reserve, which becomes the log; the file before becomes the reserve. No block is freed in
//! between, and that can be repeated without end. The rows must not grow meanwhile, so the writer refuses acquires until the disk has
//! room for more than what is kept, and refuses requests to release that take more than half of the spare room. A hand-off takes the
//! place of the lease that ended, and is granted. If several waiters could share the lock, no more of them are granted than leases
//! ended in the same batch; the others follow when there is room.
//!
//! **A backup** is a snapshot in memory, made as the next file is. A mark in its header says that others were granted fencing tokens
//! after it was made: a start on it is refused if the clock is behind the largest of them.

mod command;
mod health;
mod log;
mod records;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod writer;

pub use log::{BackupError, OpenError, check_backup};
pub use store::{EmbeddedStore, StoreBackup};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use log::fuzzed_row;

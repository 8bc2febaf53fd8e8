//! The embedded store: leases in a log of this process, durable before the answer.
//!
//! All state is in memory; the log is read at the start, and only written afterwards. One batch of commands is
//! one record: the rows that changed, and a checksum. A record is written when the record before it is durable,
//! so at most the last record can be torn. Bytes that a torn record cannot have left (a beginning that is
//! neither its own nor zeros, bytes behind its end) are damage and stop the start.
//!
//! A log file (`latchgate.NUMBER.log`) is filled with zeros ahead of its end, so a sync changes data only. When
//! the file is long, the next file is made beside it: a part of all rows is copied after each batch, and each
//! batch is added. When the next file is complete, and as long as a full disk may require, it replaces the
//! current file. So the file with the highest number always holds everything. After a failure within a record,
//! and at each start, the store begins a file with all rows: nothing is appended to bytes that might not be on
//! disk.
//!
//! **A full disk.** `latchgate.reserve` is at least twice as long as all rows, plus 256 KiB, and so is the
//! log file. When no file can grow, all rows are written into the reserve, which becomes the log; the log
//! file before it becomes the reserve. No block is freed in between, and this can be repeated without end.
//! The rows must not grow meanwhile, so the writer refuses acquires until the disk has more room than the two
//! files need, and refuses requests to release that take more than half of the spare room. A hand-off
//! replaces the lease that ended, and is granted, unless there is no room for the order of the waiter. If
//! several waiters could share the lock, no more of them are granted than leases ended in the same batch; the
//! other waiters follow when there is room.
//!
//! **A backup** is a snapshot in memory, made as the next file is. A mark in its header says that the store may
//! have granted larger fencing tokens after the backup was made: a start from it is refused if the wall clock
//! is behind the largest fencing token in it.

mod command;
mod health;
mod history;
mod log;
mod records;
mod state;
mod store;
#[cfg(test)]
mod tests;
mod writer;

pub use log::{BackupError, OpenError, check_backup};
pub use store::EmbeddedStore;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use log::fuzzed_row;

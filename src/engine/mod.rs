//! The operations on locks, the same for all callers and all stores.
//!
//! An acquire goes through these steps:
//!
//! 1. The engine makes a token: a random one, or one that is derived from the `Idempotency-Key` and a fresh salt.
//! 2. The handler polls the attempt itself. If the caller hangs up, axum drops the handler. The attempt then moves to
//!    a task, which leaves the queue and releases a lease that it is still granted.
//! 3. The store decides, and the attempt waits for its turn if it may.
//! 4. The grant is answered with a delivery guard. If the guard is dropped before any of the answer has left, the
//!    lease goes to the reaper.
//! 5. The reaper releases leases that no caller received: at once, or after the reconnect grace if the request has an
//!    idempotency key, because the caller may ask again. It retries for as long as the store cannot be reached.
//!    Beyond 16,384 entries the reaper drops leases, which then end with their TTL.
//!
//! If something goes wrong:
//!
//! * The caller hangs up. Acquire: the attempt leaves the queue, or its lease is released. Hold: the lock is
//!   released. Release: the release is carried out.
//! * The store pauses or refuses. A command that certainly was not carried out is tried again for one second, and is
//!   then answered `Unavailable`.
//! * The reply is lost. The same command is sent again until the deadline; every script recognises its repetition.
//!   After that the outcome is `Indeterminate`, and the reaper releases a lease that may have been granted.
//! * The gateway dies. Its leases end with their TTL. Its waiters count as dead after 6 s, or when one provisional
//!   grant (3 s) was not confirmed.
//! * The process dies on the embedded store. Every answered lease is on disk and keeps its remaining TTL, counted
//!   from the boot of the machine.

mod acquire;
mod backup;
mod break_lock;
mod check_fence;
mod check_memory;
mod delivery;
mod detach_on_drop;
pub mod events;
mod facts;
mod group;
mod history;
mod hold;
mod leases;
mod loss;
mod managed_lease;
mod order;
mod outcome;
mod reaper;
mod release;
mod renew;
mod reserved_positions;
mod samples;
mod start;
mod store_changes;
#[cfg(test)]
mod tests;

pub use acquire::{AcquireError, AcquireRequest, Granted};
pub use backup::BackupParts;
pub use break_lock::{BreakError, ReleaseRecord};
pub use delivery::Delivery;
pub use detach_on_drop::without_caller;
pub use group::{AwaitedLock, GrantedGroup, GroupAcquireError, GroupRequest};
pub use history::Actor;
pub use hold::{AdoptError, Hold, HoldEnd, HoldEvent};
pub use loss::LossReason;
pub use order::SetOrderError;
pub use release::{HolderRelease, ReleaseError};
pub use renew::RenewError;
pub use samples::{SAMPLE_INTERVAL, Sample};
pub use start::Engine;
pub use store_changes::{StoreChange, StoreChangeKind};

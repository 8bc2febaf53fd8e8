//! The operations on locks, whoever calls and wherever leases live.

mod acquire;
mod backup;
mod break_lock;
mod delivery;
mod detach_on_drop;
pub mod events;
mod fences;
mod group;
mod hold;
mod inspect;
mod late_grant;
mod leases;
mod loss;
mod managed_lease;
mod outcome;
mod reaper;
mod release;
mod renew;
mod replies;
mod start;
#[cfg(test)]
mod tests;

pub use acquire::{AcquireError, AcquireRequest, ExplicitTerms, Granted};
pub use backup::BackupParts;
pub use break_lock::{BreakError, ReleaseRecord};
pub use delivery::Delivery;
pub use group::{GrantedGroup, GroupAcquireError, GroupRequest};
pub use hold::{AdoptError, Hold, HoldEnd, HoldEvent};
pub use loss::LossReason;
pub use release::ReleaseError;
pub use renew::RenewError;
pub use start::Engine;

//! The operations on locks, whoever calls and wherever leases live.

mod acquire;
mod attempt;
mod break_lock;
mod delivery;
mod detach_on_drop;
pub mod events;
mod fences;
mod hold;
mod hold_streams;
mod hold_task;
mod inspect;
mod leases;
mod list;
mod loss;
mod managed_lease;
mod metric_outcomes;
mod outcome;
mod reaper;
mod release;
mod renew;
mod reserved_positions;
mod start;
#[cfg(test)]
mod tests;

pub use acquire::{AcquireError, AcquireRequest, ExplicitTerms, Granted};
pub use break_lock::BreakError;
pub use delivery::Delivery;
pub use hold::{AdoptError, Hold, HoldEnd, HoldEvent};
pub use loss::LossReason;
pub use release::ReleaseError;
pub use renew::RenewError;
pub use start::Engine;

//! The operations on locks, whoever calls and wherever leases live.

mod acquire;
mod attempt;
mod break_lock;
mod counted;
mod delivery;
pub mod events;
mod fences;
mod hold;
mod inspect;
mod keeper;
mod kept;
mod kept_places;
mod leases;
mod list;
mod loss;
mod outcome;
mod reaper;
mod release;
mod renew;
mod seen_through;
mod start;
mod streams;
#[cfg(test)]
mod tests;

pub use acquire::{AcquireError, AcquireRequest, Granted, Stated};
pub use break_lock::BreakError;
pub use delivery::Delivery;
pub use hold::{AdoptError, Hold, HoldEnd, HoldEvent};
pub use loss::LossReason;
pub use release::ReleaseError;
pub use renew::RenewError;
pub use start::Engine;

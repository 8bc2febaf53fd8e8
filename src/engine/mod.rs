//! The operations on locks, whoever calls and wherever leases live.

mod acquire;
mod attempt;
mod delivery;
mod inspect;
mod reaper;
mod release;
mod renew;
mod start;
#[cfg(test)]
mod tests;

pub use acquire::{AcquireError, AcquireRequest, Granted};
pub use delivery::Delivery;
pub use release::ReleaseError;
pub use renew::RenewError;
pub use start::Engine;

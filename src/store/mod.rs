//! Stores of leases: one contract, and the stores that keep this contract.

mod any;
mod break_feed;
mod check;
pub mod contract;
pub mod cursor;
pub mod embedded;
mod error;
mod feature;
pub mod history;
pub mod list_filter;
mod order;
pub mod parking;
pub(crate) mod partition;
pub mod redis;
pub mod relay;

pub use any::{AnyStore, OpenError, open};
pub use contract::Store;
pub use error::{StoreError, Unavailability, Uncertainty};
pub use partition::Partition;

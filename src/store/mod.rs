//! Where leases live: one contract, several stores.

pub mod contract;
mod error;
pub mod parking;
pub mod redis;

pub use contract::Store;
pub use error::{StoreError, Unavailability, Uncertainty};

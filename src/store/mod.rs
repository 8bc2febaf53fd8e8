//! Where leases live: one contract, several stores.

mod any;
pub mod breaks;
mod check;
pub mod contract;
pub mod cursor;
pub mod embedded;
mod error;
mod open;
pub mod page;
pub mod parking;
pub mod positions;
pub mod redis;
pub mod relay;

pub use any::AnyStore;
pub use contract::Store;
pub use error::{StoreError, Unavailability, Uncertainty};
pub use open::{OpenError, open};

//! Where leases live: one contract, several stores.

pub mod breaks;
mod check;
pub mod contract;
pub mod cursor;
pub mod embedded;
mod error;
mod observed;
mod open;
pub mod page;
pub mod parking;
pub mod positions;
pub mod redis;
pub mod relay;

pub use contract::Store;
pub use error::{StoreError, Unavailability, Uncertainty};
pub use observed::{Observed, TracedKind};
pub use open::{OpenError, open};

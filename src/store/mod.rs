//! Where leases live: one contract, several stores.

mod any;
pub mod contract;
pub mod cursor;
pub mod embedded;
mod error;
pub mod list_filter;
mod open;
pub mod parking;
pub(crate) mod partition;
pub mod redis;

pub use any::AnyStore;
pub use contract::Store;
pub use embedded::StoreBackup;
pub use error::{StoreError, Unavailability, Uncertainty};
pub use open::{OpenError, open};
pub use partition::Partition;

//! Typed calls to a gateway, usable without anything else of this crate but the vocabulary of locks.
//!
//! A call repeats itself where that is safe: after what certainly did not happen, and after a lost
//! answer where a second copy of the command does no harm. An acquire therefore always carries an
//! `Idempotency-Key`; the client mints one where its caller gives none.

mod acquire;
mod answer;
mod api_key;
mod backoff;
mod call;
mod connect;
mod error;
mod inspect;
mod lease;
mod problem;
mod release;
mod renew;

pub use acquire::AcquireRequest;
pub use api_key::{ApiKey, ApiKeyError};
pub use connect::{Client, ClientOptions, SetupError};
pub use error::ClientError;
pub use inspect::{Inspection, LockState};
pub use lease::Lease;
pub use problem::{Holder, Problem};

//! Typed calls to a gateway, usable without anything else of this crate but the vocabulary of locks.
//!
//! A call repeats itself where that is safe: after what certainly did not happen, and after a lost
//! answer where a second copy of the command does no harm. An acquire therefore always carries an
//! `Idempotency-Key`; the client mints one where its caller gives none. A client that has the
//! addresses of several gateways on one store tries them in turn.
//!
//! [`Acquiring`] waits for a lock, [`Keeper`] keeps a lease, [`Events`] hears what happens to locks.

mod acquire;
mod acquiring;
mod addresses;
mod answer;
mod api_key;
mod backoff;
mod break_lock;
mod call;
mod connect;
mod error;
mod event_parser;
mod events;
mod inspect;
mod keeper;
mod keeping;
mod lease;
mod list;
mod problem;
mod release;
mod renew;
mod retry;
mod setback;
mod spoken;
mod waiting;

pub use acquire::AcquireRequest;
pub use acquiring::Acquiring;
pub use api_key::{ApiKey, ApiKeyError};
pub use connect::{Client, ClientOptions, SetupError};
pub use error::ClientError;
pub use events::{Event, Events, Heard};
pub use inspect::{Inspection, LockState, Waiter};
pub use keeper::Keeper;
pub use keeping::{Keeping, Loss};
pub use lease::Lease;
pub use list::{HeldLock, ListRequest, Page};
pub use problem::{FieldError, Holder, Problem};
pub use spoken::spoken;
pub use waiting::Waiting;

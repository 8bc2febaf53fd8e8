//! Typed calls to a gateway, usable without anything else of this crate but the vocabulary of locks.
//!
//! A call repeats itself where that is safe: after what certainly did not happen, and after a lost
//! answer where a second copy of the command does no harm. An acquire therefore always carries an
//! `Idempotency-Key`; the client mints one where its caller gives none. A client that has the
//! addresses of several gateways on one store tries them in turn.
//!
//! [`Acquiring`] waits for a lock, [`LeaseRenewer`] keeps a lease, [`Events`] hears what happens to locks.

mod acquiring;
mod api_key;
mod backoff;
mod backup;
mod break_lock;
mod call;
mod call_response;
mod connect;
mod error;
mod events;
mod format_duration;
mod group;
mod inspect;
mod lease;
mod lease_renewer;
mod list;
mod problem;
mod release;
mod release_request;
mod renew;
mod retry;
mod retryable_failure;

pub use acquiring::{AcquireMode, AcquireRequest, Acquiring, WaitStatus};
pub use api_key::{ApiKey, ApiKeyError};
pub use connect::{Client, ClientOptions, SetupError};
pub use error::ClientError;
pub use events::{Event, Events, EventsItem};
pub use format_duration::format_duration;
pub use group::{PartResult, PartResults};
pub use inspect::{Inspection, LockState, Waiter};
pub use lease::{Lease, LeasePart};
pub use lease_renewer::{LeaseRenewer, LeaseState, Loss};
pub use list::{HeldLock, ListRequest, Page};
pub use problem::{FieldError, Holder, Problem};
pub use release_request::ReleaseRequest;

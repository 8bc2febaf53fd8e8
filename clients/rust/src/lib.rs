//! Locks of a Latchgate gateway: distributed locks over plain HTTP and JSON.
//!
//! [`Client::with_lock`] does some work under a lock. With more of it in your hands: [`Client::acquire`], renew and release;
//! [`Acquiring`] waits for a lock, [`LeaseRenewer`] keeps a lease for as long as it is wanted and says when it is lost,
//! [`Events`] hears what happens to locks. The folder `examples` of this crate has whole programs.
//!
//! What is dropped half-way is given back in the background: [`Client::finish_releases`] waits for that.
//!
//! A call repeats itself where that is safe: after what certainly did not happen, and after a lost answer where a second copy
//! of the command does no harm. An acquire therefore always carries an `Idempotency-Key`; the client makes one where its
//! caller gives none. A client that has the addresses of several gateways on one store tries them in turn.
//!
//! Everything asynchronous runs on tokio. Times are those of the machine's monotonic clock.

mod acquire;
mod acquiring;
mod backup;
/// The gateway reads its files with it, too. It may change with any version, as everything that is hidden here.
#[doc(hidden)]
pub mod bounded_file;
mod break_lock;
mod client;
mod error;
mod events;
mod group;
mod holder;
mod http;
mod inspect;
mod lease;
mod lease_renewer;
#[doc(hidden)]
pub mod tls;

use latchgate_vocabulary as lock;

pub use acquiring::{AcquireMode, AcquireRequest, Acquiring, WaitStatus};
pub use client::{ApiKey, ApiKeyError, Client, ClientOptions, SetupError};
pub use error::{ClientError, FieldError, Problem, format_duration};
pub use events::{Event, Events, EventsItem};
pub use group::{PartResult, PartResults};
pub use holder::{Holder, ReleaseRequest};
pub use inspect::{HeldLock, Inspection, ListRequest, LockState, Page, Waiter};
pub use lease::{Lease, LeasePart};
pub use lease_renewer::{LeaseRenewer, LeaseState, Loss, WithLockError};
pub use lock::{
    BreakTarget, FenceError, FencingToken, ForeignMark, ForeignMarkError, GroupNames,
    GroupNamesError, IdempotencyKey, IdempotencyKeyError, Limit, LimitError, LockName, Metadata,
    MetadataError, Mode, NameError, NamePrefix, Owner, Reason, SearchText, Text, TextError, Token,
    TokenError,
    trace_context::{TraceContext, TraceId, TraceParent},
};
pub use tls::{ClientFiles, IdentityFiles, PemError, PemFile, TlsError};

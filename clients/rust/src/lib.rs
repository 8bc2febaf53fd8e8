//! Rust client of the Latchgate lock gateway: distributed locks over plain HTTP and JSON.
//!
//! [`Client::with_lock`] does some work under a lock. For more control, use [`Client::acquire`], renew and release:
//! [`Acquiring`] waits for a lock, [`LeaseRenewer`] keeps a lease renewed and reports when it is lost, and
//! [`Events`] receives what happens to locks. The folder `examples` of this crate has complete programs.
//!
//! If the future of an acquire or of work under a lock is dropped before it ends, the client releases the lease in
//! the background. [`Client::finish_releases`] waits for that.
//!
//! The client repeats a request where that is safe: if the first copy certainly had no effect, or if its answer was
//! lost and a second copy does no harm. So an acquire always carries an `Idempotency-Key`; the client makes a key
//! if the caller gives none. A client with the addresses of several gateways on one store tries them in turn.
//!
//! All asynchronous functions need the tokio runtime. Times are those of the machine's monotonic clock.

mod acquire;
mod acquire_mode;
mod acquiring;
mod backup;
/// Also used by the gateway to read its files. May change with any version, like everything that is hidden here.
#[doc(hidden)]
pub mod bounded_file;
mod break_lock;
mod client;
mod error;
mod events;
mod exchange;
mod group;
mod history;
mod holder;
mod http;
mod id_token;
mod inspect;
mod lease;
mod lease_renewer;
mod order;
#[doc(hidden)]
pub mod tls;

use latchgate_vocabulary as lock;

pub use acquire_mode::{AcquireMode, GroupLocks};
pub use acquiring::{AcquireRequest, Acquiring, Reserve, WaitStatus};
pub use client::{ApiKey, ApiKeyError, Client, ClientOptions, SetupError};
pub use error::{ClientError, FieldError, Problem, describe_grant, format_duration};
pub use events::{Event, Events, EventsItem, StoreChange};
pub use group::{PartResult, PartResults};
pub use holder::{AwaitedLock, Holder, HolderGroup};
pub use id_token::{IdToken, IdTokenError};
pub use inspect::{HeldLock, Inspection, ListRequest, Page};
pub use lease::{Lease, LeasePart};
pub use lease_renewer::{LeaseRenewer, LeaseState, Loss, WithLockError};
pub use lock::{
    BreakTarget, FenceError, FencingToken, ForeignMark, ForeignMarkError, GroupNames,
    GroupNamesError, History, HistoryEntry, HistoryNote, IdempotencyKey, IdempotencyKeyError,
    Limit, LimitError, LockName, Metadata, MetadataError, Mode, NameError, NamePrefix, OrderError,
    OrderNumber, Owner, Reason, SearchText, ShorterLeases, SupersedeKey, Text, TextError, Token,
    TokenError,
    answers::{LockState, Match, OrderGrant, ReleaseRequest, Reservation, Rest, Waiter},
    trace_context::{TraceContext, TraceId, TraceParent},
};
pub use tls::{ClientFiles, IdentityFiles, PemError, PemFile, TlsError};

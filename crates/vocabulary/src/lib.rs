//! The vocabulary of locks, which the gateway and its clients share: types that are valid by construction, and rules that
//! both sides follow. Nothing here reads or writes anything.
//!
//! The client in Rust (`latchgate-client`) names the types that programs need. Everything else may change with any version.

mod caller;
mod fence;
mod foreign_mark;
mod group;
mod hold_limit;
mod idempotency;
mod keeper_id;
mod lease;
mod metadata;
mod name;
mod name_prefix;
mod owner;
mod reason;
mod release_request;
pub mod renewal;
mod search;
mod sharing;
mod token;
pub mod trace_context;
mod ttl;

pub use caller::CallerId;
pub use fence::{FenceError, FencingToken};
pub use foreign_mark::{ForeignMark, ForeignMarkError};
pub use group::{Group, GroupNames, GroupNamesError};
pub use hold_limit::{HoldLimit, HoldLimitError};
pub use idempotency::{
    BreakTarget, Fingerprint, IdempotencyHash, IdempotencyKey, IdempotencyKeyError, Salt,
};
pub use keeper_id::KeeperId;
pub use lease::{HeldLease, Lease};
pub use metadata::{Metadata, MetadataError};
pub use name::{LockName, NameError};
pub use name_prefix::NamePrefix;
pub use owner::{Owner, OwnerError};
pub use reason::{Reason, ReasonError};
pub use release_request::ReleaseRequest;
pub use search::{SearchText, SearchTextError};
pub use sharing::{Limit, LimitError, Mode, Sharing};
pub use token::{Token, TokenError, TokenHash};
pub use ttl::{Ttl, TtlError};

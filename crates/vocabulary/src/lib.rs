//! The vocabulary of locks, which the gateway and its clients share: types whose values are always valid, and rules
//! that both sides follow. No code of this crate does input or output.
//!
//! The Rust client (`latchgate-client`) re-exports the types that programs need. All other items may change with any
//! version.

pub mod answers;
mod fence;
mod foreign_mark;
mod group;
mod history;
mod idempotency;
mod lease;
mod metadata;
mod name;
mod order;
pub mod renewal;
mod reservation;
mod said;
mod search;
mod sharing;
mod terms;
mod text;
mod token;
pub mod trace_context;
mod ttl;

pub use fence::{FenceError, FencingToken};
pub use foreign_mark::{ForeignMark, ForeignMarkError};
pub use group::{CollectionMark, Group, GroupNames, GroupNamesError};
pub use history::{History, HistoryEntry, HistoryNote, ShorterLeases};
pub use idempotency::{
    BreakTarget, CallerId, Fingerprint, IdempotencyHash, IdempotencyKey, IdempotencyKeyError, Salt,
    SupersedeHash, SupersedeKey,
};
pub use lease::{HeldLease, Lease};
pub use metadata::{Metadata, MetadataError};
pub use name::{LockName, NameError, NamePrefix};
pub use order::{Order, OrderError, OrderNumber};
pub use reservation::Reservation;
pub use said::Said;
pub use search::SearchText;
pub use sharing::{Limit, LimitError, Mode, Sharing};
pub use terms::{Ends, ExplicitTerms, Supersedes, Terms, UndeclaredTerms};
pub use text::{Owner, Reason, ReleaseRequest, Text, TextError};
pub use token::{RecipientId, Token, TokenError, TokenHash};
pub use ttl::{HoldLimit, HoldLimitError, MinHold, MinHoldError, Ttl, TtlError};

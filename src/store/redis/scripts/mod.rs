//! The scripts: for each one its text and a typed wrapper that knows the positions.

mod acquire;
mod advance;
mod break_lock;
mod confirm;
mod count;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzed_reply;
mod give_back;
pub(super) mod hex;
mod inspect;
mod lapse;
mod leave;
mod list;
mod probe;
mod queueing;
mod record;
mod release;
mod renew;
mod reply;
mod script;

pub(super) use advance::Advance;
pub(super) use break_lock::BreakResult;
pub(super) use give_back::{GrantKnowledge, TakeBackOutcome};
pub(super) use hex::token_hash;
pub(super) use list::ListedHolder;
pub(super) use probe::{Permission, Probed};
pub(super) use reply::{Reply, ScriptNews};
pub(super) use script::{Script, Scripts, TOMBSTONE_MS, fill_idempotency};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use fuzzed_reply::fuzzed_reply;

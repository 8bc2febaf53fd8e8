//! The scripts: for each one its text and a typed wrapper that knows the positions.

mod acquire;
mod advance;
mod ask;
mod break_lock;
mod catalogue;
mod confirm;
mod count;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzed_reply;
mod give_back;
mod inspect;
mod lapse;
mod leave;
mod list;
mod news;
mod queueing;
mod record;
mod release;
mod renew;

pub(super) use advance::Advance;
pub(super) use break_lock::{BreakResult, ScriptTarget};
pub use catalogue::inline_fields;
pub(super) use catalogue::{Scripts, typed_keys};
pub(super) use give_back::GrantKnowledge;
pub(super) use news::ScriptNews;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use fuzzed_reply::fuzzed_reply;

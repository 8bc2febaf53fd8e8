//! The Lua scripts of the Redis store, and a typed wrapper for each script that knows its arguments and its reply.

mod attempt;
mod catalogue;
mod lease;
mod lock_scripts;
mod reply;

pub(super) use attempt::GrantKnowledge;
pub use catalogue::inline_fields;
pub(super) use catalogue::{Scripts, typed_keys};
pub(super) use lease::Advance;
pub(super) use lock_scripts::{LockScripts, RedisContext};
pub(super) use reply::ScriptNews;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use reply::fuzzed_reply;

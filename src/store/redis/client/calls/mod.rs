//! Calls of scripts: how they are written, and how their replies are read.

#[cfg(any(test, feature = "fuzzing"))]
mod fuzzed_reply;
pub(crate) mod hex;
mod metadata;
mod release_request;
mod reply;
mod script;
mod script_call;

pub(crate) use hex::token_hash;
pub(crate) use metadata::{metadata_from_json, metadata_json};
pub(crate) use release_request::{REQUEST, read_request, request_text};
pub(crate) use reply::Reply;
pub(crate) use script::{Parts, Script, TOMBSTONE_MS};
pub(crate) use script_call::ScriptCall;

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use fuzzed_reply::{fuzzed, shown};

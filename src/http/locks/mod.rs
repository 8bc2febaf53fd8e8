//! The routes under `/locks`.

mod acquire;
mod acquire_body;
mod annotated;
mod break_lock;
mod delivered;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzed_body;
mod group;
mod group_body;
mod header_params;
mod hold;
mod hold_stream;
mod inspect;
mod lease_body;
mod list;
mod lock_body;
mod millis;
mod release;
mod release_request_body;
mod renew;

pub(super) use acquire::{__path_acquire, acquire};
pub(super) use break_lock::{__path_break_lock, break_lock};
pub(super) use group::{
    __path_acquire_group, __path_release_group, __path_renew_group, acquire_group, release_group,
    renew_group,
};
pub(super) use hold::{__path_hold, hold};
pub(super) use inspect::{__path_inspect, inspect};
pub(super) use lease_body::{MetadataBody, timestamp};
pub(super) use list::{__path_list, list};
pub(super) use millis::millis;
pub(super) use release::{__path_release, __path_release_by_post, release, release_by_post};
pub(super) use release_request_body::ReleaseRequestBody;
pub(super) use renew::{__path_renew, renew};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use fuzzed_body::fuzzed_body;

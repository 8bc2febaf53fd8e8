//! The routes under `/locks`.

mod acquire;
mod answer;
mod break_lock;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzed_body;
mod group;
mod hold;
mod inspect;
mod lease_view;
mod list;
mod release;
mod renew;

pub(super) use acquire::{__path_acquire, AcquireBody, acquire};
pub(super) use break_lock::{__path_break_lock, break_lock};
pub(super) use group::{
    __path_acquire_group, __path_release_group, __path_renew_group, AcquireGroupBody,
    acquire_group, release_group, renew_group,
};
pub(super) use hold::{__path_hold, hold};
pub(super) use inspect::{__path_inspect, inspect};
pub(super) use lease_view::{CurrentHolder, ReleaseRequestBody, millis, timestamp};
pub(super) use list::{__path_list, list};
pub(super) use release::{__path_release, __path_release_by_post, release, release_by_post};
pub(super) use renew::{__path_renew, RenewBody, renew};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use fuzzed_body::fuzzed_body;

//! The routes under `/locks`.

mod acquire;
mod answer;
mod break_lock;
mod declared;
#[cfg(any(test, feature = "fuzzing"))]
mod fuzzed_body;
mod group;
mod history;
mod hold;
mod lease;
mod lease_view;
mod look;
mod order;

pub(super) use acquire::{__path_acquire, AcquireBody, acquire};
pub(super) use break_lock::{__path_break_lock, break_lock};
pub(super) use group::{
    __path_acquire_group, __path_release_group, __path_renew_group, AcquireGroupBody, LockOfGroup,
    acquire_group, release_group, renew_group,
};
pub(super) use history::{__path_history, history};
pub(super) use hold::{__path_hold, hold};
pub(super) use lease::{
    __path_release, __path_release_by_post, __path_renew, RenewBody, release, release_by_post,
    renew,
};
pub(super) use lease_view::{CurrentHolder, millis, release_request_body, rests};
pub(super) use look::{__path_check, __path_inspect, __path_list, check, inspect, list};
pub(super) use order::{__path_set_order, set_order};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use fuzzed_body::fuzzed_body;

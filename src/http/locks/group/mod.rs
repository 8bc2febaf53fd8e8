//! `POST`, `PUT` and `DELETE /locks`: several locks as one.

mod acquire;
mod names;
mod release;
mod renew;

pub(in crate::http) use acquire::{__path_acquire_group, AcquireGroupBody, acquire_group};
pub(in crate::http) use release::{__path_release_group, release_group};
pub(in crate::http) use renew::{__path_renew_group, renew_group};

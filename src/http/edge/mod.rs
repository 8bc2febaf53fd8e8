//! What surrounds every request: its id, its limits, its line in the log, its problem.

mod access_log;
mod caller_name;
mod layer;
mod request_id;

pub(super) use caller_name::CallerName;
pub(super) use layer::EdgeLayer;
pub(super) use request_id::{RequestId, RequestIds, X_REQUEST_ID};

//! What surrounds every request: who may ask and for which host, its limits, its id, its line in the
//! log, its problem.

mod access_log;
mod audited_request;
mod context;
mod hosts;
mod operation;
mod origins;
mod permit;
mod rate_limit;
mod request_id;
mod routes;
mod security_headers;
mod service;
mod traced;

pub(super) use context::RequestContext;
pub(super) use operation::{Class, Operation, Schemas, row};
pub(super) use origins::RequestSource;
pub(super) use request_id::RequestId;
pub use service::{EdgeFuture, EdgeService};

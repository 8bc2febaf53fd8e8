//! The edge around every request: it checks host, origin and limits, gives the request an id, logs it, and
//! renders problems.
//!
//! A request takes a permit of its class. Renewals have a reserve of permits, which they take once their
//! caller is admitted; releases, which need no API key, have another reserve. A request gives its permit up
//! while it waits for a lock. A request counts against the rate of its API key later, when its caller is
//! admitted.

mod context;
mod headers;
mod origins;
mod permit;
mod record;
mod routes;
mod service;

pub(super) use context::RequestContext;
pub(super) use headers::RequestId;
pub(super) use origins::RequestSource;
pub(super) use permit::RefusalCount;
pub(super) use routes::{Class, Operation, Schemas, row};
pub use service::{EdgeFuture, EdgeService};

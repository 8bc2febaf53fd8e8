//! The HTTP edge: the one place that knows of requests, statuses and JSON.

mod backup;
mod base_path;
mod dashboard;
mod docs;
mod edge;
mod events;
mod extract;
mod file;
mod health;
mod index;
mod json_response;
mod locks;
mod metrics;
mod openapi;
mod problem;
mod routes;
mod serve;
mod session;
mod state;
mod stats;
mod tls;

pub use edge::{EdgeFuture, EdgeService};
pub use problem::{ProblemCode, problems_markdown};
pub use routes::{metrics_service, openapi, service};
pub use serve::{InFlightRequests, serve};
pub use state::AppState;
pub use tls::{Certificates, CertificatesWatch};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use locks::fuzzed_body;

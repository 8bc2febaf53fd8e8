//! The HTTP edge: the only module that knows of requests, statuses and JSON.

mod edge;
mod event_stream;
mod events;
mod extract;
mod file;
mod json_response;
mod locks;
mod openapi;
mod ops;
mod pages;
mod problem;
mod routes;
mod serve;
mod session;
mod session_token;
mod sign_in;
mod state;
mod tls;

pub use edge::{EdgeFuture, EdgeService};
pub use problem::{ProblemCode, problems_markdown};
pub use routes::{metrics_service, openapi, service};
pub use serve::{InFlightRequests, serve};
pub use state::AppState;
pub use tls::{Certificates, CertificatesWatch};

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use locks::fuzzed_body;

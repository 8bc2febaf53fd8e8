//! One line in the log for each request.

use std::sync::Arc;

use http::{Method, StatusCode};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::{http::problem::Problem, telemetry::metrics::Metrics};

use super::{caller_name::CallerName, request_id::RequestId, traced::Traced};

/// A request that is being answered. Whatever ends it writes its line: a dropped one is a caller
/// that hung up, or whose connection was closed because it does not read.
///
/// The line has the route and not the path, and no header: neither a token nor a key can be in it.
/// `key` is the name of the key.
pub(super) struct AccessLog {
    method: Method,
    route: Arc<str>,
    request_id: RequestId,
    caller: CallerName,
    traced: Traced,
    metrics: Metrics,
    began: Instant,
    open: bool,
}

// === impl AccessLog ===

impl AccessLog {
    pub(super) fn begin(
        method: Method,
        route: Arc<str>,
        request_id: RequestId,
        traced: Traced,
        metrics: Metrics,
    ) -> Self {
        Self {
            metrics,
            method,
            route,
            request_id,
            caller: CallerName::default(),
            traced,
            began: Instant::now(),
            open: true,
        }
    }

    pub(super) fn request_id(&self) -> &RequestId {
        &self.request_id
    }

    /// The trace that the request is part of.
    pub(super) fn traced(&self) -> &Traced {
        &self.traced
    }

    pub(super) fn method(&self) -> &Method {
        &self.method
    }

    pub(super) fn route(&self) -> &str {
        &self.route
    }

    /// To be told who calls.
    pub(super) fn caller(&self) -> &CallerName {
        &self.caller
    }

    pub(super) fn end(mut self, status: StatusCode, problem: Option<&Problem>) {
        self.open = false;
        self.traced.end(status, problem, &self.caller);
        self.count(Some(status));
        let trace_id = self.traced.trace_id();
        let status = status.as_u16();
        let method = self.method.as_str();
        let (route, id, us) = (&*self.route, self.request_id.as_str(), self.elapsed_us());
        let key = self.caller.get();
        match problem {
            None => info!(method, route, status, us, id, key, trace_id, "request"),
            Some(problem) => {
                let code = problem.code.as_str();
                let cause = problem.cause.as_deref();
                if status >= 500 {
                    warn!(
                        method,
                        route, status, us, id, key, trace_id, code, cause, "request"
                    );
                } else {
                    info!(
                        method,
                        route, status, us, id, key, trace_id, code, cause, "request"
                    );
                }
            }
        }
    }

    fn count(&self, status: Option<StatusCode>) {
        let took = self.began.elapsed();
        self.metrics
            .request(&self.method, &self.route, status, took);
    }

    fn elapsed_us(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX)
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        if self.open {
            self.count(None);
            let method = self.method.as_str();
            let (route, id, us) = (&*self.route, self.request_id.as_str(), self.elapsed_us());
            let key = self.caller.get();
            let trace_id = self.traced.trace_id();
            info!(
                method,
                route,
                us,
                id,
                key,
                trace_id,
                "the caller hung up, or does not read, before the answer"
            );
        }
    }
}

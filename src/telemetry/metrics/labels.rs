//! The labels of metrics: closed sets of words, so that the number of series is bounded.

use std::sync::Arc;

use http::Method;
use prometheus_client::encoding::EncodeLabelSet;

/// Labels that are known when the program is written.
pub(super) type Labels<const N: usize> = [(&'static str, &'static str); N];

/// The labels of a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RequestLabels {
    pub(super) method: &'static str,
    pub(super) route: Arc<str>,
    pub(super) status: Status,
}

/// The labels of what a route takes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct RouteLabels {
    pub(super) route: Arc<str>,
}

/// The labels of a node of the store.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct NodeLabels {
    pub(super) node: String,
}

/// The status of an answer, if there was one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Status(pub(super) Option<u16>);

impl prometheus_client::encoding::EncodeLabelValue for Status {
    fn encode(
        &self,
        encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>,
    ) -> Result<(), std::fmt::Error> {
        match self.0 {
            Some(status) => status.encode(encoder),
            None => "hung-up".encode(encoder),
        }
    }
}

/// A method as a label: callers may invent others.
pub(super) fn method(method: &Method) -> &'static str {
    const KNOWN: [Method; 7] = [
        Method::GET,
        Method::HEAD,
        Method::POST,
        Method::PUT,
        Method::DELETE,
        Method::OPTIONS,
        Method::PATCH,
    ];
    const NAMES: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];
    let known = KNOWN.iter().position(|known| known == method);
    known.map_or("other", |at| NAMES[at])
}

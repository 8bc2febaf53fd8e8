//! The labels of metrics: closed sets of words, so that the number of series is bounded.

use std::{fmt, sync::Arc};

use http::Method;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

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

/// The status of an answer, if there was one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Status(pub(super) Option<u16>);

impl EncodeLabelValue for Status {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> Result<(), fmt::Error> {
        match self.0 {
            Some(status) => status.encode(encoder),
            None => "hung-up".encode(encoder),
        }
    }
}

/// A method as a label: callers may invent others.
pub(super) fn method(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"];
    let known = KNOWN.into_iter().find(|known| *known == method.as_str());
    known.unwrap_or("other")
}

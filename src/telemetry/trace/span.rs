//! One thing that took time.

use std::{
    borrow::Cow,
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::time::Instant;

use super::tracer::TracerShared;

/// Something under way. It ends when it is dropped, however that comes about.
pub struct Span {
    tracer: Arc<TracerShared>,
    began: Instant,
    /// None once it has been handed on. In a box: most requests are not traced, and have room for it.
    record: Option<Box<Record>>,
}

/// What is told of it.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) trace_id: u128,
    pub(super) span_id: u64,
    pub(super) parent: Option<u64>,
    /// Whether the parent is in another process.
    pub(super) is_parent_remote: bool,
    pub(super) state: Option<Arc<str>>,
    pub(super) name: Cow<'static, str>,
    pub(super) kind: SpanKind,
    pub(super) start: SystemTime,
    pub(super) took: Duration,
    pub(super) attributes: Vec<(&'static str, Value)>,
    pub(super) has_failed: bool,
}

/// On which side of what it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Within the process.
    Internal,
    /// It answers a request.
    Server,
    /// It asks somebody else.
    Client,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(Cow<'static, str>),
    /// A whole number.
    Number(i64),
    /// Yes or no.
    Flag(bool),
}

/// What a span is to those within it.
#[derive(Clone)]
struct Parent {
    tracer: Arc<TracerShared>,
    trace_id: u128,
    span_id: u64,
    state: Option<Arc<str>>,
}

tokio::task_local! {
    /// The span that a task is in. Not an argument: it would go through every operation and every
    /// method of a store, none of which cares.
    static CURRENT: Option<Parent>;
}

/// Does work within a span: what begins in it are its children.
pub fn within<F: Future>(span: Option<&Span>, work: F) -> impl Future<Output = F::Output> + use<F> {
    CURRENT.scope(span.map(Span::as_parent), work)
}

/// Begins a part of the span that the task is in; `None` if it is in none, which costs nothing.
pub fn child(name: &'static str, kind: SpanKind) -> Option<Span> {
    let parent = CURRENT.try_with(Clone::clone).ok().flatten()?;
    let record = Record {
        trace_id: parent.trace_id,
        span_id: new_id(),
        parent: Some(parent.span_id),
        is_parent_remote: false,
        state: parent.state,
        name: Cow::Borrowed(name),
        kind,
        start: parent.tracer.now(),
        took: Duration::ZERO,
        attributes: Vec::new(),
        has_failed: false,
    };
    Some(Span::begin(parent.tracer, record))
}

/// The id of a span. A machine without random bytes traces badly, and goes on.
pub(super) fn new_id() -> u64 {
    getrandom::u64().unwrap_or_default().max(1)
}

// === impl Span ===

impl Span {
    pub(super) fn begin(tracer: Arc<TracerShared>, record: Record) -> Self {
        Self {
            tracer,
            began: Instant::now(),
            record: Some(Box::new(record)),
        }
    }

    /// The trace that it is part of.
    pub fn trace_id(&self) -> u128 {
        self.record().trace_id
    }

    /// Whether the names of locks may be told.
    pub fn records_lock_names(&self) -> bool {
        self.tracer.records_lock_names
    }

    /// Says something of it.
    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        if let Some(record) = &mut self.record {
            record.attributes.push((name, value.into()));
        }
    }

    /// Says that it failed, and with which kind of error.
    pub fn fail(&mut self, error: &'static str) {
        self.set("error.type", error);
        if let Some(record) = &mut self.record {
            record.has_failed = true;
        }
    }

    fn as_parent(&self) -> Parent {
        let record = self.record();
        Parent {
            tracer: Arc::clone(&self.tracer),
            trace_id: record.trace_id,
            span_id: record.span_id,
            state: record.state.clone(),
        }
    }

    fn record(&self) -> &Record {
        let record = self.record.as_deref();
        record.expect("only dropping a span takes its record")
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if let Some(mut record) = self.record.take() {
            record.took = self.began.elapsed();
            self.tracer.submit(*record);
        }
    }
}

// === impl Value ===

impl From<&'static str> for Value {
    fn from(text: &'static str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<u16> for Value {
    fn from(number: u16) -> Self {
        Self::Number(number.into())
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Flag(flag)
    }
}

//! Starts traces and spans, and queues ended spans for the collector.

use std::{
    borrow::Cow,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};
use tracing::info;

use crate::{clock::Clock, config::TraceConfig, lifecycle::Lifecycle, trace_context::TraceContext};

use super::{
    TraceError,
    encode::{Record, SpanKind, Value},
    exporter::Exporter,
};

/// The maximum number of spans in the queue to the collector: at a kilobyte each, 4 MiB of memory. Further spans are
/// lost, and counted.
const MOST_WAITING: usize = 4_096;

/// The tracer of a gateway: starts spans, unless tracing is off. Cheap to clone.
#[derive(Clone, Default)]
pub struct Tracer(Option<Tracing>);

#[derive(Clone)]
struct Tracing {
    shared: Arc<TracerShared>,
    exporter: Arc<Exporter>,
}

/// The state of the tracer that its spans share.
pub(super) struct TracerShared {
    clock: Arc<dyn Clock>,
    pub(super) records_lock_names: bool,
    sample_per_mille: u64,
    waiting: mpsc::Sender<Record>,
    lost: Arc<AtomicU64>,
}

// === impl Tracer ===

impl Tracer {
    /// A tracer that is off and starts no spans.
    pub fn none() -> Self {
        Self(None)
    }

    /// Starts a tracer that sends spans, if a collector is configured. Does not check whether the collector is
    /// reachable.
    pub fn start(
        config: &TraceConfig,
        clock: Arc<dyn Clock>,
        lifecycle: &Lifecycle,
    ) -> Result<Self, TraceError> {
        if !config.is_sent() {
            return Ok(Self::none());
        }
        let (waiting, spans) = mpsc::channel(MOST_WAITING);
        let lost = Arc::new(AtomicU64::new(0));
        let exporter = Arc::new(Exporter::new(config, spans, Arc::clone(&lost))?);
        let (sends, stopped) = (Arc::clone(&exporter), lifecycle.stopped());
        lifecycle.spawn_background(async move {
            tokio::select! {
                () = sends.send_all() => {}
                () = stopped => {}
            }
        });
        info!(endpoint = config.endpoint, "traces are sent");
        let shared = Arc::new(TracerShared {
            clock,
            records_lock_names: config.lock_names,
            sample_per_mille: config.sample_per_mille,
            waiting,
            lost,
        });
        Ok(Self(Some(Tracing { shared, exporter })))
    }

    /// Whether tracing is on.
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Starts the server span of a request. `None` if the trace is not sampled. `context` returns the trace context of
    /// the request, and is called only if tracing is on.
    pub fn server_span(
        &self,
        name: impl FnOnce() -> String,
        context: impl FnOnce() -> Option<TraceContext>,
    ) -> Option<Span> {
        let shared = &self.0.as_ref()?.shared;
        let (trace_id, parent, state) = match context() {
            // The caller's trace is not sampled, so this part of it is not sampled either.
            Some(context) if !context.parent.is_sampled => return None,
            Some(context) => (
                context.parent.trace_id,
                Some(context.parent.span_id),
                context.state,
            ),
            None => (shared.new_trace()?, None, None),
        };
        let record = Record {
            parent,
            is_parent_remote: parent.is_some(),
            state,
            ..Record::new(trace_id, Cow::Owned(name()), SpanKind::Server, shared.now())
        };
        Some(Span::begin(Arc::clone(shared), record))
    }

    /// Sends the spans that are left, until `until` at the latest. Call this after the background tasks have ended.
    pub async fn flush(&self, until: Instant) {
        if let Some(tracing) = &self.0 {
            // After a time-out the remaining spans are lost: the gateway must not end late because of traces.
            drop(timeout_at(until, tracing.exporter.send_rest()).await);
        }
    }
}

impl fmt::Debug for Tracer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Tracer").field(&self.is_on()).finish()
    }
}

// === impl TracerShared ===

impl TracerShared {
    pub(super) fn now(&self) -> SystemTime {
        self.clock.wall()
    }

    /// The id of a new trace; `None` if the trace is not sampled.
    fn new_trace(&self) -> Option<u128> {
        let high = getrandom::u64().unwrap_or_default();
        let low = getrandom::u64().unwrap_or_default().max(1);
        // The id itself decides, so that other programs that sample by the id choose the same traces.
        let chance = u64::MAX / 1_000;
        let is_sampled = low / chance < self.sample_per_mille || self.sample_per_mille == 1_000;
        is_sampled.then_some(u128::from(high) << 64 | u128::from(low))
    }

    /// Puts an ended span into the queue to the collector. The span is lost if the queue is full.
    pub(super) fn submit(&self, record: Record) {
        if self.waiting.try_send(record).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

// === Span ===
//
// A span: an operation with its duration.

/// A span: an operation under way. The span ends when it is dropped.
pub struct Span {
    tracer: Arc<TracerShared>,
    began: Instant,
    /// The data of the span; `None` once the data is queued. Boxed, because most requests are not traced and should
    /// need little memory for a span.
    record: Option<Box<Record>>,
}

/// The data of a span that its child spans need, such as its id.
#[derive(Clone)]
struct Parent {
    tracer: Arc<TracerShared>,
    trace_id: u128,
    span_id: u64,
    state: Option<Arc<str>>,
}

tokio::task_local! {
    /// The current span of the task. A task-local value, because as an argument every operation and every method of a
    /// store would have to pass it on.
    static CURRENT: Option<Parent>;
}

/// Runs `work` with `span` as the current span: spans that `work` starts are children of `span`.
pub fn within<F: Future>(span: Option<&Span>, work: F) -> impl Future<Output = F::Output> + use<F> {
    CURRENT.scope(span.map(Span::as_parent), work)
}

/// Starts a child of the current span. Without a current span, returns `None`, at almost no cost.
pub fn child(name: &'static str, kind: SpanKind) -> Option<Span> {
    let parent = CURRENT.try_with(Clone::clone).ok().flatten()?;
    let (name, start) = (Cow::Borrowed(name), parent.tracer.now());
    let record = Record {
        parent: Some(parent.span_id),
        state: parent.state,
        ..Record::new(parent.trace_id, name, kind, start)
    };
    Some(Span::begin(parent.tracer, record))
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

    /// The id of the trace of this span.
    pub fn trace_id(&self) -> u128 {
        self.record().trace_id
    }

    /// Whether attributes of the span may contain lock names.
    pub fn records_lock_names(&self) -> bool {
        self.tracer.records_lock_names
    }

    /// Sets an attribute of the span.
    pub fn set(&mut self, name: &'static str, value: impl Into<Value>) {
        if let Some(record) = &mut self.record {
            record.attributes.push((name, value.into()));
        }
    }

    /// Marks the span as failed, and records the kind of the error.
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

#[cfg(test)]
mod tests {
    use crate::{clock::SystemClock, trace_context::TraceParent};

    use super::*;

    fn tracer(sample_per_mille: u64) -> Tracer {
        let config = TraceConfig {
            endpoint: "http://127.0.0.1:1".to_owned(),
            sample_per_mille,
            ..TraceConfig::default()
        };
        Tracer::start(&config, Arc::new(SystemClock), &Lifecycle::new()).unwrap()
    }

    fn span(tracer: &Tracer, parent: Option<&str>) -> Option<Span> {
        let context = || {
            let parent = TraceParent::parse(parent?)?;
            Some(TraceContext {
                parent,
                state: None,
            })
        };
        tracer.server_span(|| "a span".to_owned(), context)
    }

    /// The test never awaits, so no span leaves the queue during the test.
    #[tokio::test]
    async fn no_more_spans_wait_than_may_and_the_others_are_counted() {
        let tracer = tracer(1_000);
        for _ in 0..MOST_WAITING + 10 {
            drop(span(&tracer, None).unwrap());
        }
        let shared = &tracer.0.as_ref().unwrap().shared;
        assert_eq!(shared.lost.load(Ordering::Relaxed), 10);
    }

    #[tokio::test]
    async fn as_many_are_traced_as_are_wanted_and_a_caller_decides_for_its_own() {
        let sampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let untraced = sampled.replace("-01", "-00");
        for (per_mille, least, most) in [(0, 0, 0), (100, 50, 150), (1_000, 1_000, 1_000)] {
            let tracer = tracer(per_mille);
            let count = (0..1_000).filter(|_| span(&tracer, None).is_some()).count();
            assert!((least..=most).contains(&count), "{per_mille}: {count}");
            assert!(span(&tracer, Some(sampled)).is_some());
            assert!(span(&tracer, Some(&untraced)).is_none());
        }
    }

    #[test]
    fn without_a_collector_nothing_is_asked_and_nothing_begins() {
        let context = || panic!("nobody wants to know");
        let span = Tracer::none().server_span(|| panic!("nobody reads it"), context);
        assert!(span.is_none());
    }
}

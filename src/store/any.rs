//! One of the stores, and how long it takes to answer.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::TryFutureExt;
use tokio::time::Instant;

use crate::{
    lock::{BreakTarget, KeeperId, LockName, ReleaseRequest, TokenHash},
    telemetry::{
        metrics::{Metrics, StoreFigures},
        trace::{self, Span, SpanKind},
    },
};

use super::{
    Store, StoreError,
    contract::{
        Acquisition, Attempt, BreakFeed, Breaking, Check, Confirmation, GiveBack, Inspection,
        Leaving, ListQuery, Page, Relay, Release, Renewal, RenewalTtl, Renewer, Requesting,
    },
    embedded::{EmbeddedStore, StoreBackup},
    parking::Parking,
    partition::Partition,
    redis::{RedisStore, RedlockStore},
};

/// A handle to one of the stores. Cheap to clone.
///
/// Its commands call the store that it is by a match, so they need no boxes. If it is
/// [measured](AnyStore::measured), each is timed, and has a span if the request is traced.
#[derive(Clone)]
pub struct AnyStore {
    kind: StoreKind,
    metrics: Option<Metrics>,
}

#[derive(Clone)]
enum StoreKind {
    Embedded(Arc<EmbeddedStore>),
    Redis(Arc<RedisStore>),
    Redlock(Arc<RedlockStore>),
    /// A store of somebody else, for example the one that a test has written.
    Other(Arc<dyn DynStore>),
}

/// A command that is under way.
struct Measurement<'a> {
    metrics: &'a Metrics,
    operation: &'static str,
    began: Instant,
    span: Option<Span>,
}

/// Boxes the futures of a store.
struct BoxedStore<S>(Arc<S>);

/// The commands of [`Store`] with boxed futures, for a store that is not known here.
#[async_trait]
trait DynStore: Send + Sync {
    async fn acquire(&self, attempt: &Attempt) -> Result<Acquisition, StoreError>;

    async fn confirm(&self, name: &LockName, token: &TokenHash)
    -> Result<Confirmation, StoreError>;

    async fn leave(
        &self,
        name: &LockName,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError>;

    async fn renew_as(
        &self,
        renewer: Renewer,
        name: &LockName,
        token: &TokenHash,
        ttl: RenewalTtl,
    ) -> Result<Renewal, StoreError>;

    async fn release_as(
        &self,
        keeper: Option<KeeperId>,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Release, StoreError>;

    async fn give_back(&self, name: &LockName, token: &TokenHash) -> Result<GiveBack, StoreError>;

    async fn give_back_unanswered(
        &self,
        name: &LockName,
        token: &TokenHash,
        keeper: KeeperId,
    ) -> Result<GiveBack, StoreError>;

    async fn inspect(&self, name: &LockName) -> Result<Inspection, StoreError>;

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError>;

    async fn break_lock(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
    ) -> Result<Breaking, StoreError>;

    async fn request_release(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
        request: &ReleaseRequest,
    ) -> Result<Requesting, StoreError>;

    fn shares(&self) -> bool;

    fn breaks(&self) -> &BreakFeed;

    fn parking(&self) -> &Parking;

    fn partition(&self, name: &LockName) -> Partition;

    fn relay(&self) -> Option<&dyn Relay>;

    async fn check(&self) -> Vec<Check>;

    fn figures(&self) -> StoreFigures;

    async fn close(&self);

    fn describe(&self) -> String;
}

/// Does the same with the store, whichever it is.
macro_rules! with_store {
    ($any:expr, $store:ident => $ask:expr) => {
        match &$any.kind {
            StoreKind::Embedded($store) => $ask,
            StoreKind::Redis($store) => $ask,
            StoreKind::Redlock($store) => $ask,
            StoreKind::Other($store) => $ask,
        }
    };
}

/// Asks the store, whichever it is, and measures how long it takes to answer. What is dropped half-way is
/// not measured. (No function: it would keep the store's future twice.)
macro_rules! measured {
    ($any:expr, $operation:literal, $store:ident => $ask:expr) => {{
        let measurement = $any.measure($operation);
        let answer = with_store!($any, $store => $ask.await);
        if let Some(measurement) = measurement {
            measurement.end(&answer);
        }
        answer
    }};
}

// === impl AnyStore ===

impl AnyStore {
    /// A store that is none of ours.
    pub fn other(store: Arc<impl Store>) -> Self {
        Self::of(StoreKind::Other(Arc::new(BoxedStore(store))))
    }

    fn of(kind: StoreKind) -> Self {
        let metrics = None;
        Self { kind, metrics }
    }

    /// The same store, whose commands are measured from now on.
    #[must_use]
    pub fn measured(self, metrics: Metrics) -> Self {
        Self {
            metrics: Some(metrics),
            ..self
        }
    }

    /// Everything that lives in the embedded store, as a file; none of another one.
    pub async fn backup(&self) -> Option<Result<StoreBackup, StoreError>> {
        match &self.kind {
            StoreKind::Embedded(store) => Some(store.backup().await),
            StoreKind::Redis(_) | StoreKind::Redlock(_) | StoreKind::Other(_) => None,
        }
    }

    fn measure(&self, operation: &'static str) -> Option<Measurement<'_>> {
        let metrics = self.metrics.as_ref()?;
        Some(Measurement {
            metrics,
            operation,
            span: self.span(operation),
            began: Instant::now(),
        })
    }

    fn span(&self, operation: &'static str) -> Option<Span> {
        let (name, kind) = match &self.kind {
            StoreKind::Embedded(_) => ("embedded", SpanKind::Internal),
            StoreKind::Redis(_) | StoreKind::Redlock(_) => ("redis", SpanKind::Client),
            StoreKind::Other(_) => ("other", SpanKind::Internal),
        };
        let mut span = trace::child(operation, kind)?;
        span.set("db.system.name", name);
        span.set("db.operation.name", operation);
        Some(span)
    }
}

impl Store for AnyStore {
    async fn acquire(&self, attempt: &Attempt) -> Result<Acquisition, StoreError> {
        measured!(self, "acquire", store => store.acquire(attempt))
    }

    async fn confirm(
        &self,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Confirmation, StoreError> {
        measured!(self, "confirm", store => store.confirm(name, token))
    }

    async fn leave(
        &self,
        name: &LockName,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError> {
        measured!(self, "leave", store => store.leave(name, token, keep_for))
    }

    async fn renew_as(
        &self,
        renewer: Renewer,
        name: &LockName,
        token: &TokenHash,
        ttl: RenewalTtl,
    ) -> Result<Renewal, StoreError> {
        measured!(self, "renew", store => store.renew_as(renewer, name, token, ttl))
    }

    async fn release_as(
        &self,
        keeper: Option<KeeperId>,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Release, StoreError> {
        measured!(self, "release", store => store.release_as(keeper, name, token))
    }

    async fn give_back(&self, name: &LockName, token: &TokenHash) -> Result<GiveBack, StoreError> {
        measured!(self, "give_back", store => store.give_back(name, token))
    }

    async fn give_back_unanswered(
        &self,
        name: &LockName,
        token: &TokenHash,
        keeper: KeeperId,
    ) -> Result<GiveBack, StoreError> {
        measured!(self, "give_back", store => store.give_back_unanswered(name, token, keeper))
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection, StoreError> {
        measured!(self, "inspect", store => store.inspect(name).map_err(StoreError::of_read))
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        measured!(self, "list", store => store.list(query).map_err(StoreError::of_read))
    }

    async fn break_lock(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
    ) -> Result<Breaking, StoreError> {
        measured!(self, "break", store => store.break_lock(name, target))
    }

    async fn request_release(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
        request: &ReleaseRequest,
    ) -> Result<Requesting, StoreError> {
        measured!(self, "request_release", store => store.request_release(name, target, request))
    }

    fn shares(&self) -> bool {
        with_store!(self, store => store.shares())
    }

    fn breaks(&self) -> &BreakFeed {
        with_store!(self, store => store.breaks())
    }

    fn parking(&self) -> &Parking {
        with_store!(self, store => store.parking())
    }

    fn partition(&self, name: &LockName) -> Partition {
        with_store!(self, store => store.partition(name))
    }

    fn relay(&self) -> Option<&dyn Relay> {
        with_store!(self, store => store.relay())
    }

    async fn check(&self) -> Vec<Check> {
        let _span = self.metrics.as_ref().and_then(|_| self.span("check"));
        with_store!(self, store => store.check().await)
    }

    fn figures(&self) -> StoreFigures {
        with_store!(self, store => store.figures())
    }

    async fn close(&self) {
        with_store!(self, store => store.close().await);
    }

    fn describe(&self) -> String {
        with_store!(self, store => store.describe())
    }
}

impl From<Arc<EmbeddedStore>> for AnyStore {
    fn from(store: Arc<EmbeddedStore>) -> Self {
        Self::of(StoreKind::Embedded(store))
    }
}

impl From<Arc<RedisStore>> for AnyStore {
    fn from(store: Arc<RedisStore>) -> Self {
        Self::of(StoreKind::Redis(store))
    }
}

impl From<Arc<RedlockStore>> for AnyStore {
    fn from(store: Arc<RedlockStore>) -> Self {
        Self::of(StoreKind::Redlock(store))
    }
}

impl fmt::Debug for AnyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyStore").field(&self.describe()).finish()
    }
}

// === impl Measurement ===

impl Measurement<'_> {
    fn end<T>(self, answer: &Result<T, StoreError>) {
        let Self {
            metrics,
            operation,
            began,
            span,
        } = self;
        let error = answer.as_ref().err();
        metrics.store_asked(operation, began.elapsed(), error.map(StoreError::label));
        if let (Some(mut span), Some(error)) = (span, error) {
            // The kind alone: the rest may name keys.
            span.fail(match error {
                StoreError::Unavailable(_) => "unavailable",
                StoreError::Indeterminate(_) => "indeterminate",
                StoreError::ForeignData { .. } => "foreign-data",
                StoreError::FenceExhausted => "fence-exhausted",
            });
        }
    }
}

// === impl BoxedStore ===

#[async_trait]
impl<S: Store> DynStore for BoxedStore<S> {
    async fn acquire(&self, attempt: &Attempt) -> Result<Acquisition, StoreError> {
        self.0.acquire(attempt).await
    }

    async fn confirm(
        &self,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Confirmation, StoreError> {
        self.0.confirm(name, token).await
    }

    async fn leave(
        &self,
        name: &LockName,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError> {
        self.0.leave(name, token, keep_for).await
    }

    async fn renew_as(
        &self,
        renewer: Renewer,
        name: &LockName,
        token: &TokenHash,
        ttl: RenewalTtl,
    ) -> Result<Renewal, StoreError> {
        self.0.renew_as(renewer, name, token, ttl).await
    }

    async fn release_as(
        &self,
        keeper: Option<KeeperId>,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Release, StoreError> {
        self.0.release_as(keeper, name, token).await
    }

    async fn give_back(&self, name: &LockName, token: &TokenHash) -> Result<GiveBack, StoreError> {
        self.0.give_back(name, token).await
    }

    async fn give_back_unanswered(
        &self,
        name: &LockName,
        token: &TokenHash,
        keeper: KeeperId,
    ) -> Result<GiveBack, StoreError> {
        self.0.give_back_unanswered(name, token, keeper).await
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection, StoreError> {
        self.0.inspect(name).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.0.list(query).await
    }

    async fn break_lock(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
    ) -> Result<Breaking, StoreError> {
        self.0.break_lock(name, target).await
    }

    async fn request_release(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
        request: &ReleaseRequest,
    ) -> Result<Requesting, StoreError> {
        self.0.request_release(name, target, request).await
    }

    fn shares(&self) -> bool {
        self.0.shares()
    }

    fn breaks(&self) -> &BreakFeed {
        self.0.breaks()
    }

    fn parking(&self) -> &Parking {
        self.0.parking()
    }

    fn partition(&self, name: &LockName) -> Partition {
        self.0.partition(name)
    }

    fn relay(&self) -> Option<&dyn Relay> {
        self.0.relay()
    }

    async fn check(&self) -> Vec<Check> {
        self.0.check().await
    }

    fn figures(&self) -> StoreFigures {
        self.0.figures()
    }

    async fn close(&self) {
        self.0.close().await;
    }

    fn describe(&self) -> String {
        self.0.describe()
    }
}

//! A handle to any store: opens the configured store, and measures how long its commands take.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::TryFutureExt;
use tokio::{task::spawn_blocking, time::Instant};

use crate::{
    clock::Clock,
    config::{Config, ServersKind, StoreUrl},
    lifecycle::Lifecycle,
    lock::{BreakTarget, HeldLease, KeeperId, LockName, ReleaseRequest, TokenHash},
    telemetry::{
        metrics::{Metrics, StoreFigures},
        trace::{self, Span, SpanKind},
    },
};

use super::{
    Store, StoreError,
    contract::{
        Acquisition, Attempt, BreakFeed, Breaking, Check, Confirmation, FenceCheck, FenceQuery,
        GiveBack, Inspection, Leaving, ListQuery, Page, Relay, Release, Releaser, Renewal,
        RenewalTtl, Renewer, Requesting, StoreFeature,
    },
    embedded::{self, EmbeddedStore, StoreBackup},
    history::{EndedLease, HistoryBatch, StoredHistory},
    parking::Parking,
    partition::Partition,
    redis::{CredentialsError, RedisStore, RedlockStore, check_credentials},
};

/// A handle to one of the stores. Cheap to clone.
///
/// A match selects the store, so the futures of its commands need no boxes. In a [measured](AnyStore::measured)
/// store each command is timed, and has a span if the request is traced.
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
    /// A store of another type, for example one that a test implements.
    Other(Arc<dyn DynStore>),
}

/// Start time and trace span of a store command that is in progress.
struct Measurement<'a> {
    metrics: &'a Metrics,
    operation: &'static str,
    began: Instant,
    span: Option<Span>,
}

/// Adapter that boxes the futures of a store, so that the store can be a trait object.
struct BoxedStore<S>(Arc<S>);

/// Evaluates the same expression for every kind of store in an `AnyStore`.
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

/// Sends a command to the store of any kind, and measures how long the store takes to answer. A command that is dropped
/// half-way is not measured. (This is a macro, because a function would hold the store's future twice.)
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
    /// Wraps a store of any type, for example one that a test implements.
    pub fn other(store: Arc<impl Store>) -> Self {
        Self::from_kind(StoreKind::Other(Arc::new(BoxedStore(store))))
    }

    fn from_kind(kind: StoreKind) -> Self {
        let metrics = None;
        Self { kind, metrics }
    }

    /// Returns the same store, whose commands are measured from now on.
    #[must_use]
    pub fn measured(self, metrics: Metrics) -> Self {
        Self {
            metrics: Some(metrics),
            ..self
        }
    }

    /// Makes a backup of the embedded store, as a file; `None` for any other store.
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

impl From<Arc<EmbeddedStore>> for AnyStore {
    fn from(store: Arc<EmbeddedStore>) -> Self {
        Self::from_kind(StoreKind::Embedded(store))
    }
}

impl From<Arc<RedisStore>> for AnyStore {
    fn from(store: Arc<RedisStore>) -> Self {
        Self::from_kind(StoreKind::Redis(store))
    }
}

impl From<Arc<RedlockStore>> for AnyStore {
    fn from(store: Arc<RedlockStore>) -> Self {
        Self::from_kind(StoreKind::Redlock(store))
    }
}

impl fmt::Debug for AnyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyStore").field(&self.describe()).finish()
    }
}

// === Opening ===

/// Why a store could not be opened. An unreachable server is not an error: the store opens and recovers later.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The embedded store could not be opened.
    #[error(transparent)]
    Embedded(#[from] embedded::OpenError),
    /// The password, the TLS files or the host name for Redis cannot be used.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
}

/// Opens the store that the configuration names.
pub async fn open(
    config: &Config,
    clock: Arc<dyn Clock>,
    lifecycle: &Lifecycle,
) -> Result<AnyStore, OpenError> {
    // Opening Redis credentials or the embedded store reads files, which would block a thread that serves callers.
    let (url, redis) = (config.store.clone(), config.redis.clone());
    let checked = spawn_blocking(move || check_credentials(&url, &redis)).await;
    checked.expect("reading files does not panic")?;
    let redis = &config.redis;
    Ok(match &config.store {
        StoreUrl::Embedded(directory) => {
            let directory = directory.clone();
            let open = move || EmbeddedStore::open(&directory, clock);
            let store = spawn_blocking(open).await;
            Arc::new(store.expect("opening a store does not panic")?).into()
        }
        StoreUrl::Servers(url) if url.kind() == ServersKind::Quorum => {
            let store = RedlockStore::open(url, redis, &config.redlock, clock, lifecycle);
            Arc::new(store).into()
        }
        StoreUrl::Servers(url) => Arc::new(RedisStore::open(url, redis, clock, lifecycle)).into(),
    })
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
            // Only the kind of the error is traced: the error's text may name keys.
            span.fail(match error {
                StoreError::Unavailable(_) => "unavailable",
                StoreError::Indeterminate(_) => "indeterminate",
                StoreError::ForeignData { .. } => "foreign-data",
                StoreError::FenceExhausted => "fence-exhausted",
            });
        }
    }
}

// === impl Store ===

/// Implements the methods of [`Store`] for a store whose kind is known only at run time: for [`AnyStore`],
/// which measures the commands and reads under their operation names, and for a store of another type, with
/// boxed futures.
macro_rules! store_methods {
    (
        commands { $($command:ident($($arg:ident: $type:ty),*) -> $reply:ty, $operation:literal;)+ }
        reads { $($read:ident($read_arg:ident: $read_type:ty) -> $read_reply:ty, $read_operation:literal;)+ }
        facts { $($fact:ident($($fact_arg:ident: $fact_type:ty)?) -> $told:ty;)+ }
    ) => {
        #[async_trait]
        trait DynStore: Send + Sync {
            $(async fn $command(&self, $($arg: $type),*) -> Result<$reply, StoreError>;)+
            $(async fn $read(&self, $read_arg: $read_type) -> Result<$read_reply, StoreError>;)+
            $(fn $fact(&self, $($fact_arg: $fact_type)?) -> $told;)+
            async fn check(&self) -> Vec<Check>;
            async fn close(&self);
        }

        #[async_trait]
        impl<S: Store> DynStore for BoxedStore<S> {
            $(async fn $command(&self, $($arg: $type),*) -> Result<$reply, StoreError> {
                self.0.$command($($arg),*).await
            })+
            $(async fn $read(&self, $read_arg: $read_type) -> Result<$read_reply, StoreError> {
                self.0.$read($read_arg).await
            })+
            $(fn $fact(&self, $($fact_arg: $fact_type)?) -> $told {
                self.0.$fact($($fact_arg)?)
            })+
            async fn check(&self) -> Vec<Check> {
                self.0.check().await
            }
            async fn close(&self) {
                self.0.close().await;
            }
        }

        impl Store for AnyStore {
            $(async fn $command(&self, $($arg: $type),*) -> Result<$reply, StoreError> {
                measured!(self, $operation, store => store.$command($($arg),*))
            })+
            $(async fn $read(&self, $read_arg: $read_type) -> Result<$read_reply, StoreError> {
                measured!(self, $read_operation, store => store.$read($read_arg).map_err(StoreError::of_read))
            })+
            $(fn $fact(&self, $($fact_arg: $fact_type)?) -> $told {
                with_store!(self, store => store.$fact($($fact_arg)?))
            })+
            async fn check(&self) -> Vec<Check> {
                let _span = self.metrics.as_ref().and_then(|_| self.span("check"));
                with_store!(self, store => store.check().await)
            }
            async fn close(&self) {
                with_store!(self, store => store.close().await);
            }
        }
    };
}

store_methods! {
    commands {
        acquire(attempt: &Attempt) -> Acquisition, "acquire";
        confirm(name: &LockName, token: &TokenHash) -> Confirmation, "confirm";
        leave(name: &LockName, token: &TokenHash, keep_for: Option<Duration>) -> Leaving, "leave";
        renew_as(renewer: Renewer, name: &LockName, token: &TokenHash, ttl: RenewalTtl) -> Renewal, "renew";
        release_as(
            releaser: Releaser, name: &LockName, token: &TokenHash, granted_here: bool
        ) -> (Release, Option<EndedLease>), "release";
        give_back(name: &LockName, token: &TokenHash) -> GiveBack, "give_back";
        give_back_unanswered(name: &LockName, token: &TokenHash, keeper: KeeperId) -> GiveBack, "give_back";
        break_lock(name: &LockName, target: Option<BreakTarget>) -> Breaking, "break";
        request_release(
            name: &LockName, target: Option<BreakTarget>, request: &ReleaseRequest
        ) -> Requesting, "request_release";
        record_history(batches: &[HistoryBatch]) -> (), "record_history";
    }
    reads {
        inspect(name: &LockName) -> Inspection, "inspect";
        check_fence(query: &FenceQuery) -> FenceCheck, "check_fence";
        list(query: &ListQuery) -> Page, "list";
        history(name: &LockName) -> StoredHistory, "history";
    }
    facts {
        found() -> Vec<(LockName, TokenHash, HeldLease)>;
        supports(feature: StoreFeature) -> bool;
        breaks() -> &BreakFeed;
        parking() -> &Parking;
        partition(name: &LockName) -> Partition;
        relay() -> Option<&dyn Relay>;
        figures() -> StoreFigures;
        describe() -> String;
    }
}

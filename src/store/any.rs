//! A handle to any store: opens the configured store, and measures how long its commands take.

use std::{fmt, ops::Deref, sync::Arc, time::Duration};

use futures_util::TryFutureExt;
use tokio::{task::spawn_blocking, time::Instant};

use crate::{
    clock::Clock,
    config::{Config, ServersKind, StoreUrl},
    lifecycle::Lifecycle,
    lock::{BreakTarget, LockName, RecipientId, ReleaseRequest, TokenHash},
    telemetry::{
        metrics::Metrics,
        trace::{self, Span},
    },
};

use super::{
    Store, StoreError,
    contract::{
        Acquisition, Attempt, Breaking, Check, Confirmation, FenceCheck, FenceQuery, GiveBack,
        Inspection, Leaving, ListQuery, Page, Release, Releaser, Renewal, RenewalTtl, Renewer,
        Requesting,
    },
    embedded::{self, EmbeddedStore},
    history::{HistoryBatch, StoredHistory},
    redis::{CredentialsError, RedisStore, RedlockStore, check_credentials},
};

/// A handle to one of the stores. Cheap to clone.
///
/// In a [measured](AnyStore::measured) store each command is timed, and has a span if the request is traced.
#[derive(Clone)]
pub struct AnyStore {
    store: Arc<dyn Store>,
    metrics: Option<Metrics>,
}

// === impl AnyStore ===

impl AnyStore {
    /// Returns the same store, whose commands are measured from now on.
    #[must_use]
    pub fn measured(self, metrics: Metrics) -> Self {
        Self {
            metrics: Some(metrics),
            ..self
        }
    }

    /// Checks the store, in a span if the request is traced.
    pub async fn check(&self) -> Vec<Check> {
        let _span = self.metrics.as_ref().and_then(|_| self.span("check"));
        self.store.check().await
    }

    /// Measures how long the store takes to answer. A command that is dropped half-way is not measured.
    async fn answer<T>(
        &self,
        operation: &'static str,
        command: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let Some(metrics) = &self.metrics else {
            return command.await;
        };
        let (span, began) = (self.span(operation), Instant::now());
        let answer = command.await;
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
        answer
    }

    fn span(&self, operation: &'static str) -> Option<Span> {
        let (name, kind) = self.system();
        let mut span = trace::child(operation, kind)?;
        span.set("db.system.name", name);
        span.set("db.operation.name", operation);
        Some(span)
    }
}

impl<S: Store> From<Arc<S>> for AnyStore {
    fn from(store: Arc<S>) -> Self {
        let metrics = None;
        Self { store, metrics }
    }
}

/// Gives access to the methods of [`Store`] that send no command and are not measured, such as [`Store::parking`].
impl Deref for AnyStore {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl fmt::Debug for AnyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnyStore").field(&self.describe()).finish()
    }
}

/// Gives [`AnyStore`] the commands of [`Store`], each measured under a name. The error of a command that only reads is
/// converted. These methods are no implementation of the trait, which would allocate each future a second time.
macro_rules! measured {
    ($($method:ident($($arg:ident: $type:ty),*) -> $reply:ty, $operation:literal $(, $error:path)?;)+) => {
        impl AnyStore {
            $(#[doc = concat!("See [`Store::", stringify!($method), "`].")]
            pub async fn $method(&self, $($arg: $type),*) -> Result<$reply, StoreError> {
                let command = self.store.$method($($arg),*)$(.map_err($error))?;
                self.answer($operation, command).await
            })+
        }
    };
}

measured! {
    acquire(attempt: &Attempt) -> Acquisition, "acquire";
    confirm(name: &LockName, token: &TokenHash) -> Confirmation, "confirm";
    leave(name: &LockName, token: &TokenHash, keep_for: Option<Duration>) -> Leaving, "leave";
    renew_as(renewer: Renewer, name: &LockName, token: &TokenHash, ttl: RenewalTtl) -> Renewal, "renew";
    release_as(
        releaser: Releaser, name: &LockName, token: &TokenHash, granted_here: bool
    ) -> Release, "release";
    give_back(name: &LockName, token: &TokenHash, unanswered: Option<RecipientId>) -> GiveBack, "give_back";
    break_lock(name: &LockName, target: Option<BreakTarget>) -> Breaking, "break";
    request_release(
        name: &LockName, target: Option<BreakTarget>, request: &ReleaseRequest
    ) -> Requesting, "request_release";
    record_history(batches: &[HistoryBatch]) -> Vec<usize>, "record_history";
    inspect(name: &LockName) -> Inspection, "inspect", StoreError::of_read;
    check_fence(query: &FenceQuery) -> FenceCheck, "check_fence", StoreError::of_read;
    list(query: &ListQuery) -> Page, "list", StoreError::of_read;
    history(name: &LockName) -> StoredHistory, "history", StoreError::of_read;
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

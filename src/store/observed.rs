//! Measures how long a store takes, counts what it does not answer, and makes it a part of traces.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::Instant;

use crate::{
    lock::{KeeperId, LockName, Meant, TokenHash, Ttl},
    telemetry::{
        metrics::{Metrics, StoreFigures},
        trace::{self, Span, SpanKind},
    },
};

use super::{
    Store, StoreError,
    breaks::{Breaking, Breaks},
    contract::{
        Acquisition, Attempt, Check, Confirmation, GiveBack, Inspection, Leaving, Release, Renewal,
        Renewer,
    },
    page::{ListQuery, Page},
    parking::Parking,
    relay::Relay,
};

/// Which kind of store it is, as a trace names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TracedKind {
    /// Within the process.
    Embedded,
    /// Another process is asked.
    Redis,
}

/// The same store, whose commands are measured, with a span for each that a traced request asks for.
/// What is dropped half-way is not measured.
pub struct Observed {
    store: Arc<dyn Store>,
    kind: TracedKind,
    metrics: Metrics,
}

// === impl Observed ===

impl Observed {
    /// Observes a store.
    pub fn new(store: Arc<dyn Store>, kind: TracedKind, metrics: Metrics) -> Self {
        Self {
            store,
            kind,
            metrics,
        }
    }

    async fn observe<T>(
        &self,
        operation: &'static str,
        command: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let mut span = self.span(operation);
        let began = Instant::now();
        let outcome = command.await;
        let error = outcome.as_ref().err().map(StoreError::word);
        self.metrics.store_asked(operation, began.elapsed(), error);
        if let (Some(span), Err(error)) = (&mut span, &outcome) {
            // The kind alone: the rest may name keys.
            span.fail(match error {
                StoreError::Unavailable(_) => "unavailable",
                StoreError::Indeterminate(_) => "indeterminate",
                StoreError::ForeignData { .. } => "foreign-data",
                StoreError::FenceExhausted => "fence-exhausted",
            });
        }
        outcome
    }

    fn span(&self, operation: &'static str) -> Option<Span> {
        let (name, kind) = match self.kind {
            TracedKind::Embedded => ("redb", SpanKind::Internal),
            TracedKind::Redis => ("redis", SpanKind::Client),
        };
        let mut span = trace::child(operation, kind)?;
        span.set("db.system.name", name);
        span.set("db.operation.name", operation);
        Some(span)
    }
}

#[async_trait]
impl Store for Observed {
    async fn acquire(&self, attempt: &Attempt) -> Result<Acquisition, StoreError> {
        self.observe("acquire", self.store.acquire(attempt)).await
    }

    async fn confirm(
        &self,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Confirmation, StoreError> {
        self.observe("confirm", self.store.confirm(name, token))
            .await
    }

    async fn leave(
        &self,
        name: &LockName,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError> {
        self.observe("leave", self.store.leave(name, token, keep_for))
            .await
    }

    async fn renew_as(
        &self,
        renewer: Renewer,
        name: &LockName,
        token: &TokenHash,
        ttl: Option<Ttl>,
    ) -> Result<Renewal, StoreError> {
        self.observe("renew", self.store.renew_as(renewer, name, token, ttl))
            .await
    }

    async fn release_as(
        &self,
        keeper: Option<KeeperId>,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Release, StoreError> {
        self.observe("release", self.store.release_as(keeper, name, token))
            .await
    }

    async fn give_back(&self, name: &LockName, token: &TokenHash) -> Result<GiveBack, StoreError> {
        self.observe("give_back", self.store.give_back(name, token))
            .await
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection, StoreError> {
        self.observe("inspect", self.store.inspect(name)).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.observe("list", self.store.list(query)).await
    }

    async fn break_lock(
        &self,
        name: &LockName,
        meant: Option<Meant>,
    ) -> Result<Breaking, StoreError> {
        self.observe("break", self.store.break_lock(name, meant))
            .await
    }

    fn breaks(&self) -> &Breaks {
        self.store.breaks()
    }

    fn parking(&self) -> &Parking {
        self.store.parking()
    }

    fn relay(&self) -> Option<&dyn Relay> {
        self.store.relay()
    }

    async fn check(&self) -> Vec<Check> {
        let _span = self.span("check");
        self.store.check().await
    }

    fn figures(&self) -> StoreFigures {
        self.store.figures()
    }

    async fn close(&self) {
        self.store.close().await;
    }

    fn describe(&self) -> String {
        self.store.describe()
    }
}

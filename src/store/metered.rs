//! Measures how long a store takes, and counts what it does not answer.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use tokio::time::Instant;

use crate::{
    lock::{FencingToken, KeeperId, LockName, TokenHash, Ttl},
    telemetry::metrics::{Metrics, StoreFigures},
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

/// A store whose commands are measured. What is dropped half-way is not.
pub struct Metered {
    store: Arc<dyn Store>,
    metrics: Metrics,
}

// === impl Metered ===

impl Metered {
    /// Measures a store.
    pub fn new(store: Arc<dyn Store>, metrics: Metrics) -> Self {
        Self { store, metrics }
    }

    async fn measure<T>(
        &self,
        operation: &'static str,
        command: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        let outcome = command.await;
        let error = outcome.as_ref().err().map(StoreError::word);
        self.metrics.store_asked(operation, began.elapsed(), error);
        outcome
    }
}

#[async_trait]
impl Store for Metered {
    async fn acquire(&self, attempt: &Attempt) -> Result<Acquisition, StoreError> {
        self.measure("acquire", self.store.acquire(attempt)).await
    }

    async fn confirm(
        &self,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Confirmation, StoreError> {
        self.measure("confirm", self.store.confirm(name, token))
            .await
    }

    async fn leave(
        &self,
        name: &LockName,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError> {
        self.measure("leave", self.store.leave(name, token, keep_for))
            .await
    }

    async fn renew_as(
        &self,
        renewer: Renewer,
        name: &LockName,
        token: &TokenHash,
        ttl: Option<Ttl>,
    ) -> Result<Renewal, StoreError> {
        self.measure("renew", self.store.renew_as(renewer, name, token, ttl))
            .await
    }

    async fn release_as(
        &self,
        keeper: Option<KeeperId>,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Release, StoreError> {
        self.measure("release", self.store.release_as(keeper, name, token))
            .await
    }

    async fn give_back(&self, name: &LockName, token: &TokenHash) -> Result<GiveBack, StoreError> {
        self.measure("give_back", self.store.give_back(name, token))
            .await
    }

    async fn inspect(&self, name: &LockName) -> Result<Inspection, StoreError> {
        self.measure("inspect", self.store.inspect(name)).await
    }

    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError> {
        self.measure("list", self.store.list(query)).await
    }

    async fn break_lock(
        &self,
        name: &LockName,
        fence: Option<FencingToken>,
    ) -> Result<Breaking, StoreError> {
        self.measure("break", self.store.break_lock(name, fence))
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

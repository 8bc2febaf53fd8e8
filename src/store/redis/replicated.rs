//! Answers a grant when enough replicas have it, and takes it back if they do not in time.

use std::{sync::Arc, time::Duration};

use crate::{
    lock::TokenHash,
    store::{
        StoreError, Unavailability, Uncertainty,
        contract::{Acquisition, Attempt, Check, Health, Leaving},
    },
};

use super::{
    dispatch::Dispatch,
    gateway::Gateway,
    keys::Keys,
    replicas::{Line, Replicas},
    scripts::{Scripts, TakenBack},
};

/// What it takes to keep a grant back.
pub(super) struct Replicated {
    pub(super) replicas: Replicas,
    pub(super) dispatch: Arc<Dispatch>,
    pub(super) scripts: Arc<Scripts>,
    pub(super) gateway: Arc<Gateway>,
}

// === impl Replicated ===

impl Replicated {
    /// Before a grant is asked for: how it will be found out who has it.
    pub(super) async fn line(&self) -> Result<Option<Line>, Unavailability> {
        self.replicas.line(self.dispatch.topology.messenger()).await
    }

    /// The answer to an acquire, when enough replicas have what it tells of.
    pub(super) async fn acquisition(
        &self,
        line: Option<Line>,
        keys: &Keys,
        attempt: &Attempt,
        acquisition: Acquisition,
    ) -> Result<Acquisition, StoreError> {
        match &acquisition {
            Acquisition::Granted(_) => self.grant(line, keys, &attempt.token).await?,
            Acquisition::Replayed(..) | Acquisition::Collected(..) => self.lease(line).await?,
            Acquisition::Held(_)
            | Acquisition::Queued(_)
            | Acquisition::Superseded
            | Acquisition::QueueFull
            | Acquisition::IdempotencyMismatch
            | Acquisition::IdempotencyExpired => {}
        }
        Ok(acquisition)
    }

    /// Takes an attempt out of the queue. What it was granted in time after all it has when enough replicas
    /// have it.
    pub(super) async fn leave(
        &self,
        keys: &Keys,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError> {
        let line = self.line().await?;
        let (dispatch, gateway) = (&self.dispatch, &self.gateway);
        let leave = self.scripts.leave(dispatch, gateway, keys, token, keep_for);
        let leaving = leave.await?;
        if let Leaving::Granted(_) = leaving {
            self.grant(line, keys, token).await?;
        }
        Ok(leaving)
    }

    /// Comes back when enough replicas have a grant that nobody has heard of. Else it is taken back,
    /// so that nothing has happened.
    pub(super) async fn grant(
        &self,
        line: Option<Line>,
        keys: &Keys,
        token: &TokenHash,
    ) -> Result<(), StoreError> {
        let Some(confirmed) = self.lacking(line).await else {
            return Ok(());
        };
        let scripts = &self.scripts;
        let returned = scripts.take_back(&self.dispatch, &self.gateway, keys, token);
        match returned.await {
            Ok(TakenBack::Ended) => Err(self.too_few(confirmed).into()),
            // Somebody else was answered it under its idempotency key, or nobody knows.
            Ok(TakenBack::Kept) | Err(_) => {
                Err(Uncertainty::NotReplicated(self.too_few(confirmed)).into())
            }
        }
    }

    /// Comes back when enough replicas have a lease that somebody may have heard of before.
    async fn lease(&self, line: Option<Line>) -> Result<(), StoreError> {
        match self.lacking(line).await {
            None => Ok(()),
            Some(confirmed) => Err(Uncertainty::NotReplicated(self.too_few(confirmed)).into()),
        }
    }

    /// What readiness says; nothing if replicas are not waited for.
    pub(super) async fn check(&self) -> Option<Check> {
        let line = match self.line().await {
            Ok(None) => return None,
            Ok(line) => line,
            Err(Unavailability::Misconfigured(why)) => {
                return Some(check(Health::Misconfigured(why)));
            }
            Err(why) => return Some(check(Health::Outage(why.to_string()))),
        };
        Some(match self.lacking(line).await {
            None => Check {
                note: self
                    .replicas
                    .confirmed()
                    .map(|count| format!("{count} confirm")),
                ..check(Health::Passing)
            },
            Some(confirmed) => check(Health::Outage(self.too_few(confirmed).to_string())),
        })
    }

    /// Nothing if enough replicas have all that was done until now; else how many have, if that is
    /// known.
    async fn lacking(&self, line: Option<Line>) -> Option<Option<u32>> {
        self.replicas.have(line?).await.err()
    }

    fn too_few(&self, confirmed: Option<u32>) -> Unavailability {
        Unavailability::TooFewReplicas {
            wanted: self.replicas.wanted(),
            confirmed,
        }
    }
}

fn check(health: Health) -> Check {
    Check {
        name: "replicas",
        health,
        note: None,
    }
}

//! Release: end a lease before its TTL.

use std::sync::Arc;

use tokio::{task::yield_now, time::Instant};

use crate::{
    lock::{LockName, TokenHash},
    store::{
        Store, StoreError,
        contract::{Loss, Release, Releaser},
    },
    telemetry::metrics::SeenBy,
};

use super::{
    Engine,
    acquire::lease_outcome,
    detach_on_drop::DetachOnDrop,
    history::Actor,
    reaper::{AbandonedBy, AbandonedLease},
    start::EngineShared,
};

/// Why a lease was not released.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// The token does not hold the lock.
    #[error("the lease is lost")]
    Lost(Loss),
    /// The store did not answer, or could not carry out the command.
    #[error(transparent)]
    Store(#[from] StoreError),
}

// === impl ReleaseError ===

impl ReleaseError {
    /// Whether a repetition of the failed release may succeed later, because the store may answer then.
    pub fn may_pass(&self) -> bool {
        matches!(
            self,
            Self::Store(StoreError::Unavailable(_) | StoreError::Indeterminate(_))
        )
    }
}

// === impl Engine ===

impl Engine {
    /// Ends a living lease. Works while the gateway drains. `by` is recorded in the history of the lock.
    ///
    /// If the caller hangs up half-way, the command still runs to its end, because the caller wants the lock
    /// released. If the store does not answer, `release_later` tries again.
    pub async fn release(
        &self,
        name: LockName,
        token: TokenHash,
        by: Option<Actor>,
    ) -> Result<(), ReleaseError> {
        self.release_as(Releaser::Bearer, name, token, by).await
    }

    /// As [`Engine::release`], with what the caller says of its use of the lease: it is no keeper.
    pub async fn release_as(
        &self,
        releaser: Releaser,
        name: LockName,
        token: TokenHash,
        by: Option<Actor>,
    ) -> Result<(), ReleaseError> {
        let engine = Arc::clone(&self.0);
        let release = DetachOnDrop::new(&self.0.lifecycle, async move {
            let EngineShared {
                leases, history, ..
            } = &*engine;
            if !releaser.may_rest() {
                leases.rest(&name, &token, None);
            }
            let release = engine.store.release_as(releaser, &name, &token).await;
            let ended = release.as_ref().ok().and_then(|it| it.1);
            let release = release.map(|it| it.0);
            let (lease, lost) = match &release {
                Ok(Release::Lost(_)) => (None, leases.lose(&name, &token)),
                Ok(_) => (leases.remove(&name, &token), None),
                Err(_) => {
                    leases.released_unheard(&name, &token, by.clone());
                    (None, None)
                }
            };
            // Only a token whose lease this gateway knew counts as an expired lease in the metrics: an unknown token
            // may be a guess.
            let lost_since = lost.as_ref().and_then(|lost| lost.since);
            if let (Some(_), Ok(Release::Lost(loss @ (Loss::HeldByAnother | Loss::Free)))) =
                (&lost, &release)
            {
                engine.metrics.expired_while_held(SeenBy::Release);
                history.lost(&name, lost, *loss);
            }
            let held_since = lease.as_ref().map(|lease| lease.since).or(lost_since);
            let held = held_since.map(|since| since.elapsed());
            engine.metrics.released(lease_outcome(&release), held);
            if let Ok(Release::Released) = release {
                engine.events.released(&name, &token);
                history.released(&name, (lease.as_ref(), ended), by.as_ref(), None);
                if let Some(lease) = lease {
                    lease.released();
                }
                // The next holder is answered before this caller, because others wait for the next holder's work.
                if !engine.store.parking().is_empty() {
                    yield_now().await;
                }
            }
            release
        });
        match release.await? {
            Release::Released => Ok(()),
            // Only a release that names a keeper can fail like this, and this release names none.
            Release::Adopted => Err(ReleaseError::Lost(Loss::HeldByAnother)),
            Release::Lost(loss) => Err(ReleaseError::Lost(loss)),
        }
    }

    /// Retries a release in the background, because the store did not answer and the caller has gone. `since` is the
    /// time at which the release came.
    ///
    /// The retries end when the store answers, when no lease can last any longer, or when the lease is answered again
    /// here under its idempotency key.
    pub fn release_later(
        &self,
        releaser: Releaser,
        name: LockName,
        token: TokenHash,
        since: Instant,
    ) {
        if self.0.leases.was_answered_since(&name, &token, since) {
            return;
        }
        // Only a reservation may last longer than the longest TTL.
        let longest = Instant::now() + self.0.longest_ttl;
        let known = self.0.leases.until(&name, &token);
        let until = known.map_or(longest, |until| until.max(longest));
        let by = AbandonedBy::Holder {
            is_unused: releaser == Releaser::Unused,
            since,
            until,
        };
        self.0.reaper.submit(AbandonedLease::new(name, token, by));
    }
}

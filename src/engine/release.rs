//! Release: end a lease before its TTL.

use std::{sync::Arc, time::Duration};

use tokio::{task::yield_now, time::Instant};

use crate::{
    lock::{LockName, TokenHash},
    store::{
        StoreError,
        contract::{Loss, Release, Releaser},
    },
    telemetry::metrics::SeenBy,
};

use super::{
    Engine,
    acquire::lease_outcome,
    detach_on_drop::{DetachOnDrop, hung_up_at},
    facts::ReleasedBy,
    history::Actor,
    reaper::{AbandonedBy, AbandonedLease},
    start::EngineShared,
};

/// A release that a caller with the token asks for.
///
/// Every copy of the release names the recipient that the lease had when the release came, as far as this gateway
/// knows. Without the recipient, a copy that the store carries out after its caller has hung up would end a lease that
/// was answered again meanwhile under its idempotency key, to a caller that relies on it.
#[derive(Debug, Clone)]
pub struct HolderRelease {
    name: LockName,
    token: TokenHash,
    /// The recipient, with what the caller says of its use of the lease.
    releaser: Releaser,
    came: Instant,
}

/// How soon after a release the store must name another recipient for that recipient to count as the one before the
/// release: sooner than a caller whose end cannot be seen, behind a proxy or after a power failure, is answered again.
const RECIPIENT_NAMED_WITHIN: Duration = Duration::from_secs(1);

/// Why a lease was not released.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// The token does not hold the lock.
    #[error("the lease is lost")]
    Lost(Loss),
    /// The lease has another recipient than when the release came, and lives on.
    #[error("the lease was answered again while its release was under way")]
    AnsweredAgain,
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
    /// Begins a release that has just come. `releaser` is what the caller says of its use of the lease: it is no
    /// recipient.
    pub fn begin_release(
        &self,
        releaser: Releaser,
        name: LockName,
        token: TokenHash,
    ) -> HolderRelease {
        let came = Instant::now();
        // A release whose caller hung up before its turn came knows no later recipient either.
        let asked = hung_up_at().unwrap_or(came);
        let recipient = self.0.leases.recipient(&name, &token, asked);
        HolderRelease {
            name,
            token,
            releaser: releaser.kept_by(recipient),
            came,
        }
    }

    /// Ends a living lease. Works while the gateway drains. `by` is recorded in the history of the lock.
    pub async fn release(
        &self,
        name: LockName,
        token: TokenHash,
        by: Option<Actor>,
    ) -> Result<(), ReleaseError> {
        let release = self.begin_release(Releaser::Bearer, name, token);
        self.carry_out(release, by).await
    }

    /// Carries out a release that has begun.
    ///
    /// If the caller hangs up half-way, the command still runs to its end, because the caller wants the lock
    /// released. If the store does not answer, `release_later` tries again.
    pub async fn carry_out(
        &self,
        release: HolderRelease,
        by: Option<Actor>,
    ) -> Result<(), ReleaseError> {
        let engine = Arc::clone(&self.0);
        let release = DetachOnDrop::new(&self.0.lifecycle, async move {
            let answer = release.send(&engine).await;
            let HolderRelease {
                name,
                token,
                releaser,
                ..
            } = release;
            let EngineShared { leases, facts, .. } = &*engine;
            if !matches!(answer, Ok(Release::Released(_))) {
                engine.metrics.released(lease_outcome(&answer), None);
            }
            match &answer {
                Ok(Release::Released(ended)) => {
                    if !releaser.may_rest() {
                        leases.rest(&name, &token, None);
                    }
                    let by = ReleasedBy::Holder(by.as_ref(), None);
                    facts.released(&name, &token, *ended, by);
                    // The next holder is answered before this caller, because others wait for the next holder's work.
                    if !engine.store.parking().is_empty() {
                        yield_now().await;
                    }
                }
                Ok(Release::Lost(loss)) => {
                    facts.gone(&name, &token, *loss, Some(SeenBy::Release));
                }
                // A caller that waits and repeats the release names this recipient.
                Ok(Release::Adopted(recipient)) => leases.adopted_by(&name, &token, *recipient),
                Err(_) => leases.released_unheard(&name, &token, by),
            }
            answer
        });
        match release.await? {
            Release::Released(_) => Ok(()),
            Release::Adopted(_) => Err(ReleaseError::AnsweredAgain),
            Release::Lost(loss) => Err(ReleaseError::Lost(loss)),
        }
    }

    /// Retries a release in the background, because the store did not answer and the caller has gone.
    ///
    /// The retries end when the store answers, or when no lease can last any longer.
    pub fn release_later(&self, release: HolderRelease) {
        let EngineShared { leases, reaper, .. } = &*self.0;
        let HolderRelease {
            name,
            token,
            releaser,
            ..
        } = release;
        let now = Instant::now();
        // The lease of a caller that was answered again still counts for its API key.
        if releaser.recipient() != Some(leases.recipient(&name, &token, now)) {
            return;
        }
        // Only a reservation may last longer than the longest TTL.
        let longest = now + self.0.longest_ttl;
        let known = leases.until(&name, &token);
        let until = known.map_or(longest, |until| until.max(longest));
        let by = AbandonedBy::Holder { releaser, until };
        reaper.submit(AbandonedLease::new(name, token, by));
    }
}

// === impl HolderRelease ===

impl HolderRelease {
    /// Sends the release to the store. If another recipient has the lease and the caller waits, that recipient is named
    /// then: this gateway did not know that a stream or a repeated acquire at another gateway had adopted the lease.
    async fn send(&self, engine: &EngineShared) -> Result<Release, StoreError> {
        let Self { name, token, .. } = self;
        let mut releaser = self.releaser;
        loop {
            let granted_here = engine.leases.is_granted_here(name, token);
            let release = engine.store.release_as(releaser, name, token, granted_here);
            let answer = release.await;
            match answer {
                Ok(Release::Adopted(recipient))
                    if releaser.recipient() != Some(recipient)
                        && hung_up_at().is_none()
                        && self.came.elapsed() < RECIPIENT_NAMED_WITHIN =>
                {
                    releaser = releaser.kept_by(recipient);
                }
                answer => return answer,
            }
        }
    }
}

//! Answers a lease again: to the attempt that has it, or under its idempotency key.

use tokio::time::Instant;

use crate::{
    lock::{Salt, TokenHash},
    store::{
        StoreError,
        contract::{Acquisition, Attempt},
    },
};

use super::{
    super::keys::Keys,
    acquire::{AttemptOutcome, TryOutcome},
    agreed::accepted,
    calls::{ReplayReply, ReplayRequest},
    shared::Shared,
};

// === impl Shared ===

impl Shared {
    /// Answers an attempt that some node has already: by its lease, if a majority has accepted it and it
    /// is not about to be withdrawn there. What is left of a try that came to nothing will be soon.
    pub(super) async fn replay_own(
        &self,
        keys: &Keys,
        attempt: &Attempt,
    ) -> Result<TryOutcome, StoreError> {
        let began = Instant::now();
        let view = self.view(keys).await?;
        let token = &attempt.token;
        // In this order: what is withdrawn from now on was not granted to anybody else.
        let sure = view.of(token).into_iter();
        let sure =
            sure.filter(|(node, _)| !self.sweeper.pending_withdrawals.contains(*node, token));
        let sure = sure.map(|(_, claim)| claim);
        let lease = accepted(sure, self.quorum.majority(), began.elapsed());
        Ok(match lease {
            Some(lease) if !lease.expires_in.is_zero() => {
                TryOutcome::done(Acquisition::Granted(lease))
            }
            Some(_) | None => TryOutcome::Split(None),
        })
    }

    /// Answers a lease that lives under the idempotency key of an attempt. From then on that one keeps
    /// it.
    pub(super) async fn replay_under_key(
        &self,
        keys: &Keys,
        attempt: &Attempt,
        lease: TokenHash,
    ) -> Result<TryOutcome, StoreError> {
        let Some(key) = &attempt.idempotency else {
            return Ok(TryOutcome::Split(None));
        };
        let request = ReplayRequest {
            asks: attempt.token,
            key: key.hash,
            lease,
        };
        let majority = self.quorum.majority();
        let local_queue = self.local_queues.of(keys.name());
        let adopting = local_queue.adopting.lock().await;
        let began = Instant::now();
        let answers = self.quorum.ask(
            |node| node.replay(keys, &request),
            |answers| {
                let alive = answers.count(|answer| matches!(answer, Ok(ReplayReply::Lease(..))));
                alive >= majority
            },
        );
        let answers = answers.await;
        drop(adopting);
        if answers.count(|answer| *answer == Ok(ReplayReply::Superseded)) > 0 {
            return Ok(TryOutcome::done(Acquisition::Superseded));
        }
        let found: Vec<_> = answers
            .iter()
            .filter_map(|answer| match answer {
                Ok(ReplayReply::Lease(claim, salt, delivered)) => Some((claim, salt, *delivered)),
                _ => None,
            })
            .collect();
        let claims = found.iter().map(|(claim, ..)| *claim);
        let Some(lease) = accepted(claims, majority, began.elapsed()) else {
            let missed = answers.nodes() - answers.count(Result::is_ok);
            let error = answers.iter().find_map(|answer| answer.as_ref().err());
            return Ok(match error {
                Some(error) => TryOutcome::TooFew(self.describe(missed, error)),
                None => TryOutcome::Split(None),
            });
        };
        let delivered = found.iter().filter(|(.., delivered)| *delivered).count();
        let salt: Salt = *found[0].1;
        Ok(TryOutcome::Over(AttemptOutcome::Done(if delivered > 0 {
            // The nodes may differ in who kept it before.
            Acquisition::Replayed(lease, salt, None)
        } else {
            Acquisition::Collected(lease, salt)
        })))
    }
}

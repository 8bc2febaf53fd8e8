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
    acquire::{Outcome, Tried},
    agreed::accepted,
    calls::{Replayed, Replaying},
    shared::Shared,
};

// === impl Shared ===

impl Shared {
    /// Answers an attempt that some node has already: by its lease, if a majority has accepted it and it
    /// is not about to be withdrawn there. What is left of a try that came to nothing will be soon.
    pub(super) async fn again(
        &self,
        keys: &Keys,
        attempt: &Attempt,
    ) -> Result<Outcome, StoreError> {
        let began = Instant::now();
        let view = self.view(keys).await?;
        let token = &attempt.token;
        // In this order: what is withdrawn from now on was not granted to anybody else.
        let sure = view.of(token).into_iter();
        let sure = sure.filter(|(node, _)| !self.sweeper.doomed.is(*node, token));
        let sure = sure.map(|(_, claim)| claim);
        let lease = accepted(sure, self.quorum.majority(), began.elapsed());
        Ok(match lease {
            Some(lease) if !lease.expires_in.is_zero() => {
                Outcome::done(Acquisition::Granted(lease))
            }
            Some(_) | None => Outcome::Split(None),
        })
    }

    /// Answers a lease that lives under the idempotency key of an attempt. From then on that one keeps
    /// it.
    pub(super) async fn answer_again(
        &self,
        keys: &Keys,
        attempt: &Attempt,
        lease: TokenHash,
    ) -> Result<Outcome, StoreError> {
        let Some(key) = &attempt.idempotency else {
            return Ok(Outcome::Split(None));
        };
        let replaying = Replaying {
            asks: attempt.token,
            key: key.hash,
            lease,
        };
        let majority = self.quorum.majority();
        let line = self.lines.of(keys.name());
        let adopting = line.adopting.lock().await;
        let began = Instant::now();
        let answers = self.quorum.ask(
            |node| node.replay(keys, &replaying),
            |answers| {
                let alive = answers.count(|answer| matches!(answer, Ok(Replayed::Lease(..))));
                alive >= majority
            },
        );
        let answers = answers.await;
        drop(adopting);
        if answers.count(|answer| *answer == Ok(Replayed::Superseded)) > 0 {
            return Ok(Outcome::done(Acquisition::Superseded));
        }
        let found: Vec<_> = answers
            .iter()
            .filter_map(|answer| match answer {
                Ok(Replayed::Lease(claim, salt, heard)) => Some((claim, salt, *heard)),
                _ => None,
            })
            .collect();
        let claims = found.iter().map(|(claim, ..)| *claim);
        let Some(lease) = accepted(claims, majority, began.elapsed()) else {
            let missed = answers.nodes() - answers.count(Result::is_ok);
            let error = answers.iter().find_map(|answer| answer.as_ref().err());
            return Ok(match error {
                Some(error) => Outcome::TooFew(self.describe(missed, error)),
                None => Outcome::Split(None),
            });
        };
        let heard = found.iter().filter(|(.., heard)| *heard).count();
        let salt: Salt = *found[0].1;
        Ok(Outcome::Over(Tried::Done(if heard > 0 {
            // The nodes may differ in who kept it before.
            Acquisition::Replayed(lease, salt, None)
        } else {
            Acquisition::Collected(lease, salt)
        })))
    }
}

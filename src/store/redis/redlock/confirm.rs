//! Confirm, over a quorum: finds out whether an attempt has the lock, and makes it last its full TTL.

use tokio::time::Instant;

use crate::{
    lock::{HeldLease, LockName, TokenHash},
    store::{StoreError, contract::Confirmation},
};

use super::{agreed, combined::unknown, shared::Shared, sweeper::SweepTarget};

// === impl Shared ===

impl Shared {
    pub(super) async fn confirm(
        &self,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Confirmation, StoreError> {
        let keys = self.keys(name);
        let majority = self.quorum.majority();
        let began = Instant::now();
        let answers = self.quorum.ask(
            |node| node.confirm(&keys, token),
            |answers| answers.count(Result::is_ok) >= majority,
        );
        let answers = answers.await;
        let confirmed: Vec<(usize, &HeldLease)> = answers
            .by_node()
            .filter_map(|(node, answer)| match answer {
                Some(Ok(Confirmation::Confirmed(lease))) => Some((node, lease)),
                _ => None,
            })
            .collect();
        let sure = confirmed
            .iter()
            .filter(|(node, _)| !self.sweeper.pending_withdrawals.contains(*node, token));
        let sure: Vec<&HeldLease> = sure.map(|(_, lease)| *lease).collect();
        if let Some(lease) = agreed::confirmed(&sure, majority, began.elapsed()) {
            return Ok(Confirmation::Confirmed(lease));
        }
        let superseded = answers.count(|answer| *answer == Ok(Confirmation::Superseded));
        if superseded + confirmed.len() >= majority && superseded > 0 {
            return Ok(Confirmation::Superseded);
        }
        let lost = answers.count(|answer| *answer == Ok(Confirmation::Lost));
        // What fewer have accepted was never granted; others may have accepted it too.
        let others = answers.nodes() - superseded - lost - confirmed.len();
        if agreed::accepting(&sure) + others < majority {
            for (node, _) in confirmed {
                self.sweeper.sweep(node, name, token, SweepTarget::Attempt);
            }
            return Ok(Confirmation::Lost);
        }
        Err(unknown(&answers, majority, false, |missed, error| {
            self.describe(missed, error)
        }))
    }
}

//! Release, over a quorum: the lease ends at every node, now or when it answers again.

use crate::{
    lock::{KeeperId, LockName, TokenHash},
    store::{StoreError, contract::Release},
};

use super::{
    calls::NodeRelease, combined::unknown, release_tally::ReleaseTally, shared::Shared,
    sweeper::SweepTarget,
};

// === impl Shared ===

impl Shared {
    pub(super) async fn release(
        &self,
        keeper: Option<KeeperId>,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<Release, StoreError> {
        let keys = self.keys(name);
        let majority = self.quorum.majority();
        let answers = self.quorum.ask(
            |node| node.release(&keys, keeper, token),
            |answers| ReleaseTally::of(answers).is_decided(majority),
        );
        let answers = answers.await;
        let release_tally = ReleaseTally::of(&answers);
        let outcome = release_tally.final_outcome(majority);
        if release_tally.released > 0 && outcome != Some(Release::Adopted) {
            // What of it is elsewhere, and what of its acquire is still on its way.
            for node in answers.others(|answer| *answer == Ok(NodeRelease::Released)) {
                self.sweeper
                    .sweep(node, name, token, SweepTarget::Lease(keeper));
            }
            self.hand_off(name).await;
        }
        if let Some(decided) = outcome {
            return Ok(decided);
        }
        Err(unknown(
            &answers,
            majority,
            release_tally.released > 0,
            |missed, error| self.describe(missed, error),
        ))
    }
}

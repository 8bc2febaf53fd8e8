//! Release, over a quorum: the lease ends at every node, now or when it answers again.

use crate::{
    lock::{KeeperId, LockName, TokenHash},
    store::{StoreError, contract::Release},
};

use super::{calls::Parting, combined::unknown, parted::Parted, shared::Shared, sweeper::Swept};

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
            |answers| Parted::of(answers).is_settled(majority),
        );
        let answers = answers.await;
        let parted = Parted::of(&answers);
        let outcome = parted.at_last(majority);
        if parted.released > 0 && outcome != Some(Release::Adopted) {
            // What of it is elsewhere, and what of its acquire is still on its way.
            for node in answers.others(|answer| *answer == Ok(Parting::Released)) {
                self.sweeper.sweep(node, name, token, Swept::Lease(keeper));
            }
            self.hand_on(name).await;
        }
        if let Some(told) = outcome {
            return Ok(told);
        }
        Err(unknown(
            &answers,
            majority,
            parted.released > 0,
            |missed, error| self.describe(missed, error),
        ))
    }
}

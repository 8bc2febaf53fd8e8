//! Give back, over a quorum: makes sure that an attempt which nobody waits for any more holds nothing.

use crate::{
    lock::{LockName, TokenHash},
    store::{StoreError, contract::GiveBack},
};

use super::{calls::Withdrawal, combined::unknown, shared::Shared, sweeper::SweepTarget};

// === impl Shared ===

impl Shared {
    pub(super) async fn give_back(
        &self,
        name: &LockName,
        token: &TokenHash,
    ) -> Result<GiveBack, StoreError> {
        let keys = self.keys(name);
        let majority = self.quorum.majority();
        let local_queue = self.local_queues.of(name);
        local_queue.leave_now(token, None, tokio::time::Instant::now());
        // If it is just being tried for, that is over then.
        let turn = self.turn(&local_queue).await?;
        let answers = self.quorum.ask(
            |node| node.withdraw(&keys, token, None),
            |answers| answers.count(Result::is_ok) >= majority,
        );
        let answers = answers.await;
        drop(turn);
        let count = |word: Withdrawal| answers.count(|answer| *answer == Ok(word));
        let (given_back, kept) = (count(Withdrawal::GivenBack), count(Withdrawal::Kept));
        let nothing = count(Withdrawal::Nothing);
        if kept >= majority {
            return Ok(GiveBack::NothingHeld);
        }
        if given_back > 0 {
            self.hand_off(name).await;
        }
        if given_back + nothing < majority {
            return Err(unknown(
                &answers,
                majority,
                given_back > 0,
                |missed, error| self.describe(missed, error),
            ));
        }
        for node in answers.others(Result::is_ok) {
            self.sweeper.sweep(node, name, token, SweepTarget::Attempt);
        }
        // What a minority had was no lease.
        Ok(if nothing >= majority {
            GiveBack::NothingHeld
        } else {
            GiveBack::GivenBack
        })
    }
}

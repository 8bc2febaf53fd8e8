//! Renew, over a quorum: the nodes that still have the lease keep it. None takes it again.

use tokio::time::Instant;

use crate::{
    lock::{LockName, TokenHash, Ttl},
    store::{
        StoreError,
        contract::{Loss, Renewal, Renewer},
    },
};

use super::{
    agreed,
    combined::{is_decided, loss, unknown},
    node_replies::NodeReplies,
    shared::Shared,
    sweeper::SweepTarget,
};

// === impl Shared ===

impl Shared {
    pub(super) async fn renew(
        &self,
        renewer: Renewer,
        name: &LockName,
        token: &TokenHash,
        ttl: Option<Ttl>,
    ) -> Result<Renewal, StoreError> {
        let keys = self.keys(name);
        let majority = self.quorum.majority();
        let local_queue = self.local_queues.of(name);
        let _adopting = match renewer {
            Renewer::Adopter(_) => Some(local_queue.adopting.lock().await),
            Renewer::Bearer | Renewer::Keeper(_) => None,
        };
        let began = Instant::now();
        let gateway = &self.gateway;
        let answers = self.quorum.ask(
            |node| node.renew(gateway, &keys, renewer, token, ttl),
            |answers| {
                let kept = answers.count(|it| matches!(it, Ok(Renewal::Renewed(_))));
                let lost = is_decided(&losses(answers), majority, answers.nodes());
                let adopted = answers.count(|it| matches!(it, Ok(Renewal::Adopted)));
                kept >= majority || lost || adopted >= majority
            },
        );
        let answers = answers.await;
        let kept: Vec<_> = answers
            .iter()
            .filter_map(|answer| match answer {
                Ok(Renewal::Renewed(lease)) => Some(lease),
                _ => None,
            })
            .collect();
        if let Some(lease) = agreed::renewed(&kept, majority, began.elapsed()) {
            return Ok(Renewal::Renewed(lease));
        }
        let adopted = answers.count(|it| matches!(it, Ok(Renewal::Adopted)));
        if adopted > 0 && adopted + kept.len() >= majority {
            return Ok(Renewal::Adopted);
        }
        if let Some(loss) = loss(&losses(&answers), majority) {
            self.sweep_rest(name, token, &answers);
            return Ok(Renewal::Lost(loss));
        }
        Err(unknown(
            &answers,
            majority,
            !kept.is_empty(),
            |missed, error| self.describe(missed, error),
        ))
    }

    /// A lease without a majority is over; where it still is it only keeps a node from others.
    fn sweep_rest(
        &self,
        name: &LockName,
        token: &TokenHash,
        answers: &NodeReplies<Result<Renewal, StoreError>>,
    ) {
        for (node, answer) in answers.by_node() {
            if matches!(answer, Some(Ok(Renewal::Renewed(_)))) {
                self.sweeper
                    .sweep(node, name, token, SweepTarget::Lease(None));
            }
        }
    }
}

fn losses(answers: &NodeReplies<Result<Renewal, StoreError>>) -> Vec<Loss> {
    answers
        .iter()
        .filter_map(|answer| match answer {
            Ok(Renewal::Lost(loss)) => Some(*loss),
            _ => None,
        })
        .collect()
}

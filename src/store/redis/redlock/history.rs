//! The history of a lock over a quorum: written to all nodes, and read from a majority of them.

use crate::{
    lock::LockName,
    store::{
        StoreError,
        history::{HistoryBatch, StoredHistory},
    },
};

use super::shared::Shared;

// === impl Shared ===

impl Shared {
    /// Adds to the history of a lock at all nodes. Fails unless a majority of the nodes has added it.
    pub(super) async fn record_history(
        &self,
        name: &LockName,
        batch: &HistoryBatch,
    ) -> Result<(), StoreError> {
        let (keys, majority) = (self.keys(name), self.quorum.majority());
        let answers = self.quorum.ask(
            |node| node.scripts.history.record(&node.dispatch, &keys, batch),
            |answers| answers.count(Result::is_ok) >= majority,
        );
        let answers = answers.await;
        let is_written = answers.count(Result::is_ok) >= majority;
        is_written.then_some(()).ok_or_else(|| answers.too_few())
    }

    /// Reads the history of a lock from a majority of the nodes. A record that one node has is enough; of the counts,
    /// which each node keeps, the largest are answered.
    pub(super) async fn history(&self, name: &LockName) -> Result<StoredHistory, StoreError> {
        let (keys, majority) = (self.keys(name), self.quorum.majority());
        let answers = self.quorum.ask(
            |node| node.scripts.history.read(&node.dispatch, &keys),
            |answers| answers.count(Result::is_ok) >= majority,
        );
        let answers = answers.await;
        if answers.count(Result::is_ok) < majority {
            return Err(answers.too_few());
        }
        let mut history = StoredHistory::default();
        for StoredHistory { records, counts } in answers.iter().flatten() {
            history.records.extend_from_slice(records);
            let dropped = history.counts.dropped.max(counts.dropped);
            if counts.shorter > history.counts.shorter {
                history.counts = *counts;
            }
            history.counts.dropped = dropped;
        }
        Ok(history)
    }
}

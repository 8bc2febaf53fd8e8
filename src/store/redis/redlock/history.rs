//! The history of a lock over a quorum: written to all nodes, and read from a majority of them.

use crate::{
    lock::LockName,
    store::{
        StoreError,
        history::{HistoryBatch, StoredHistory},
    },
};

use super::{node::Node, quorum::NodeReplies, shared::Shared};

// === impl Shared ===

impl Shared {
    /// Adds to the histories of locks at all nodes. Fails unless a majority of the nodes has added all.
    pub(super) async fn record_history(&self, batches: &[HistoryBatch]) -> Result<(), StoreError> {
        let done = self.ask_majority(async |it| {
            let keys = |name: &LockName| self.keys(name);
            let history = &it.scripts.history;
            let recorded = history.record(&it.dispatch, keys, batches).await;
            recorded.map_err(|(_, error)| error)
        });
        done.await.map(drop)
    }

    /// Reads the history of a lock from a majority of the nodes. A record that one node has is enough; of the counts,
    /// which each node keeps, the largest are answered.
    pub(super) async fn history(&self, name: &LockName) -> Result<StoredHistory, StoreError> {
        let keys = &self.keys(name);
        let answers = self.ask_majority(|node| node.scripts.history.read(&node.dispatch, keys));
        let mut history = StoredHistory::default();
        for StoredHistory { records, counts } in answers.await?.iter().flatten() {
            history.records.extend_from_slice(records);
            let dropped = history.counts.dropped.max(counts.dropped);
            history.counts = history.counts.max(*counts);
            history.counts.dropped = dropped;
        }
        Ok(history)
    }

    /// Asks all nodes. Fails if fewer nodes than a majority have answered.
    pub(super) async fn ask_majority<'a, T, F>(
        &'a self,
        question: impl Fn(&'a Node) -> F,
    ) -> Result<NodeReplies<Result<T, StoreError>>, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let majority = self.quorum.majority();
        let is_enough = |answers: &NodeReplies<_>| answers.count(Result::is_ok) >= majority;
        let answers = self.quorum.ask(question, is_enough).await;
        let too_few = answers.too_few();
        is_enough(&answers).then_some(answers).ok_or(too_few)
    }
}

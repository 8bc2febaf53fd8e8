//! The scripts on the history of a lock: `record_history.lua` and `history.lua`.

use std::time::Duration;

use crate::store::{
    StoreError,
    history::{HistoryBatch, HistoryBounds, StoredHistory},
};

use super::super::{
    client::{Command, Parts, Reply, Script, dispatch::Dispatch},
    keys::Keys,
};

/// The scripts on the history of a lock.
#[derive(Debug)]
pub(in crate::store::redis) struct HistoryScripts {
    record: Script,
    show: Script,
    /// The command that sets an expiry.
    expiry: &'static str,
}

/// For how long records are added to one key, before the next key begins.
const WEEK: Duration = Duration::from_hours(7 * 24);

// === impl HistoryScripts ===

impl HistoryScripts {
    /// Creates the scripts for a user that may run the command `expiry`: PEXPIRE or PEXPIREAT.
    pub(in crate::store::redis) fn new(expiry: &'static str) -> Self {
        let script =
            |text| Script::new(text, 1, &Parts::default()).naming(&[|keys: &Keys| keys.fence()]);
        Self {
            record: script(include_str!("record_history.lua")),
            show: script(include_str!("history.lua")).read_only(),
            expiry,
        }
    }

    /// Adds to the history of a lock; only what is vital, if the memory of the server is nearly full.
    pub(in crate::store::redis) async fn record(
        &self,
        dispatch: &Dispatch,
        keys: &Keys,
        batch: &HistoryBatch,
    ) -> Result<(), StoreError> {
        let shard = dispatch.topology.shard(keys.slot())?;
        let is_full = shard.admission.is_nearly_full();
        let (records, counts) = batch.records(is_full);
        let args = [
            batch.bounds.keep.as_millis().to_string(),
            batch.bounds.records().to_string(),
            counts.shorter.to_string(),
            counts.since.to_string(),
            counts.dropped.to_string(),
            self.expiry.to_owned(),
            records.join("\n"),
        ];
        let reply = run(&self.record, dispatch, keys, &args, "recorded").await;
        reply.map(drop)
    }

    /// Reads the history of a lock.
    pub(in crate::store::redis) async fn read(
        &self,
        dispatch: &Dispatch,
        keys: &Keys,
    ) -> Result<StoredHistory, StoreError> {
        let weeks = HistoryBounds::MAX_KEEP.as_secs().div_ceil(WEEK.as_secs());
        let args = [weeks.to_string()];
        let mut reply = run(&self.show, dispatch, keys, &args, "history").await?;
        let mut history = StoredHistory::default();
        while let Some(text) = reply.text() {
            history.add_text(&text);
        }
        Ok(history)
    }
}

/// Runs a script on the history of a lock, and expects this kind of reply.
async fn run(
    script: &Script,
    dispatch: &Dispatch,
    keys: &Keys,
    args: &[String],
    kind: &str,
) -> Result<Reply, StoreError> {
    let (name, prefix) = (
        keys.name().as_str(),
        keys.history(dispatch.topology.is_cluster()),
    );
    let fill = |command: &mut Command, _| {
        command.arg(name).arg(&prefix).arg(args);
    };
    let run = dispatch.run(script, keys, name, dispatch.limit(), fill);
    let reply = run.await?.reply;
    if reply.kind() == kind {
        Ok(reply)
    } else {
        Err(reply.unexpected())
    }
}

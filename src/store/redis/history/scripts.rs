//! The scripts on the history of a lock: `record_history.lua` and `history.lua`.

use std::time::Duration;

use crate::store::{
    StoreError,
    history::{HistoryBatch, HistoryBounds, StoredHistory},
};

use super::super::{
    client::{Command, Parts, Script, dispatch::Dispatch},
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
        let vital = shard
            .admission
            .is_nearly_full()
            .then(|| batch.clone().vital());
        let HistoryBatch {
            bounds,
            records,
            counts,
        } = vital.as_ref().unwrap_or(batch);
        let (name, prefix) = (
            keys.name().as_str(),
            keys.history(dispatch.topology.is_cluster()),
        );
        let keep = u64::try_from(bounds.keep.as_millis()).unwrap_or(u64::MAX);
        let texts: String = records.iter().flat_map(|it| [&it.text, "\n"]).collect();
        let fill = |command: &mut Command, _| {
            command
                .arg(name)
                .arg(&prefix)
                .arg(keep)
                .arg(bounds.records());
            command
                .arg(counts.shorter)
                .arg(counts.since)
                .arg(counts.dropped);
            command.arg(self.expiry).arg(&texts);
        };
        let run = dispatch.run(&self.record, keys, name, dispatch.limit(), fill);
        let reply = run.await?.reply;
        match reply.kind() {
            "recorded" => Ok(()),
            _ => Err(reply.unexpected()),
        }
    }

    /// Reads the history of a lock.
    pub(in crate::store::redis) async fn read(
        &self,
        dispatch: &Dispatch,
        keys: &Keys,
    ) -> Result<StoredHistory, StoreError> {
        let (name, prefix) = (
            keys.name().as_str(),
            keys.history(dispatch.topology.is_cluster()),
        );
        let weeks = HistoryBounds::MAX_KEEP.as_secs().div_ceil(WEEK.as_secs());
        let fill = |command: &mut Command, _| {
            command.arg(name).arg(&prefix).arg(weeks);
        };
        let run = dispatch.run(&self.show, keys, name, dispatch.limit(), fill);
        let (mut reply, mut history) = (run.await?.reply, StoredHistory::default());
        if reply.kind() != "history" {
            return Err(reply.unexpected());
        }
        while let Some(text) = reply.text() {
            history.add_text(&text);
        }
        Ok(history)
    }
}

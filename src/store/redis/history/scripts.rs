//! The scripts on the history of a lock: `record_history.lua` and `history.lua`.

use std::time::Duration;

use futures_util::{StreamExt, stream};

use crate::{
    lock::LockName,
    store::{
        StoreError,
        history::{HistoryBatch, HistoryBounds, StoredHistory},
    },
};

use super::super::{
    client::{Command, Parts, Reply, Script, dispatch::Dispatch},
    keys::Keys,
};

/// The scripts on the histories of locks.
#[derive(Debug)]
pub(in crate::store::redis) struct HistoryScripts {
    record: Script,
    show: Script,
    /// The command that sets an expiry.
    expiry: &'static str,
}

/// For how long records are added to one key, before the next key begins.
const WEEK: Duration = Duration::from_hours(7 * 24);
/// To how many locks one command adds: few enough that it takes less than a millisecond.
const LOCKS: usize = 50;
/// How many commands are sent at the same time.
const COMMANDS: usize = 8;

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

    /// Adds to the histories of locks; only what is vital, if the memory of a server is nearly full. `keys_of`: the keys of
    /// a lock. Locks of different slots of a cluster take a command each. Answers the positions of the batches that could
    /// not be written, with one of the errors.
    pub(in crate::store::redis) async fn record(
        &self,
        dispatch: &Dispatch,
        keys_of: impl Fn(&LockName) -> Keys,
        batches: &[HistoryBatch],
    ) -> Result<(), (Vec<usize>, StoreError)> {
        let is_cluster = dispatch.topology.is_cluster();
        let mut locks = Vec::new();
        for (position, batch) in batches.iter().enumerate() {
            locks.push((keys_of(&batch.name), batch, position));
        }
        if is_cluster {
            locks.sort_unstable_by_key(|(keys, ..)| keys.slot().index());
        }
        let mut commands = Vec::new();
        for locks in locks.chunk_by(|(a, ..), (b, ..)| !is_cluster || a.slot() == b.slot()) {
            for locks in locks.chunks(LOCKS) {
                commands.push(self.record_together(dispatch, locks));
            }
        }
        let answers: Vec<_> = stream::iter(commands).buffered(COMMANDS).collect().await;
        let failed = answers.into_iter().filter_map(Result::err);
        let failed = failed.reduce(|(mut all, error), (positions, _)| {
            all.extend(positions);
            (all, error)
        });
        failed.map_or(Ok(()), Err)
    }

    async fn record_together(
        &self,
        dispatch: &Dispatch,
        locks: &[(Keys, &HistoryBatch, usize)],
    ) -> Result<(), (Vec<usize>, StoreError)> {
        let failed = |error| {
            let positions = locks.iter().map(|(.., position)| *position);
            (positions.collect(), error)
        };
        let (keys, HistoryBatch { bounds, .. }, _) = &locks[0];
        let shard = dispatch.topology.shard(keys.slot());
        let shard = shard.map_err(|why| failed(why.into()))?;
        let is_full = shard.admission.is_nearly_full();
        let fields = locks.iter().map(|(keys, batch, _)| {
            let (records, counts) = batch.records(is_full);
            let prefix = keys.history(dispatch.topology.is_cluster());
            let counts = counts.text().unwrap_or_default();
            [keys.name().as_str(), &prefix, &counts, &records.join("\n")].join("\u{1f}")
        });
        let args = [
            keys.name().as_str().to_owned(),
            bounds.keep.as_millis().to_string(),
            bounds.records().to_string(),
            self.expiry.to_owned(),
            fields.collect::<Vec<_>>().join("\u{1e}"),
        ];
        let reply = run(&self.record, dispatch, keys, &args, "recorded").await;
        reply.map(drop).map_err(failed)
    }

    /// Reads the history of a lock.
    pub(in crate::store::redis) async fn read(
        &self,
        dispatch: &Dispatch,
        keys: &Keys,
    ) -> Result<StoredHistory, StoreError> {
        let weeks = HistoryBounds::MAX_KEEP.as_secs().div_ceil(WEEK.as_secs());
        let args = [
            keys.name().as_str().to_owned(),
            keys.history(dispatch.topology.is_cluster()),
            weeks.to_string(),
        ];
        let mut reply = run(&self.show, dispatch, keys, &args, "history").await?;
        let mut history = StoredHistory::default();
        while let Some(text) = reply.text() {
            history.add_text(&text);
        }
        Ok(history)
    }
}

/// Runs a script on the histories of locks, and expects this kind of reply, which repeats the first argument.
async fn run(
    script: &Script,
    dispatch: &Dispatch,
    keys: &Keys,
    args: &[String],
    kind: &str,
) -> Result<Reply, StoreError> {
    let fill = |command: &mut Command, _| {
        command.arg(args);
    };
    let run = dispatch.run(script, keys, &args[0], dispatch.limit(), fill);
    let reply = run.await?.reply;
    if reply.kind() == kind {
        Ok(reply)
    } else {
        Err(reply.unexpected())
    }
}

//! The history of the hour before the demo began, made up.

use std::time::{Duration, SystemTime};

use crate::{
    clock::rfc3339,
    config::HistoryConfig,
    lock::{HistoryEntry, HistoryNote, LockName, Mode},
    store::history::{HistoryBatch, HistoryBounds, HistoryCounts, HistoryRecord},
};

use super::team::{FIRST_RUN, job, run_of, simulated};

/// Work that the team did again and again: lock, owner (that of a deploy is its run), slot, the longest hold and the pause
/// after it in seconds, and how the last lease but one ended.
type Routine<'a> = (&'a str, &'a str, Option<u16>, u64, u64, &'a str);

const ROUTINES: [Routine<'_>; 8] = [
    ("deploy:web", "", None, 160, 80, "broken"),
    ("deploy:payments", "", None, 420, 500, "released"),
    ("nightly:report", "node 2", None, 30, 600, "released"),
    ("pool:browsers", "tests 1", Some(0), 210, 40, "released"),
    ("pool:browsers", "tests 2", Some(1), 260, 45, "expired"),
    ("pool:browsers", "tests 3", Some(2), 180, 60, "released"),
    ("import:orders", "importer 1", None, 60, 240, "expired"),
    ("backup:photos", "backup host 1", None, 240, 300, "expired"),
];

/// How far the past goes back, in seconds, and how long before the demo its last leases ended.
const PAST: u64 = 3_600;
const GAP: u64 = 15;

/// The records of the leases that the team had in the hour before `now`.
pub(super) fn past_hour(now: SystemTime) -> Vec<HistoryBatch> {
    let config = HistoryConfig::default();
    let batch = |routine: &Routine<'_>| HistoryBatch {
        name: LockName::new(routine.0).expect("the table has names of locks"),
        bounds: HistoryBounds {
            entries: config.entries,
            keep: config.keep_ms.duration(),
        },
        records: (0..(PAST - GAP) / (routine.3 + routine.4))
            .map(|number| record(*routine, number, now))
            .collect(),
        counts: HistoryCounts::default(),
    };
    ROUTINES.iter().map(batch).collect()
}

/// The record of a lease of a routine; the last lease before `now` has the number 0.
fn record(routine: Routine<'_>, number: u64, now: SystemTime) -> HistoryRecord {
    let (lock, owner, slot, held, pause, odd_end) = routine;
    let ago = |seconds| now.checked_sub(Duration::from_secs(seconds));
    let ended = GAP + number * (held + pause);
    // Between 60 and 100 percent of the longest hold.
    let acquired = ended + held * (60 + number * 37 % 41) / 100;
    let end = if number == 1 { odd_end } else { "released" };
    let note = |kind: &str, seconds, reason: Option<&str>| HistoryNote {
        kind: kind.to_owned(),
        at: rfc3339(ago(seconds)).to_string(),
        by: ["released", "broken"]
            .contains(&kind)
            .then(|| "127.0.0.1".to_owned()),
        reason: reason.map(str::to_owned),
    };
    let reason = (end == "broken").then_some("runner 7 hangs (simulated)");
    let mut notes = vec![note(end, ended, reason)];
    if lock == "import:orders" && end == "expired" {
        notes.push(note("stale-write-refused", ended - 5, None));
    }
    let run = lock
        .strip_prefix("deploy:")
        .map(|what| (what, FIRST_RUN - 1 - number));
    let mode = slot.map_or(Mode::Exclusive, |slot| Mode::Shared { slot: Some(slot) });
    let since_1970 = ago(acquired).and_then(|it| it.duration_since(SystemTime::UNIX_EPOCH).ok());
    // The store counts on from the present time in microseconds.
    let fence = since_1970
        .and_then(|it| u64::try_from(it.as_micros()).ok())
        .unwrap_or(1);
    let entry = HistoryEntry {
        fencing_token: fence,
        mode: Some(mode.as_str().to_owned()),
        slot,
        owner: Some(run.map_or_else(
            || simulated(owner),
            |(what, run)| simulated(run_of(what, run)),
        )),
        metadata: run.map(|(what, run)| job(what, run)).unwrap_or_default(),
        order: run.map(|(_, run)| run),
        acquired_at: Some(rfc3339(ago(acquired)).to_string()),
        acquired_by: Some("127.0.0.1".to_owned()),
        waited_ms: Some(number * 7_919 % 60_000),
        notes,
        ..HistoryEntry::default()
    };
    let text = serde_json::to_string(&entry).expect("an entry is JSON");
    HistoryRecord::new(fence, &text, true)
}

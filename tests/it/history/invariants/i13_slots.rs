//! I13: slots are distinct. No two leases of a lock that are relied on together, or seen together, have the same slot.
//! A lease with a limit has a slot below the limit, and keeps it for its life; a lease without a limit has no slot.
//! Where the store may have forgotten a lease, two leases with its slot are counted as an overlap.

use std::collections::HashMap;

use super::prelude::*;

pub(in super::super) fn check(history: &History, _terms: &Terms, report: &mut Report) {
    for (name, lock) in &history.locks {
        for op in history.of_lock(lock) {
            if let Some(what) = wrong(lock, op) {
                report.violated(Invariant::I13, name, op.returned(), what);
            }
        }
        had_together(history, name, lock, report);
        for observation in &lock.observations {
            let slots = observation.holders.iter().filter_map(|seen| seen.slot);
            let mut slots: Vec<_> = slots.collect();
            slots.sort_unstable();
            if let Some([twice, ..]) = slots.windows(2).find(|pair| pair[0] == pair[1]) {
                let what = format!("slot {twice} was seen twice at once");
                report.violated(Invariant::I13, name, observation.heard, what);
            }
        }
    }
}

/// The reason why the slot of an answer is wrong; nothing if the slot is right.
fn wrong(lock: &Lock, op: &Op) -> Option<String> {
    let (fence, slot) = match op.answer()? {
        RecordedAnswer::Granted { fence, slot, .. }
        | RecordedAnswer::Renewed { fence, slot, .. } => (fence, *slot),
        _ => return None,
    };
    let lease = lock.leases.get(fence)?;
    let Lease { errand, mode, .. } = lease;
    if slot != lease.slot {
        let before = lease.slot;
        return Some(format!(
            "{fence} ({errand}) had {before:?}, and then {slot:?}"
        ));
    }
    let limit = mode.limit();
    let fits = match (slot, limit) {
        (Some(slot), Some(limit)) => slot < limit,
        (None, None) => true,
        _ => false,
    };
    (!fits).then(|| format!("{fence} ({errand}) has the limit {limit:?} and the slot {slot:?}"))
}

/// Reports two leases that had the same slot at the same time.
fn had_together(history: &History, name: &str, lock: &Lock, report: &mut Report) {
    let mut leases: Vec<_> = lock.leases.values().collect();
    leases.sort_by_key(|lease| lease.granted);
    let mut longest = HashMap::<u64, &Lease>::new();
    for lease in leases {
        let Some(slot) = lease.slot else { continue };
        let before = longest.entry(slot).or_insert(lease);
        if before.fence != lease.fence {
            let had = format!("had slot {slot}");
            report.together(Invariant::I13, history, name, [before, lease], &had);
        }
        if before.relied_on() < lease.relied_on() {
            *before = lease;
        }
    }
}

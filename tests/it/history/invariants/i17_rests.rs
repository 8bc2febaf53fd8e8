//! I17: a lock that rests is granted to nobody, and neither is a slot of a shared lock. After the release of a lease with
//! a minimum hold, no later grant that the rest excludes was heard of before the minimum hold was over, counted from the
//! earliest time at which the lease can have been granted: when it was asked for, or when the rests that exclude it were
//! over. A break or a release request may end the rest. Where the store may have forgotten the rest, nothing is checked.

use std::collections::BTreeMap;

use super::prelude::*;

/// The rest that a lease has left.
#[derive(Clone, Copy)]
struct Rest {
    fence: u64,
    /// When the lease was asked for.
    asked: u64,
    /// The earliest time at which the rest can have been over.
    over: u64,
}

pub(in super::super) fn check(history: &History, _terms: &Terms, report: &mut Report) {
    for (name, lock) in &history.locks {
        // The last rest of the whole lock, which has no slot, and of each slot.
        let mut rests = BTreeMap::<Option<u64>, Rest>::new();
        for lease in lock.leases.values() {
            let shares = lease.mode.shares();
            let excluding = rests.iter().filter(|(slot, rest)| {
                let excludes = !shares || slot.is_none() || **slot == lease.slot;
                excludes && !history.faults.forgot(rest.asked, lease.granted)
            });
            let last = excluding.map(|(_, rest)| *rest).max_by_key(|it| it.over);
            let free_from = last.map_or(0, |rest| rest.over);
            if let Some(Rest { fence, over, .. }) = last {
                report.rests[usize::from(shares)] += 1;
                if lease.granted < over {
                    let what = format!(
                        "{} was granted to {} {} ms before the rest of {fence} was over",
                        lease.fence,
                        lease.errand,
                        (over - lease.granted) / MS,
                    );
                    report.violated(Invariant::I17, name, lease.granted, what);
                }
            }
            // Shared leases without a slot do not exclude each other.
            let excludes = !shares || lease.slot.is_some();
            if excludes && lease.min_hold > 0 && is_released(history, lock, lease) {
                let rest = Rest {
                    fence: lease.fence,
                    asked: lease.asked,
                    over: free_from.max(lease.asked) + lease.min_hold,
                };
                rests.insert(lease.slot, rest);
            }
        }
    }
}

/// Whether a release has certainly ended a lease, and no break may have ended its rest.
fn is_released(history: &History, lock: &Lock, lease: &Lease) -> bool {
    let about = || {
        let ops = history.of_lock(lock);
        ops.filter(|op| op.about() == Some(lease.fence))
    };
    about().any(|op| op.answer() == Some(&RecordedAnswer::Released))
        && !about().any(|op| matches!(op.ask, Ask::Break { .. }))
}

//! I17: a lock that rests is granted to nobody. After the release of an exclusive lease with a minimum hold, no later
//! grant of the lock was heard of before the minimum hold was over, counted from the earliest time at which the lease can
//! have been granted: when it was asked for, or when the rest before it was over. A break or a release request may end
//! the rest. Where the store may have forgotten the rest, nothing is checked.

use super::prelude::*;

pub(in super::super) fn check(history: &History, _terms: &Terms, report: &mut Report) {
    for (name, lock) in &history.locks {
        // The fence of the last lease that left a rest, when it was asked for, and when its rest was over at the earliest.
        let mut rest: Option<(u64, u64, u64)> = None;
        for lease in lock.leases.values().filter(|lease| !lease.mode.shares()) {
            let known = rest.filter(|rest| !history.faults.forgot(rest.1, lease.granted));
            let free_from = known.map_or(0, |rest| rest.2);
            if let Some((fence, ..)) = known
                && lease.granted < free_from
            {
                let what = format!(
                    "{} was granted to {} {} ms before the rest of {fence} was over",
                    lease.fence,
                    lease.errand,
                    (free_from - lease.granted) / MS,
                );
                report.violated(Invariant::I17, name, lease.granted, what);
            }
            let about = || {
                history
                    .of_lock(lock)
                    .filter(|op| op.about() == Some(lease.fence))
            };
            let released = about().any(|op| op.answer() == Some(&RecordedAnswer::Released));
            let broken = about().any(|op| matches!(op.ask, Ask::Break { .. }));
            if lease.min_hold > 0 && released && !broken {
                let granted = free_from.max(lease.asked);
                rest = Some((lease.fence, lease.asked, granted + lease.min_hold));
            }
        }
    }
}

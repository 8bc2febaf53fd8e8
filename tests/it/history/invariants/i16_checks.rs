//! I16: a check of a fencing token passes while the holder relies on the lease, and no longer when its end was answered,
//! a lease was granted that excludes it, or its TTL is over. Where the store may have forgotten the lease or its end,
//! nothing is checked.

use super::prelude::*;

/// How many later leases are searched for one that excludes the lease. The next one does, or shares the lock.
const LATER: usize = 16;

pub(in super::super) fn check(history: &History, terms: &Terms, report: &mut Report) {
    for (name, lock) in &history.locks {
        for op in history.of_lock(lock) {
            let Ask::Check { fence } = op.ask else {
                continue;
            };
            let Some(lease) = lock.leases.get(&fence) else {
                continue;
            };
            let why = match op.answer() {
                Some(RecordedAnswer::Passed) => outlived(history, lock, lease, op, terms),
                Some(RecordedAnswer::Stale) => {
                    let relied_on = op.returned() < lease.lasts.min(lease.ending);
                    let is_lost = history.faults.forgot(lease.asked, op.returned());
                    let is_wrong = lease.granted <= op.asked && relied_on && !is_lost;
                    is_wrong.then_some("did not pass while the lease lasted")
                }
                _ => None,
            };
            report.checks += usize::from(op.outcome() == OpOutcome::Known);
            if let Some(why) = why {
                let what = format!("the check of {fence} by {} {why}", lease.errand);
                report.violated(Invariant::I16, name, op.returned(), what);
            }
        }
    }
}

/// Why a check that has passed should not have.
fn outlived(
    history: &History,
    lock: &Lock,
    lease: &Lease,
    op: &Op,
    terms: &Terms,
) -> Option<&'static str> {
    let is_known = |since| since < op.asked && !history.faults.forgot(since, op.returned());
    let mut later = lock.leases.range(lease.fence + 1..).take(LATER);
    let shares = lease.mode.shares();
    let is_excluded =
        later.any(|(_, next)| !(shares && next.mode.shares()) && is_known(next.granted));
    if is_known(lease.ended) {
        Some("passed after the end of the lease was answered")
    } else if is_excluded {
        Some("passed after another lease was granted")
    } else if lease.may_last.saturating_add(terms.second()) < op.asked {
        Some("passed after the TTL of the lease was over")
    } else {
        None
    }
}

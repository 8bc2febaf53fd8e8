//! I9: only the holder renews and releases its lease. A token that was never granted has no effect. A lease is neither
//! renewed nor released after its end, or after a grant that excludes it, unless the store may have forgotten this end
//! or this grant since.

use std::collections::HashMap;

use super::prelude::*;

pub(in super::super) fn check(history: &History, terms: &Terms, report: &mut Report) {
    for (name, lock) in &history.locks {
        let forged = |op: &&Op| matches!(op.ask, Ask::Forge { .. });
        for op in history.of_lock(lock).filter(forged) {
            let refused = matches!(
                op.answer(),
                None | Some(
                    RecordedAnswer::Lost | RecordedAnswer::Refused { .. } | RecordedAnswer::Unknown
                )
            );
            if !refused {
                let what = format!(
                    "a token that nobody was given was answered {:?}",
                    op.answer()
                );
                report.violated(Invariant::I9, name, op.returned(), what);
            }
        }
        // Grouped once for all leases: a lock that is contended for ten minutes has a hundred thousand leases, and one
        // pass for each lease would take too long.
        let (mut grants, mut uses) = (OpsOfLeases::new(), OpsOfLeases::new());
        for op in history.of_lock(lock) {
            if let Some(fence) = op.granted() {
                grants.entry(fence).or_default().push(op);
            }
            if let Some(fence) = op.about() {
                uses.entry(fence).or_default().push(op);
            }
        }
        // The earliest later grant of any lease, and the earliest later grant of an exclusive lease.
        let (mut followed, mut followed_alone) = (NEVER, NEVER);
        for lease in lock.leases.values().rev() {
            let grants = grants.get(&lease.fence).into_iter().flatten();
            let may_last = grants.map(|op| upper(op)).max().unwrap_or(NEVER);
            let uses = uses.get(&lease.fence).into_iter().flatten().copied();
            let shares = lease.mode.shares();
            let next = if shares { followed_alone } else { followed };
            outlived(history, lease, uses, (next, may_last), terms, report);
            followed = followed.min(lease.granted);
            if !shares {
                followed_alone = followed_alone.min(lease.granted);
            }
        }
    }
}

/// The operations of one lock, by the fencing token of the lease that they are about.
type OpsOfLeases<'a> = HashMap<u64, Vec<&'a Op>>;

/// Reports renewals and releases of a lease after its end. `followed`: when a later lease was granted that excludes
/// this one.
fn outlived<'a>(
    history: &History,
    lease: &Lease,
    uses: impl Iterator<Item = &'a Op>,
    (followed, mut may_last): (u64, u64),
    terms: &Terms,
    report: &mut Report,
) {
    let (mut ended, mut released) = (NEVER, false);
    for op in uses {
        let is_release = matches!(op.ask, Ask::Release { .. });
        // An earlier release may have ended the lease, and is remembered, also without a key at a gateway that did not
        // grant the lease.
        let repeatable = is_release && (lease.keyed || released);
        released |= is_release;
        let done = matches!(
            op.answer(),
            Some(RecordedAnswer::Renewed { .. } | RecordedAnswer::Released)
        );
        if done && !repeatable {
            let is_known = |since| since < op.asked && !history.faults.forgot(since, op.returned());
            let why = if is_known(followed) {
                Some("another lease was granted")
            } else if is_known(ended) {
                Some("its end was answered")
            } else if may_last.saturating_add(terms.second()) < op.asked {
                Some("its TTL was over")
            } else {
                None
            };
            if let Some(why) = why {
                let what = format!(
                    "{:?} of {} was carried out after {why}",
                    op.ask, lease.errand
                );
                report.violated(Invariant::I9, &lease.lock, op.returned(), what);
            }
        }
        match (&op.ask, op.answer()) {
            (Ask::Renew { .. }, Some(RecordedAnswer::Renewed { left_ms, .. })) => {
                may_last = may_last.max(op.returned() + left_ms * MS);
            }
            (Ask::Renew { .. }, _) if op.outcome() == OpOutcome::Open => may_last = NEVER,
            (Ask::Release { .. }, Some(RecordedAnswer::Released))
            | (Ask::Break { .. }, Some(RecordedAnswer::Broken)) => ended = ended.min(op.returned()),
            _ => {}
        }
    }
}

/// The latest time at which the TTL of a grant ends if the lease is not renewed.
fn upper(op: &Op) -> u64 {
    op.may_last().filter(|_| !op.is_hold()).unwrap_or(NEVER)
}

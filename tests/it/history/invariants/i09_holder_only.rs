//! I9: only the holder renews and releases. A token that nobody was given does nothing; a lease that has
//! ended, or after which another was granted, is neither renewed nor released.

use super::super::{
    History, Report, Terms,
    found::Invariant,
    lease::Lease,
    line::{Ask, RecordedAnswer},
    op::{MS, NEVER, Op, OpOutcome},
    read::Lock,
};

pub(super) fn check(history: &History, terms: &Terms, report: &mut Report) {
    for (name, lock) in &history.locks {
        let forged = |op: &&Op| matches!(op.ask, Ask::Forge { .. });
        for op in history.of(lock).filter(forged) {
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
        for lease in lock.leases.values() {
            outlived(history, lock, lease, terms, report);
        }
    }
}

/// Looks for what was done with a lease after its end.
fn outlived(history: &History, lock: &Lock, lease: &Lease, terms: &Terms, report: &mut Report) {
    let followed = lock.leases.range(lease.fence + 1..);
    let followed = followed.map(|(_, next)| next.granted).min();
    let grant = history
        .of(lock)
        .filter(|op| op.granted() == Some(lease.fence));
    let mut may_last = grant.map(upper).max().unwrap_or(NEVER);
    let mut ended = NEVER;
    for op in history
        .of(lock)
        .filter(|op| op.about() == Some(lease.fence))
    {
        let repeatable = lease.keyed && matches!(op.ask, Ask::Release { .. });
        let done = matches!(
            op.answer(),
            Some(RecordedAnswer::Renewed { .. } | RecordedAnswer::Released)
        );
        if done && !repeatable {
            let why = if followed.is_some_and(|next| next < op.asked) {
                Some("another lease was granted")
            } else if ended < op.asked {
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

/// How long a grant lasts at most.
fn upper(op: &Op) -> u64 {
    match op.wants() {
        Some((ttl, _)) if !op.is_hold() => op.returned().saturating_add(ttl),
        _ => NEVER,
    }
}

//! I18: a reservation lasts until its time, and no longer. Every answer about it says that the rest of the time is left,
//! however long its request was queued and however often it was renewed, unless its release was requested. Before this
//! time, and before anybody ended it, no other caller is granted the lock, unless the store may have forgotten the
//! reservation. No request for a reservation is refused because its time is over before it is. Other invariants check
//! the end: nobody renews the lease (I9) or sees it (I8) later than a second after its time, and the waiters are granted
//! the lock (I7).

use super::prelude::*;

pub(in super::super) fn check(history: &History, _terms: &Terms, report: &mut Report) {
    for (name, lock) in &history.locks {
        for op in history.of_lock(lock) {
            if let Some(what) = wrong(lock, op) {
                report.violated(Invariant::I18, name, op.returned(), what);
            }
        }
        let mut leases = lock.leases.values().peekable();
        while let Some(lease) = leases.next() {
            let Some(until) = lease.reserved_until else {
                continue;
            };
            report.reservations += 1;
            let Some(next) = leases.peek() else { continue };
            let reserved = lease.ending.min(until - CLOCKS);
            if next.granted < reserved && !history.faults.forgot(lease.asked, next.granted) {
                let what = format!(
                    "{} was granted to {}, and {} had reserved the lock for {} ms longer",
                    next.fence,
                    next.errand,
                    lease.errand,
                    (reserved - next.granted) / MS
                );
                report.violated(Invariant::I18, name, next.granted, what);
            }
        }
    }
}

/// The reason why an answer about a reservation is wrong; nothing if it is right.
fn wrong(lock: &Lock, op: &Op) -> Option<String> {
    let fence = match op.answer()? {
        RecordedAnswer::Refused { code } if code == "reservation-over" => {
            let early = op.reserved_until()?.checked_sub(op.returned() + CLOCKS)?;
            let errand = &op.errand;
            return Some(format!(
                "{errand} was told {} ms too early that its time is over",
                early / MS
            ));
        }
        RecordedAnswer::Granted { fence, .. } | RecordedAnswer::Renewed { fence, .. } => fence,
        _ => return None,
    };
    let lease = lock.leases.get(fence)?;
    let until = lease.reserved_until?;
    let left = op.left()?;
    if op.asked + left > until + CLOCKS {
        let longer = (op.asked + left - until) / MS;
        return Some(format!(
            "{} was answered {longer} ms more than its reservation lasts",
            lease.errand
        ));
    }
    // The time that is left counts from when the gateway sent its command, so that it is never too long.
    let took = op.returned() - op.asked;
    let shorter = until.checked_sub(op.returned() + left + took + CLOCKS)?;
    (lease.asked_for == NEVER).then(|| {
        format!(
            "{} was answered {} ms less than its reservation lasts",
            lease.errand,
            shorter / MS
        )
    })
}

//! I20: a lock never goes back. Of the leases of a lock, in the order of their fencing tokens, none has a lower order
//! than an earlier lease of which its client was told, or than that client has set during the lease. Where the store may
//! have forgotten the earlier lease, nothing is checked.
//!
//! A request is refused only for a higher order than its own, for which the lock may have been granted. If no client was
//! told of such a grant, the order counts for as long as the lease holds the lock, and no longer if the lease is taken
//! back. So the refusal is wrong if another lease held the lock all the time from the request to its answer, and the
//! lease of the higher order can have ended only by being taken back: its TTL was not over, nobody broke it, and the
//! store has forgotten nothing. If its TTL was over, its answer may have been written when its client hung up, or its
//! gateway may have been killed: then the order counts for good.
//!
//! A repetition under an idempotency key whose lease lives is never refused because of its order.

use std::collections::HashMap;

use super::prelude::*;

/// The requests that may have raised the order of a lock, by the orders that they named.
type Naming<'a> = HashMap<u64, Vec<&'a Op>>;

pub(in super::super) fn check(history: &History, _terms: &Terms, report: &mut Report) {
    for (name, lock) in &history.locks {
        falls(history, name, lock, report);
        let mut naming = Naming::new();
        for op in history.of_lock(lock) {
            if let Some(order) = op.order().or(raised_to(op)) {
                naming.entry(order).or_default().push(op);
            }
        }
        let mut leases: Vec<&Lease> = lock.leases.values().collect();
        leases.sort_by_key(|lease| lease.granted);
        for op in history.of_lock(lock) {
            let Some(RecordedAnswer::Outdated { granted_order }) = op.answer() else {
                continue;
            };
            report.orders[1] += 1;
            let why = if op.order().is_none_or(|order| order >= *granted_order) {
                Some("which is not higher")
            } else if has_its_lease(history, lock, op) {
                Some("although the lease of its key lived")
            } else {
                let named = naming.get(granted_order).into_iter().flatten();
                let mut named = named.filter(|other| other.asked < op.returned());
                let holder = holder_throughout(history, &leases, op);
                let counts = named.any(|other| may_count(history, lock, other, op, holder));
                (!counts).then_some("for which the lock was not granted, or not for long")
            };
            if let Some(why) = why {
                let what = format!(
                    "{} with the order {:?} was refused because of {granted_order}, {why}",
                    op.errand,
                    op.order()
                );
                report.violated(Invariant::I20, name, op.returned(), what);
            }
        }
    }
}

/// Reports leases with a lower order than an earlier one.
fn falls(history: &History, name: &str, lock: &Lock, report: &mut Report) {
    let set = history.of_lock(lock).filter_map(|op| match op.ask {
        Ask::RaiseOrder { fence, to, .. } if op.answer() == Some(&RecordedAnswer::OrderRaised) => {
            Some((fence, to))
        }
        _ => None,
    });
    let set: HashMap<u64, u64> = set.collect();
    let mut highest: Option<(u64, &Lease)> = None;
    for lease in lock.leases.values() {
        let Some(order) = lease.order else { continue };
        report.orders[0] += 1;
        highest = highest.filter(|(_, it)| !history.faults.forgot(it.asked, lease.granted));
        if let Some((higher, before)) = highest.filter(|(highest, _)| order < *highest) {
            let what = format!(
                "{} was granted to {} with the order {order}, after {} with {higher}",
                lease.fence, lease.errand, before.fence
            );
            report.violated(Invariant::I20, name, lease.granted, what);
        }
        let order = set.get(&lease.fence).map_or(order, |set| order.max(*set));
        if highest.is_none_or(|(highest, _)| highest <= order) {
            highest = Some((order, lease));
        }
    }
}

/// The order that a request may have set.
fn raised_to(op: &Op) -> Option<u64> {
    match op.ask {
        Ask::RaiseOrder { to, .. } if !op.was_refused() => Some(to),
        _ => None,
    }
}

/// Whether a lease of the idempotency key of a request lived all the time from the request to its answer.
fn has_its_lease(history: &History, lock: &Lock, op: &Op) -> bool {
    let granted = history.of_errand(lock, &op.errand).filter_map(Op::granted);
    let mut leases = granted.filter_map(|fence| lock.leases.get(&fence));
    op.is_keyed() && leases.any(|lease| holds_throughout(history, lease, op))
}

/// The lease that held the lock all the time from a request to its answer, if one is known.
fn holder_throughout<'a>(history: &History, leases: &[&'a Lease], op: &Op) -> Option<&'a Lease> {
    let heard = leases.partition_point(|lease| lease.granted <= op.asked);
    let last = *leases[..heard].last()?;
    holds_throughout(history, last, op).then_some(last)
}

fn holds_throughout(history: &History, lease: &Lease, op: &Op) -> bool {
    lease.granted <= op.asked
        && op.returned() < lease.lasts.min(lease.ending)
        && !history.faults.forgot(lease.asked, op.returned())
}

/// Whether the order that `other` named may count when `op` was refused, during which `holder` held the lock.
fn may_count(history: &History, lock: &Lock, other: &Op, op: &Op, holder: Option<&Lease>) -> bool {
    let Some((ttl, _)) = other.wants() else {
        return true;
    };
    let broken = || {
        let mut of_errand = history.of_errand(lock, &other.errand);
        of_errand.any(|it| matches!(it.ask, Ask::Break { .. }))
    };
    holder.is_none()
        || other.granted().is_some()
        || other.asked.saturating_add(ttl) <= op.returned()
        || history.faults.forgot(other.asked, op.returned())
        || broken()
}

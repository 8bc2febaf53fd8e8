//! I11: waiters are served in the order in which they entered the queue. A waiter that was seen in the queue before
//! another request was sent is granted the lock before this request, whichever gateways they asked; where the store
//! promises less, only if they asked the same gateway. Exempt are waiters that may have lost their position: by a
//! fault, or because a lease that they were handed was broken before they heard of it (a group that loses one lock
//! starts again with all locks). No waiter passes another, neither for a shared nor for an exclusive lease.

use super::prelude::*;

pub(in super::super) fn check(history: &History, terms: &Terms, report: &mut Report) {
    let within = terms.order_within_gateways;
    for (name, lock) in &history.locks {
        // One list for each gateway, or one for all. An errand that asked several gateways has a position at each and
        // may be granted the lock by any, so it is in no gateway's list.
        let last = lock.leases.values().filter_map(|lease| lease.to).max();
        let groups = 0..=if within { last.unwrap_or_default() } else { 0 };
        let groups = groups.map(|group| later(lock, |lease| !within || lease.to == Some(group)));
        let groups: Vec<_> = groups.collect();
        for observation in &lock.observations {
            for owner in &observation.waiters {
                let waited = history.of_errand(lock, owner).find(|op| {
                    op.wants().is_some()
                        && op.asked < observation.asked
                        && observation.heard < op.given_up()
                });
                let Some((op, fence)) = waited.and_then(|op| Some((op, op.granted()?))) else {
                    continue;
                };
                if history.faults.felt(observation.asked, op.returned())
                    || history.of_errand(lock, owner).any(|ask| breaks(ask, op))
                    || history.beside(op).any(|ask| breaks(ask, op))
                {
                    continue;
                }
                let group = if within {
                    lock.only_gateway(&history.ops, owner)
                } else {
                    Some(0)
                };
                let Some(later) = group.and_then(|group| groups.get(group)) else {
                    continue;
                };
                let first = later.partition_point(|(asked, ..)| *asked <= observation.heard);
                if let Some((_, passed, by)) = later.get(first)
                    && *passed < fence
                {
                    let what = format!(
                        "{owner} was queued before {by} asked, and was granted {fence} after {passed}"
                    );
                    report.violated(Invariant::I11, name, op.returned(), what);
                }
            }
        }
    }
}

/// Whether a break may have taken a lease that was handed to the waiter before the waiter was told. The waiter then
/// enters the queue again.
fn breaks(ask: &Op, waiter: &Op) -> bool {
    let broken = matches!(ask.ask, Ask::Break { .. });
    let refused = matches!(ask.answer(), Some(RecordedAnswer::Refused { .. }));
    broken && !refused && ask.about() != waiter.granted() && ask.asked < waiter.returned()
}

/// For each lease, in order of its first request: the smallest fencing token of this and all later leases, and its
/// errand.
fn later(lock: &Lock, of: impl Fn(&Lease) -> bool) -> Vec<(u64, u64, &str)> {
    let leases = lock.leases.values().filter(|lease| of(lease));
    let mut later: Vec<_> = leases
        .map(|lease| (lease.asked, lease.fence, lease.errand.as_str()))
        .collect();
    later.sort_unstable();
    let mut smallest: Option<(u64, &str)> = None;
    for entry in later.iter_mut().rev() {
        match smallest {
            Some((fence, errand)) if fence < entry.1 => (entry.1, entry.2) = (fence, errand),
            _ => smallest = Some((entry.1, entry.2)),
        }
    }
    later
}

//! I11: waiters are served in the order in which they asked. Whoever was seen in the queue before another
//! asked is granted the lock before it, whichever gateways they asked (where the store promises no more: if
//! they asked the same one); where nothing was broken that may have cost it its place: no fault, and no lease
//! that it had been handed and had not heard of yet (a group that loses one lock begins again with all). Nobody passes another, whether they share the lock or not.

use super::prelude::*;

pub(in super::super) fn check(history: &History, terms: &Terms, report: &mut Report) {
    let within = terms.order_within_gateways;
    for (name, lock) in &history.locks {
        // Of each gateway, or of all together. Who asked at several stood in the line of each, and was granted
        // the lock by any.
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

/// Whether this takes away what the waiter was handed before it could be told, which then asks anew.
fn breaks(ask: &Op, waiter: &Op) -> bool {
    let broken = matches!(ask.ask, Ask::Break { .. });
    let refused = matches!(ask.answer(), Some(RecordedAnswer::Refused { .. }));
    broken && !refused && ask.about() != waiter.granted() && ask.asked < waiter.returned()
}

/// For each lease, by when it was asked for: the smallest fencing token from there on, and whose it is.
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

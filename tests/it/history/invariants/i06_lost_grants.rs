//! I6: no grant is lost. While a holder may rely on its lease, and nobody has requested its end, the token renews and
//! releases the lease, and every observation of the lock shows it.

use super::prelude::*;

pub(in super::super) fn check(history: &History, _terms: &Terms, report: &mut Report) {
    for (name, lock) in &history.locks {
        for op in history.of_lock(lock) {
            let lease = op.about().and_then(|fence| lock.leases.get(&fence));
            let Some(lease) = lease else { continue };
            if op.answer() != Some(&RecordedAnswer::Lost) || matches!(op.ask, Ask::Break { .. }) {
                continue;
            }
            // A release ends the lease itself, so only requests other than this one count as the cause of the end.
            let ended = ended_before(history, lock, lease, op.asked, op.returned());
            if op.returned() < lease.lasts && !ended {
                let what = format!("{:?} of {} found it lost", op.ask, lease.errand);
                report.violated(Invariant::I6, name, op.returned(), what);
            }
        }
        unseen(history, name, lock, report);
    }
}

/// Whether another request, a fault or the end of a stream may have ended the lease before an answer was heard.
fn ended_before(history: &History, lock: &Lock, lease: &Lease, asked: u64, heard: u64) -> bool {
    let mut others = history.of_lock(lock);
    let ended = others.any(|other| {
        let ends = other.may_end_from().is_some_and(|from| from < heard);
        ends && other.about() == Some(lease.fence) && other.asked != asked
    });
    ended
        || history.faults.forgot(lease.asked, heard)
        || stream_is_over(history, lock, lease, heard)
}

fn stream_is_over(history: &History, lock: &Lock, lease: &Lease, heard: u64) -> bool {
    let mut streams = history.of_lock(lock).filter(|op| op.is_hold());
    streams.any(|op| op.granted() == Some(lease.fence) && op.over.is_some_and(|over| over < heard))
}

/// Reports observations that do not show a lease although its holder relied on it.
fn unseen(history: &History, name: &str, lock: &Lock, report: &mut Report) {
    let mut leases: Vec<&Lease> = lock.leases.values().collect();
    leases.sort_by_key(|lease| lease.granted);
    let mut leases = leases.into_iter().peekable();
    let mut observations: Vec<_> = lock.observations.iter().collect();
    observations.sort_by_key(|observation| observation.asked);
    // The leases that were known when the observation was requested, and that their holders still relied on.
    let mut known = Vec::<&Lease>::new();
    for observation in observations {
        while let Some(lease) = leases.next_if(|lease| lease.granted <= observation.asked) {
            known.push(lease);
        }
        known.retain(|lease| observation.asked < lease.relied_on());
        let seen = &observation.holders;
        if seen.is_empty() && !observation.complete {
            continue;
        }
        for lease in &known {
            if observation.heard < lease.relied_on()
                && seen.iter().all(|seen| seen.fence != lease.fence)
                && !history.faults.forgot(lease.asked, observation.heard)
            {
                let what = format!(
                    "{} held it with {}, and seen was {seen:?}",
                    lease.errand, lease.fence
                );
                report.violated(Invariant::I6, name, observation.heard, what);
            }
        }
    }
}

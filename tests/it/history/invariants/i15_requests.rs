//! I15: the holder of a lease with a release request is told so by each later renewal, and loses the lease when the
//! time of the request is over. The gateway that got the request breaks the lease; if this gateway has stopped, the
//! store ends the lease a second later, whatever its holder renews. Where the store may have forgotten the request,
//! nothing is checked. I6 checks that leases with other fencing tokens go on.

use std::collections::HashMap;

use super::prelude::*;

/// The release requests for one lease, merged.
#[derive(Clone, Copy)]
struct Requested {
    /// When the first request was sent.
    sent: u64,
    /// When the first request was certainly recorded: its answer had arrived.
    made: u64,
    /// When the lease must have ended because of a request.
    carried_out: u64,
}

pub(in super::super) fn check(history: &History, terms: &Terms, report: &mut Report) {
    for (name, lock) in &history.locks {
        let requested = requested(history, lock);
        report.requests.made += requested.len();
        for op in history.of_lock(lock) {
            let request = op.about().and_then(|fence| requested.get(&fence));
            let Some(request) = request else { continue };
            if let Some(what) = ignored(history, op, request, terms) {
                report.violated(Invariant::I15, name, op.returned(), what);
            }
            let RecordedAnswer::Renewed { asked_for, .. } =
                op.answer().unwrap_or(&RecordedAnswer::Unknown)
            else {
                let lost = op.answer() == Some(&RecordedAnswer::Lost);
                report.requests.carried_out += usize::from(lost);
                continue;
            };
            report.requests.told += usize::from(*asked_for);
        }
        for observation in &lock.observations {
            for seen in &observation.holders {
                let Some(request) = requested.get(&seen.fence) else {
                    continue;
                };
                let due = request.carried_out.saturating_add(terms.second());
                if due < observation.asked
                    && !history.faults.forgot(request.sent, observation.heard)
                {
                    let what = format!(
                        "{} held it with {} {} ms after the time to release it",
                        seen.owner,
                        seen.fence,
                        (observation.asked - due) / MS
                    );
                    report.violated(Invariant::I15, name, observation.heard, what);
                }
            }
        }
    }
}

/// The leases with a release request, by their fencing tokens.
fn requested(history: &History, lock: &Lock) -> HashMap<u64, Requested> {
    let mut requested = HashMap::new();
    for op in history.of_lock(lock) {
        let (Some(fence), Some(until)) = (op.about(), op.asks_until()) else {
            continue;
        };
        let request: &mut Requested = requested.entry(fence).or_insert(Requested {
            sent: op.asked,
            made: NEVER,
            carried_out: NEVER,
        });
        request.made = request.made.min(op.returned());
        request.carried_out = request.carried_out.min(until.saturating_add(BACKSTOP));
    }
    requested
}

/// The reason why an answer shows that a release request was ignored; nothing if it does not.
fn ignored(history: &History, op: &Op, request: &Requested, terms: &Terms) -> Option<String> {
    let renews = matches!(op.ask, Ask::Renew { .. });
    let asked_for = match op.answer()? {
        RecordedAnswer::Renewed { asked_for, .. } => *asked_for,
        RecordedAnswer::Released => true,
        _ => return None,
    };
    if history.faults.forgot(request.sent, op.returned()) {
        return None;
    }
    let due = request.carried_out.saturating_add(terms.second());
    if renews && due < op.asked {
        return Some(format!(
            "{} renewed it {} ms after the time to release it",
            op.errand,
            (op.asked - due) / MS
        ));
    }
    (request.made < op.asked && !asked_for).then(|| {
        format!(
            "{} renewed it, and was not told that it is to be released",
            op.errand
        )
    })
}

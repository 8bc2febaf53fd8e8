//! I3: leases that exclude each other are never relied on at the same time. A holder relies on a lease from when it
//! heard of the grant until the TTL ends or the release is sent. The TTL counts from when the holder sent the request,
//! or from when it received the answer, less a margin for the travel of the answer. An exclusive lease has no other
//! lease beside it; a shared lease with a limit was granted beside fewer leases than its limit. Where the store may
//! have forgotten a lease, an overlap is counted and is no violation.

use super::prelude::*;

pub(in super::super) fn check(history: &History, _terms: &Terms, report: &mut Report) {
    for (name, lock) in &history.locks {
        alone(history, name, lock, report);
        limits(history, name, lock, report);
        for observation in &lock.observations {
            seen_together(history, name, lock, observation, report);
        }
    }
}

/// Reports leases that overlap with an exclusive lease.
fn alone(history: &History, name: &str, lock: &Lock, report: &mut Report) {
    let mut leases: Vec<_> = lock.leases.values().collect();
    leases.sort_by_key(|lease| lease.granted);
    // Among the earlier leases, the exclusive one and the shared one that are relied on for the longest time.
    let mut longest: [Option<&Lease>; 2] = [None, None];
    for lease in leases {
        let shares = lease.mode.shares();
        for before in longest.iter().take(if shares { 1 } else { 2 }).flatten() {
            report.together(Invariant::I3, history, name, [before, lease], "held it");
        }
        let longest = &mut longest[usize::from(shares)];
        if longest.is_none_or(|before| before.relied_on() < lease.relied_on()) {
            *longest = Some(lease);
        }
    }
}

/// Reports grants beside as many leases as their limit. A lease with a smaller fencing token was granted earlier, and
/// it lived at this grant if its holder relied on it until after the grant was heard of.
fn limits(history: &History, name: &str, lock: &Lock, report: &mut Report) {
    let (mut living, mut asked) = (Vec::<&Lease>::new(), 0);
    for lease in lock.leases.values().filter(|lease| lease.mode.shares()) {
        // Later leases in this loop were granted after this one, so an earlier lease that is over now need not be kept.
        asked = lease.asked.max(asked);
        living.retain(|before| asked < before.relied_on());
        if let Some(limit) = lease.mode.limit() {
            let beside = living
                .iter()
                .filter(|before| lease.granted < before.relied_on());
            let (forgotten, kept): (Vec<&Lease>, Vec<&Lease>) =
                beside.partition(|before| history.faults.forgot(before.asked, lease.granted));
            if kept.len() as u64 >= limit {
                let what = format!(
                    "{} ({}) was granted with the limit {limit} beside {} others: {:?}",
                    lease.fence,
                    lease.errand,
                    kept.len(),
                    kept.iter().map(|it| it.fence).collect::<Vec<_>>()
                );
                report.violated(Invariant::I3, name, lease.granted, what);
            } else if (kept.len() + forgotten.len()) as u64 >= limit {
                let ends = forgotten.iter().map(|before| before.relied_on()).max();
                let both = ends.unwrap_or_default().min(lease.relied_on());
                report.overlaps.0 += 1;
                report.overlaps.1 += both.saturating_sub(lease.granted);
            }
        }
        living.push(lease);
    }
}

/// Reports holders that exclude each other and were seen in one answer: then the store itself granted both.
fn seen_together(
    history: &History,
    name: &str,
    lock: &Lock,
    observation: &Observation,
    report: &mut Report,
) {
    let holders = &observation.holders;
    if let [_, _, ..] = &holders[..]
        && let Some(alone) = holders.iter().find(|seen| !seen.shares)
    {
        let what = format!("{} was alone, and seen beside others", alone.fence);
        report.violated(Invariant::I3, name, observation.heard, what);
    }
    for Seen { fence, owner, .. } in holders {
        let mode = lock.mode_of(&history.ops, owner);
        if let Some(limit) = mode.and_then(Mode::limit) {
            let before = holders.iter().filter(|other| other.fence < *fence);
            let before = before.count() as u64;
            if before >= limit {
                let what = format!(
                    "{fence} ({owner}) has the limit {limit} and was seen beside {before} from before"
                );
                report.violated(Invariant::I3, name, observation.heard, what);
            }
        }
    }
}

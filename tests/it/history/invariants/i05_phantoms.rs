//! I5: no phantom holds a lock. Every holder that is seen has asked for the lock, and was not told before that it does
//! not get it. A fencing token is seen with the owner, the mode and the slot of its grant.

use super::prelude::*;

pub(in super::super) fn check(history: &History, terms: &Terms, report: &mut Report) {
    for (name, lock) in &history.locks {
        for observation in &lock.observations {
            for seen in &observation.holders {
                if let Some(what) = phantom(history, lock, observation, seen, terms) {
                    report.violated(Invariant::I5, name, observation.heard, what);
                }
            }
        }
    }
}

fn phantom(
    history: &History,
    lock: &Lock,
    observation: &Observation,
    seen: &Seen,
    terms: &Terms,
) -> Option<String> {
    let Seen {
        fence,
        owner,
        shares,
        slot,
    } = seen;
    let mode = lock.mode_of(&history.ops, owner);
    if let Some(mode) = mode.filter(|mode| mode.shares() != *shares) {
        return Some(format!(
            "{owner} asked for it as {mode:?} and was seen otherwise"
        ));
    }
    if let Some(lease) = lock.leases.get(fence) {
        let other = &lease.errand;
        if other != owner {
            return Some(format!(
                "{fence} was granted to {other} and seen with {owner}"
            ));
        }
        let had = lease.slot;
        return (had != *slot)
            .then(|| format!("{fence} was granted slot {had:?} and seen with {slot:?}"));
    }
    let requests = lock.errands.get(owner).map_or(&[][..], Vec::as_slice);
    let requests = || requests.iter().map(|place| &history.ops[*place]);
    let asking = || requests().filter(|op| op.wants().is_some());
    let Some(first) = asking().map(|op| op.asked).min() else {
        return Some(format!("{owner} holds it with {fence} and never asked"));
    };
    if observation.heard < first {
        return Some(format!("{owner} held it with {fence} before it asked"));
    }
    // A refused request may hold the lock later only if the store keeps its position, or if the store has forgotten
    // that it left the queue.
    let until = asking().map(|op| {
        let stands_again = history.faults.forgot(op.asked, observation.asked);
        let again = if stands_again {
            may_stand_until(op, terms)
        } else {
            0
        };
        may_be_granted_until(history, op, observation, terms).max(again)
    });
    let until = until.max();
    (until.unwrap_or_default() < observation.asked)
        .then(|| format!("{owner} holds it with {fence} after it was told that it does not"))
}

/// The time until which a request may hold the lock although its client was not told so.
fn may_be_granted_until(
    history: &History,
    op: &Op,
    observation: &Observation,
    terms: &Terms,
) -> u64 {
    let (ttl, _) = op.wants().unwrap_or_default();
    if op.was_refused() && op.is_keyed() {
        return op
            .returned()
            .saturating_add(terms.grace() + ttl + terms.second());
    }
    if !op.was_refused() && op.granted().is_none() {
        return NEVER;
    }
    if op.is_part() {
        // A group that does not get all locks releases the others at once; if a release fails, the lease ends with its
        // TTL.
        let felt = history.faults.felt(op.asked, observation.heard);
        let ttl = if felt { ttl } else { 0 };
        return op.returned().saturating_add(ttl + terms.second());
    }
    // The attempt was granted a lease, but with another fencing token. An earlier hand-off to it may have come too
    // late.
    op.returned()
}

/// The time until which the lock may be handed to a waiter whose leaving the store has forgotten.
fn may_stand_until(op: &Op, terms: &Terms) -> u64 {
    match op.wants() {
        Some((ttl, wait)) if wait > 0 => op.asked.saturating_add(wait + ttl + terms.second()),
        _ => 0,
    }
}

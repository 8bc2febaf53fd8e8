//! I8: no lease stays without a client. A grant that its client never heard of ends with its TTL and a second; with an
//! idempotency key, the grace is added. A released lease is gone, and a lease that is not renewed ends with its TTL.
//! Waiters of a killed gateway may be granted the lock for as long as the gateway counts as alive.
//!
//! A grant to a client that hung up in the queue is released at once, unless its answer was written in the same
//! instant: the gateway cannot tell such an answer from one that was read. So only a few of these leases may stay until
//! their TTL ends.

use std::collections::{HashMap, HashSet};

use super::prelude::*;

/// Both this number of late leases and one in `ONE_OF` are more than a few.
const FEW: usize = 4;
const ONE_OF: usize = 25;

pub(in super::super) fn check(history: &History, terms: &Terms, report: &mut Report) {
    kept_for_nobody(history, terms, report);
    for (name, lock) in &history.locks {
        for observation in &lock.observations {
            for seen in &observation.holders {
                let (due, why) = due(history, lock, observation, seen, terms);
                if due < observation.asked {
                    let what = format!(
                        "{} held it with {} {} ms after it should have been gone: {why}",
                        seen.owner,
                        seen.fence,
                        (observation.asked - due) / MS
                    );
                    report.violated(Invariant::I8, name, observation.heard, what);
                }
            }
        }
    }
}

/// The time by which an observed holder must be gone, and the reason for the message.
fn due(
    history: &History,
    lock: &Lock,
    observation: &Observation,
    seen: &Seen,
    terms: &Terms,
) -> (u64, &'static str) {
    if let Some(lease) = lock.leases.get(&seen.fence) {
        let over = lease.may_last.saturating_add(terms.second());
        if lease.ended < over && !history.faults.forgot(lease.ended, observation.heard) {
            return (lease.ended, "its end was answered");
        }
        let streams = history.of_lock(lock).filter(|op| op.is_hold());
        let stream = streams.filter(|op| op.granted() == Some(seen.fence)).last();
        if let Some(stream) = stream
            && stream.hung_up
            && !history.faults.felt(stream.asked, observation.heard)
        {
            return (
                stream.over.unwrap_or(NEVER).saturating_add(terms.second()),
                "its stream was closed",
            );
        }
        return (over, "its TTL is over");
    }
    let asked = lock.errands.get(&seen.owner).map_or(&[][..], Vec::as_slice);
    let asked = || {
        let requests = asked.iter().map(|place| &history.ops[*place]);
        requests.filter(|op| op.wants().is_some())
    };
    let Some(begun) = asked().map(|op| op.asked).min() else {
        return (NEVER, "nobody asked");
    };
    let over = asked().map(Op::given_up).max().unwrap_or(NEVER);
    let ttl = asked().filter_map(Op::wants).map(|(ttl, _)| ttl).max();
    let grace = if asked().any(Op::is_keyed) {
        terms.grace()
    } else {
        0
    };
    let later = grace + terms.second();
    let waited = asked().filter_map(Op::wants).any(|(_ttl, wait)| wait > 0);
    let (healed, alive) = if history.faults.felt(begun, observation.heard) {
        let alive = history.faults.counts_as_alive(observation.heard);
        let healed = history.faults.last_before(observation.heard);
        (healed, if waited { alive } else { 0 })
    } else {
        (0, 0)
    };
    let due = over
        .max(healed)
        .max(alive)
        .saturating_add(ttl.unwrap_or_default() + later);
    (due, "its client has gone, and its TTL is over")
}

/// Reports a violation if more clients that hung up in the queue hold locks later than answers of the same instant can
/// explain.
fn kept_for_nobody(history: &History, terms: &Terms, report: &mut Report) {
    let early = history.ops.iter().filter(|op| op.early && !op.is_keyed());
    let calm = early.filter(|op| {
        !history
            .faults
            .felt(op.asked, op.given_up() + terms.second())
    });
    let gone: HashMap<_, _> = calm
        .map(|op| {
            (
                op.errand.as_str(),
                op.given_up().saturating_add(terms.second()),
            )
        })
        .collect();
    let mut kept = HashSet::new();
    let mut last = 0;
    for observation in history.locks.values().flat_map(|lock| &lock.observations) {
        let owners = observation.holders.iter().map(|seen| seen.owner.as_str());
        for owner in owners {
            let is_late = gone.get(owner).is_some_and(|due| *due < observation.asked);
            if is_late && kept.insert(owner) {
                last = observation.heard;
            }
        }
    }
    if kept.len() >= FEW && kept.len() * ONE_OF >= gone.len() {
        let what = format!(
            "of {} clients that hung up in the queue {} held the lock a second later",
            gone.len(),
            kept.len()
        );
        report.violated(Invariant::I8, "all", last, what);
    }
}

//! I7: hand-offs are bounded. While a request waits, the lock is not left free for long. Without a fault, 99 of 100
//! hand-offs take at most 50 ms, and each takes at most one period and a second (if the holder has died, its TTL and a
//! second). After a fault, each gateway grants locks again within ten seconds that are free of faults.
//!
//! The same holds for a shared lock with room for all waiters beside its holders, whether the room comes from a
//! release, an expiry, or a waiter for an exclusive lease that left the queue (`room_beside`).
//!
//! Group requests do not count here: a group waits for one lock at a time, and no answer shows for which. I14 bounds
//! their waits.

use std::collections::{BTreeMap, HashSet};

use super::prelude::*;

/// With fewer hand-offs than this, a 99th percentile says nothing.
const ENOUGH: usize = 100;
/// The same for hand-offs after the head of the queue left. They are fewer: at least two must be slow for a violation.
const ENOUGH_LEFT: usize = 50;

pub(in super::super) fn check(history: &History, terms: &Terms, report: &mut Report) {
    // Durations of hand-offs after a release, and of those after a waiter for an exclusive lease left the queue.
    let (mut healthy, mut after_leave) = (Vec::new(), Vec::new());
    for (name, lock) in &history.locks {
        let waits = history
            .of_lock(lock)
            .filter_map(|op| wait(op, history.ends));
        let wanted = union(waits.collect());
        let taken = union(taken(history, lock, terms));
        let released: HashSet<u64> = lock.leases.values().map(|lease| lease.ended).collect();
        let left: HashSet<u64> = history.of_lock(lock).filter_map(left_alone).collect();
        let free = without(&wanted, &taken);
        let free = free.into_iter().map(|span| (span, "it was free"));
        let beside = room_beside(history, lock, terms).into_iter();
        let beside = beside.map(|span| (span, "those who wait could have shared it"));
        for ((from, until), how) in free.chain(beside) {
            let felt = history.faults.felt(from, until);
            if !felt && released.contains(&from) {
                healthy.push(until - from);
            } else if !felt && left.contains(&from) {
                after_leave.push(until - from);
            }
            let (took, bound) = if felt {
                (history.faults.calm(from, until), RECOVERY)
            } else {
                (until - from, terms.hand_off())
            };
            if took > bound {
                let what = format!(
                    "{how} for {} ms from {:.3} s on, {} of them without a fault, while somebody waited",
                    (until - from) / MS,
                    from as f64 / 1e9,
                    took / MS
                );
                report.violated(Invariant::I7, name, until, what);
            }
        }
    }
    report.hand_offs = judge((healthy, ENOUGH), terms, report, history.ends);
    report.after_leave = judge((after_leave, ENOUGH_LEFT), terms, report, history.ends);
    recoveries(history, report);
}

/// The span of time in which a request waits for the lock, cut at the end of the history.
fn wait(op: &Op, ends: u64) -> Option<Span> {
    let (_, wait) = op.wants().filter(|(_, wait)| *wait > 0 && !op.is_part())?;
    Some((op.asked, op.given_up().min(op.asked + wait).min(ends)))
}

/// The spans in which the lock is held, or may be held by a request that does not know it.
fn taken(history: &History, lock: &Lock, terms: &Terms) -> Vec<Span> {
    let seen = seen(lock);
    let leases = lock.leases.values();
    let leases = leases.map(|lease| (lease.granted, lease.free().min(lease.carried_out)));
    let unheard = history.of_lock(lock).filter_map(|op| {
        let until = may_hold_until(history, op, &seen, terms)?;
        Some((op.asked, until))
    });
    leases.chain(unheard).collect()
}

/// The owners that were seen to hold the lock.
fn seen(lock: &Lock) -> HashSet<&str> {
    let observations = lock.observations.iter();
    let holders = observations.flat_map(|observation| &observation.holders);
    holders.map(|holder| holder.owner.as_str()).collect()
}

/// The time until which a request without a known grant may hold the lock; none if it cannot hold it.
fn may_hold_until(history: &History, op: &Op, seen: &HashSet<&str>, terms: &Terms) -> Option<u64> {
    // A part of a group may hold its lock while the group waits for other locks.
    let is_part = op.is_part();
    let (ttl, _) = op.wants().filter(|_| op.granted().is_none() || is_part)?;
    let over = op.given_up();
    let grace = if op.is_keyed() { terms.grace() } else { 0 };
    let early = op.early && !seen.contains(op.errand.as_str());
    let (refused, felt) = (op.was_refused(), history.faults.felt(op.asked, over));
    let until = match op.answer() {
        Some(_) if is_part && (refused || op.granted().is_some()) && !felt => over,
        Some(_) if refused && !is_part && !op.is_keyed() => return None,
        Some(_) if refused && !is_part => over,
        None if over == NEVER && !is_part => return None,
        None if early && !felt => over,
        // The request may have been granted the lock while its client hung up, or while its gateway could not release
        // the undelivered lease.
        _ => over
            .max(history.faults.last_before(over))
            .saturating_add(ttl),
    };
    Some(until.saturating_add(grace + terms.second()))
}

/// When a waiter for an exclusive lease was told that its wait is over, without a grant.
fn left_alone(op: &Op) -> Option<u64> {
    let locked = matches!(op.answer(), Some(RecordedAnswer::Locked { .. }));
    let waited = op.wants().is_some_and(|(_, wait)| wait > 0) && !op.is_part();
    (locked && waited && !op.is_keyed() && !op.mode().shares()).then(|| op.returned())
}

/// The reasons for or against room on a shared lock, each with its own span of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// A request holds the lock exclusively, or wants to.
    Alone,
    /// A request shares the lock, or may share it without knowing it.
    Shares,
    /// A request wants to share the lock with this limit.
    Wants(u64),
}

/// For each waiter, its longest span of time with room beside the holders of a shared lock: no exclusive lease was held
/// or wanted, and the number of holders was below the limits of all waiters. In such a span the head of the queue must
/// be granted the lock, and then the next waiter.
fn room_beside(history: &History, lock: &Lock, terms: &Terms) -> Vec<Span> {
    let seen = seen(lock);
    let mut parts: Vec<(Span, Part)> = Vec::new();
    for lease in lock.leases.values() {
        let Lease { mode, granted, .. } = lease;
        let part = if mode.shares() {
            Part::Shares
        } else {
            Part::Alone
        };
        parts.push(((*granted, lease.free().min(lease.carried_out)), part));
    }
    for op in history.of_lock(lock).filter(|op| op.wants().is_some()) {
        let unheard = may_hold_until(history, op, &seen, terms);
        // A request without an answer may still wait in the queue or hold the lock.
        let until = unheard.unwrap_or(op.given_up());
        if op.mode().shares() {
            let limit = op.mode().limit().unwrap_or(u64::MAX);
            parts.push(((op.asked, until), Part::Wants(limit)));
            if unheard.is_some() {
                parts.push(((op.asked, until), Part::Shares));
            }
        } else {
            parts.push(((op.asked, until), Part::Alone));
        }
    }
    let room = union(room(parts));
    let mut longest = Vec::new();
    for op in history.of_lock(lock).filter(|op| op.mode().shares()) {
        let Some((from, until)) = wait(op, history.ends) else {
            continue;
        };
        let first = room.partition_point(|(_, ends)| *ends <= from);
        let mine = room[first..]
            .iter()
            .take_while(|(begins, _)| *begins < until);
        let mine = mine.map(|(begins, ends)| (from.max(*begins), until.min(*ends)));
        longest.extend(mine.max_by_key(|(from, until)| until - from));
    }
    longest
}

/// The spans in which the lock is shared and has room for every waiter.
fn room(parts: Vec<(Span, Part)>) -> Vec<Span> {
    let mut changes = Vec::with_capacity(2 * parts.len());
    for ((from, until), part) in parts {
        if from < until {
            changes.push((from, part, true));
            changes.push((until, part, false));
        }
    }
    changes.sort_unstable();
    let (mut alone, mut sharing, mut limits) = (0_u64, 0_u64, BTreeMap::<u64, u64>::new());
    let (mut room, mut since) = (Vec::new(), None);
    let mut changes = changes.into_iter().peekable();
    while let Some((at, part, begins)) = changes.next() {
        let count = match part {
            Part::Alone => &mut alone,
            Part::Shares => &mut sharing,
            Part::Wants(limit) => limits.entry(limit).or_default(),
        };
        *count = if begins { *count + 1 } else { *count - 1 };
        if let Part::Wants(limit) = part
            && limits.get(&limit) == Some(&0)
        {
            limits.remove(&limit);
        }
        if changes.peek().is_some_and(|(next, ..)| *next == at) {
            continue;
        }
        let smallest = limits.keys().next().copied().unwrap_or(u64::MAX);
        let is_room = alone == 0 && sharing > 0 && sharing < smallest;
        if is_room {
            since = since.or(Some(at));
        } else if let Some(since) = since.take() {
            room.push((since, at));
        }
    }
    room
}

/// The 99th percentile of hand-offs and their number, if there were enough. A percentile above the bound is a
/// violation.
fn judge(
    (mut healthy, enough): (Vec<u64>, usize),
    terms: &Terms,
    report: &mut Report,
    at: u64,
) -> Option<(u64, usize)> {
    healthy.sort_unstable();
    if healthy.len() < enough {
        return None;
    }
    let p99 = healthy.get(healthy.len().saturating_sub(1) * 99 / 100)?;
    if *p99 > terms.healthy_hand_off() {
        let what = format!("one of 100 hand-offs took more than {} ms", p99 / MS);
        report.violated(Invariant::I7, "all", at, what);
    }
    Some((*p99, healthy.len()))
}

/// Reports gateways that granted no lock for too long after a fault, and records the slowest recovery.
fn recoveries(history: &History, report: &mut Report) {
    let gateways = history.ops.iter().map(|op| op.to).max();
    for fault in history
        .faults
        .all
        .values()
        .filter(|fault| fault.heals != NEVER)
    {
        let after = history.ops.partition_point(|op| op.asked < fault.heals);
        for gateway in 0..=gateways.unwrap_or_default() {
            // Only requests without a wait count: a waiter may wait for the holder, not for the gateway.
            let prompt = |op: &&Op| op.to == gateway && op.wants().is_some_and(|it| it.1 == 0);
            let through = || history.ops[after..].iter().filter(prompt);
            let back = through()
                .find(|op| op.granted().is_some())
                .map(Op::returned);
            let asked = through().next().is_some();
            let until = back.unwrap_or(history.ends);
            if asked && history.faults.calm(fault.heals, until) > RECOVERY {
                let what = format!(
                    "gateway {gateway} granted nothing for {} ms after {} of {}",
                    (until - fault.heals) / MS,
                    fault.kind,
                    fault.target
                );
                report.violated(Invariant::I7, "all", until, what);
            }
            let Some(took) = back.map(|back| back - fault.heals) else {
                continue;
            };
            if report
                .worst_recovery
                .as_ref()
                .is_none_or(|(worst, _)| *worst < took)
            {
                report.worst_recovery = Some((took, format!("{} of {}", fault.kind, fault.target)));
            }
        }
    }
}

//! I7: hand-offs are bounded. While somebody waits for a lock it is not left lying free: 99 of 100
//! hand-offs take no more than 50 ms while nothing is broken, and each no more than one period and a
//! second (of a holder that has died, its TTL and a second). Where something was broken, service is back
//! within ten seconds that are free of faults, at every gateway.
//!
//! The same holds for a place of a lock that is shared: while all who wait may share it with as many as hold it
//! already, be it after a release, an expiry, or because one has left who wanted to be alone (`room_beside`).
//!
//! Who wants several locks waits for one of them at a time, and nobody sees for which: I14 says how long that may take.

use std::collections::{BTreeMap, HashSet};

use super::prelude::*;

/// Of fewer nobody can say what 99 of 100 took.
const ENOUGH: usize = 100;
/// The same of places that became free because a head has left, which are fewer: one of them may be slow.
const ENOUGH_LEFT: usize = 50;

pub(in super::super) fn check(history: &History, terms: &Terms, report: &mut Report) {
    // After a release, and after one has left who wanted to be alone.
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

/// When somebody waits, as far as the history goes.
fn wait(op: &Op, ends: u64) -> Option<Span> {
    let (_, wait) = op.wants().filter(|(_, wait)| *wait > 0 && !op.is_part())?;
    Some((op.asked, op.given_up().min(op.asked + wait).min(ends)))
}

/// When the lock is taken, or may be by somebody who does not know of it.
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

/// Who was seen to hold a lock.
fn seen(lock: &Lock) -> HashSet<&str> {
    let observations = lock.observations.iter();
    let holders = observations.flat_map(|observation| &observation.holders);
    holders.map(|holder| holder.owner.as_str()).collect()
}

/// Until when a request of which nobody heard that it was granted may stand in the way of others; nothing if it does
/// not, or if its answer was another.
fn may_hold_until(history: &History, op: &Op, seen: &HashSet<&str>, terms: &Terms) -> Option<u64> {
    // A part of a group may hold the lock while the others are taken.
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
        // It may have been granted the lock, and be answered just when its client hung up, or its gateway be
        // unable to give it back.
        _ => over
            .max(history.faults.last_before(over))
            .saturating_add(ttl),
    };
    Some(until.saturating_add(grace + terms.second()))
}

/// When one who wanted to be alone was told that its wait is over.
fn left_alone(op: &Op) -> Option<u64> {
    let locked = matches!(op.answer(), Some(RecordedAnswer::Locked { .. }));
    let waited = op.wants().is_some_and(|(_, wait)| wait > 0) && !op.is_part();
    (locked && waited && !op.is_keyed() && !op.mode().shares()).then(|| op.returned())
}

/// What changes who may share a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    /// Somebody holds it alone, or wants to.
    Alone,
    /// Somebody shares it, or may do so without knowing.
    Shares,
    /// Somebody wants to share it with fewer than so many.
    Wants(u64),
}

/// The longest that each one waited without a break while nobody wanted or had the lock alone, somebody shared it, and
/// fewer did than any who waited could live with. Then whoever is the head is granted the lock, and so is the next.
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
        // One without an answer may stand there yet.
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

/// When somebody shares the lock and all who wait may, too.
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

/// What 99 of 100 took, and how many there were, if there were enough.
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

/// How long each gateway took after each fault to grant a lock.
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
            // Who waits for a lock that others hold does not wait for a gateway.
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

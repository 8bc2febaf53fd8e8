//! I7: hand-offs are bounded. While somebody waits for a lock it is not left lying free: 99 of 100
//! hand-offs take no more than 50 ms while nothing is broken, and each no more than one period and a
//! second (of a holder that has died, its TTL and a second). Where something was broken, service is back
//! within ten seconds that are free of faults, at every gateway.

use std::collections::HashSet;

use super::super::{
    History, Report, Terms,
    faults::RECOVERY,
    found::Invariant,
    line::RecordedAnswer,
    op::{MS, NEVER, Op},
    read::Lock,
    spans::{Span, union, without},
};

/// Of fewer nobody can say what 99 of 100 took.
const ENOUGH: usize = 100;

pub(super) fn check(history: &History, terms: &Terms, report: &mut Report) {
    let mut healthy = Vec::new();
    for (name, lock) in &history.locks {
        let waits = history.of(lock).filter_map(|op| wait(op, history.ends));
        let wanted = union(waits.collect());
        let taken = union(taken(history, lock, terms));
        let released: Vec<u64> = lock.leases.values().map(|lease| lease.ended).collect();
        for (from, until) in without(&wanted, &taken) {
            let felt = history.faults.felt(from, until);
            if !felt && released.contains(&from) {
                healthy.push(until - from);
            }
            let (took, bound) = if felt {
                (history.faults.calm(from, until), RECOVERY)
            } else {
                (until - from, terms.hand_off())
            };
            if took > bound {
                let what = format!(
                    "it was free for {} ms from {:.3} s on, {} of them without a fault, while somebody waited",
                    (until - from) / MS,
                    from as f64 / 1e9,
                    took / MS
                );
                report.violated(Invariant::I7, name, until, what);
            }
        }
    }
    judge(healthy, terms, report, history.ends);
    recoveries(history, report);
}

/// When somebody waits, as far as the history goes.
fn wait(op: &Op, ends: u64) -> Option<Span> {
    let (_, wait) = op.wants().filter(|(_, wait)| *wait > 0)?;
    Some((op.asked, op.given_up().min(op.asked + wait).min(ends)))
}

/// When the lock is taken, or may be by somebody who does not know of it.
fn taken(history: &History, lock: &Lock, terms: &Terms) -> Vec<Span> {
    let holders = lock
        .observations
        .iter()
        .filter_map(|observation| observation.holder.as_ref());
    let owners: HashSet<&str> = holders.map(|holder| holder.owner.as_str()).collect();
    let seen = |errand: &str| owners.contains(errand);
    let leases = lock.leases.values();
    let mut taken: Vec<Span> = leases.map(|lease| (lease.granted, lease.free())).collect();
    for op in history.of(lock).filter(|op| op.granted().is_none()) {
        let Some((ttl, _)) = op.wants() else { continue };
        let over = op.given_up();
        let grace = if op.is_keyed() { terms.grace() } else { 0 };
        let until = match op.answer() {
            Some(RecordedAnswer::Locked { .. } | RecordedAnswer::Refused { .. })
                if !op.is_keyed() =>
            {
                continue;
            }
            Some(RecordedAnswer::Locked { .. } | RecordedAnswer::Refused { .. }) => over,
            None if over == NEVER => continue,
            None if op.early && !seen(&op.errand) && !history.faults.felt(op.asked, over) => over,
            // It may have been granted the lock, and be answered just when its client hung up, or its gateway be
            // unable to give it back.
            _ => over
                .max(history.faults.last_before(over))
                .saturating_add(ttl),
        };
        let until = until.saturating_add(grace + terms.second());
        taken.push((op.asked, until));
    }
    taken
}

fn judge(mut healthy: Vec<u64>, terms: &Terms, report: &mut Report, at: u64) {
    healthy.sort_unstable();
    if healthy.len() < ENOUGH {
        return;
    }
    let Some(p99) = healthy.get(healthy.len().saturating_sub(1) * 99 / 100) else {
        return;
    };
    report.hand_offs = Some((*p99, healthy.len()));
    if *p99 > terms.healthy_hand_off() {
        let what = format!("one of 100 hand-offs took more than {} ms", p99 / MS);
        report.violated(Invariant::I7, "all", at, what);
    }
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

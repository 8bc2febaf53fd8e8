//! I12: the lock is linearizable in small windows. In every stretch without faults and without requests
//! whose outcome nobody knows there is one order of all operations, each between its request and its
//! answer, in which a lock that is held is not granted, and everybody sees what is there.
//!
//! What is searched is the set of all states in which the lock may be, one answer after the other.

use std::collections::{HashMap, HashSet};

use super::super::{
    History, Report, Terms,
    found::Invariant,
    lease::Lease,
    line::{Ask, RecordedAnswer},
    op::{Op, OpOutcome},
    read::Lock,
    spans::{Span, union, without},
};

/// What an operation does, or has seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Grant(u64),
    End(u64),
    /// The lock is held by this one; 0: it is free.
    Sees(u64),
    SeesNot(u64),
}

/// A state in which the lock may be: its holder (0: none), and which of those that are under way have been
/// carried out.
type State = (u64, u64);

/// Of a stretch in which more are under way at once nobody can say anything in reasonable time.
const MOST_AT_ONCE: usize = 24;
const MOST_STATES: usize = 20_000;
/// A stretch with fewer operations says nothing.
const FEWEST: usize = 3;

pub(super) fn check(history: &History, terms: &Terms, report: &mut Report) {
    for (name, lock) in &history.locks {
        for (from, until) in stretches(history, lock, terms) {
            let inside = history
                .of(lock)
                .filter(|op| op.asked < until && from < op.returned());
            let steps: Vec<_> = inside
                .filter_map(|op| Some((op, step(lock, op)?)))
                .collect();
            if steps.len() < FEWEST {
                continue;
            }
            match linearize(lock, &steps, (from, until)) {
                Some(Ok(())) => {
                    report.windows.0 += 1;
                    report.windows.1 += steps.len();
                }
                Some(Err(op)) => {
                    let what = format!(
                        "no order explains the answer {:?} to {:?} of {}",
                        op.answer(),
                        op.ask,
                        op.errand
                    );
                    report.violated(Invariant::I12, name, op.returned(), what);
                }
                None => {}
            }
        }
    }
}

/// The stretches without faults in which the outcome of everything is known.
fn stretches(history: &History, lock: &Lock, terms: &Terms) -> Vec<(u64, u64)> {
    let faults = history.faults.all.values().map(|it| (it.begins, it.heals));
    let open = history.of(lock).filter_map(|op| {
        let may_grant = op.wants().is_some() && op.granted().is_none();
        let kept = op.is_keyed() && may_grant;
        if op.outcome() == OpOutcome::Known && !op.hung_up && !kept {
            return None;
        }
        let (ttl, _) = op.wants().unwrap_or_default();
        let over = op.given_up().max(op.over.unwrap_or_default());
        Some((op.asked, over.saturating_add(ttl + terms.grace())))
    });
    let unclear = union(faults.chain(open).collect());
    without(&[(history.begins, history.ends)], &unclear)
}

fn step(lock: &Lock, op: &Op) -> Option<Step> {
    let keyed = |fence| lock.leases.get(&fence).is_some_and(|lease| lease.keyed);
    match (&op.ask, op.answer()?) {
        (
            _,
            RecordedAnswer::Granted {
                fence,
                again: false,
                ..
            },
        ) => Some(Step::Grant(*fence)),
        (_, RecordedAnswer::Renewed { fence, .. }) => Some(Step::Sees(*fence)),
        // The end of a lease with a key is answered again.
        (Ask::Release { fence }, RecordedAnswer::Released) if !keyed(*fence) => {
            Some(Step::End(*fence))
        }
        (Ask::Renew { fence, .. } | Ask::Release { fence }, RecordedAnswer::Lost) => {
            Some(Step::SeesNot(*fence))
        }
        (Ask::Break { fence }, RecordedAnswer::Broken) => Some(Step::End(*fence)),
        (_, RecordedAnswer::Shown { holder, .. }) => {
            Some(Step::Sees(holder.as_ref().map_or(0, |seen| seen.fence)))
        }
        (_, RecordedAnswer::Locked { holder: Some(seen) }) => Some(Step::Sees(seen.fence)),
        _ => None,
    }
}

/// Looks for an order; answers the operation that has no place in any, or nothing if there are too many.
/// What reaches beyond the stretch may have been carried out outside of it.
fn linearize<'a>(
    lock: &Lock,
    steps: &[(&'a Op, Step)],
    (from, until): Span,
) -> Option<Result<(), &'a Op>> {
    let mut moments: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * steps.len());
    for (index, (op, _)) in steps.iter().enumerate() {
        moments.push((op.asked, false, index));
        if op.returned() <= until {
            moments.push((op.returned(), true, index));
        }
    }
    moments.sort_unstable();
    // Nobody knows who holds the lock in the beginning.
    let holders = steps.iter().map(|(_, step)| match step {
        Step::Grant(fence) | Step::End(fence) | Step::Sees(fence) | Step::SeesNot(fence) => *fence,
    });
    // A grant on its way through another gateway may be broken, or end, before anybody hears of it.
    let unheard = holders
        .clone()
        .filter(|fence| *fence != 0 && !lock.leases.contains_key(fence));
    let unheard: HashSet<u64> = unheard.collect();
    let mut states: HashSet<State> = holders.chain([0]).map(|holder| (holder, 0)).collect();
    let mut slots = HashMap::<usize, u64>::new();
    for (at, returns, index) in moments {
        if !returns {
            let free = (0..64)
                .map(|bit| 1 << bit)
                .find(|bit| !slots.values().any(|it| it == bit));
            slots.insert(index, free.filter(|_| slots.len() < MOST_AT_ONCE)?);
            continue;
        }
        let carried_out = slots[&index];
        let under_way: Vec<_> = slots
            .iter()
            .map(|(index, bit)| (steps[*index].1, *bit))
            .collect();
        states = expand(lock, states, &under_way, &unheard, at)?;
        if steps[index].0.asked >= from {
            states.retain(|(_, done)| done & carried_out != 0);
        }
        if states.is_empty() {
            return Some(Err(steps[index].0));
        }
        states = states
            .into_iter()
            .map(|(holder, done)| (holder, done & !carried_out))
            .collect();
        slots.remove(&index);
    }
    Some(Ok(()))
}

/// All states that can be reached by carrying out what is under way, or by the end of a lease.
fn expand(
    lock: &Lock,
    mut states: HashSet<State>,
    under_way: &[(Step, u64)],
    unheard: &HashSet<u64>,
    at: u64,
) -> Option<HashSet<State>> {
    let mut fresh: Vec<State> = states.iter().copied().collect();
    while let Some((holder, done)) = fresh.pop() {
        let ends = holder != 0
            && lock
                .leases
                .get(&holder)
                .is_none_or(|lease| may_end(lease, at));
        let carried_out = under_way
            .iter()
            .filter(|(_, bit)| done & bit == 0)
            .filter_map(|(step, bit)| Some((step.after(holder)?, done | bit)));
        let ended = ends.then_some((0, done));
        let granted = unheard.iter().filter(|_| holder == 0);
        let granted = granted.map(|fence| (*fence, done));
        for state in carried_out.chain(ended).chain(granted) {
            if states.insert(state) {
                fresh.push(state);
            }
        }
        if states.len() > MOST_STATES {
            return None;
        }
    }
    Some(states)
}

/// Whether a lease may have ended by an instant without being released.
fn may_end(lease: &Lease, at: u64) -> bool {
    // How these ended is no step of an order.
    let aside = lease.streamed || lease.keyed;
    lease.lasts <= at || (aside && lease.ending <= at)
}

// === impl Step ===

impl Step {
    /// The holder after it; nothing if it cannot be.
    fn after(self, holder: u64) -> Option<u64> {
        match self {
            Self::Grant(fence) => (holder == 0).then_some(fence),
            Self::End(fence) => (holder == fence).then_some(0),
            Self::Sees(fence) => (holder == fence).then_some(holder),
            Self::SeesNot(fence) => (holder != fence).then_some(holder),
        }
    }
}

//! I12: the lock is linearizable in small windows. For every stretch of time without faults and without requests of
//! unknown outcome there is an order of all operations, each between its request and its answer, in which every grant
//! is compatible with the holders of that moment and every observation shows the holders.
//!
//! The search goes through the answers by time and keeps the set of all states in which the lock may be.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    rc::Rc,
};

use super::prelude::*;

/// The effect of an operation on the holders, or what its answer shows about them.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Grant(u64),
    End(u64),
    /// The lock has exactly these holders.
    Sees(Holders),
    /// This lease holds the lock, perhaps beside others.
    SeesOne(u64),
    SeesNot(u64),
}

/// The fencing tokens of the holders, in ascending order.
type Holders = Rc<[u64]>;

/// A possible state of the lock: its holders, and a bit set of the open operations that have been carried out.
type State = (Holders, u64);

/// Mode and slot of a lease.
#[derive(Debug, Clone, Copy)]
struct Place {
    mode: Mode,
    slot: Option<u64>,
}

/// The leases that the operations of a stretch name, by their fencing tokens.
struct Named<'a> {
    lock: &'a Lock,
    places: BTreeMap<u64, Place>,
    /// Leases without a known grant. A provisional grant for another gateway may be broken, or end, before its client
    /// hears of it.
    unheard: Vec<u64>,
}

/// With more open operations than this at once, a stretch is skipped: the search would take too long.
const MOST_AT_ONCE: usize = 24;
const MOST_STATES: usize = 20_000;
/// With more shared leases than this that may or may not live at its beginning, a stretch is skipped.
const MOST_IN_DOUBT: usize = 10;
/// With fewer operations than this, a stretch is skipped: it proves nothing.
const FEWEST: usize = 3;

pub(in super::super) fn check(history: &History, terms: &Terms, report: &mut Report) {
    for (name, lock) in &history.locks {
        for (from, until) in stretches(history, lock, terms) {
            let inside = history
                .of_lock(lock)
                .filter(|op| op.asked < until && from < op.returned());
            let steps: Vec<_> = inside
                .filter_map(|op| Some((op, step(lock, op)?)))
                .collect();
            if steps.len() < FEWEST {
                continue;
            }
            let named = Named::from_steps(history, lock, &steps);
            let Some(states) = named.in_the_beginning(history, from) else {
                continue;
            };
            match linearize(&named, states, &steps, (from, until)) {
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

/// The spans of time without faults and without requests of unknown outcome.
fn stretches(history: &History, lock: &Lock, terms: &Terms) -> Vec<(u64, u64)> {
    let faults = history.faults.all.values().map(|it| (it.begins, it.heals));
    let open = history.of_lock(lock).filter_map(|op| {
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
        (_, RecordedAnswer::Renewed { fence, .. })
        | (Ask::Break { fence, .. }, RecordedAnswer::Requested) => Some(Step::SeesOne(*fence)),
        // The release of a lease with an idempotency key may be answered twice with success, so it is no step.
        (Ask::Release { fence }, RecordedAnswer::Released) if !keyed(*fence) => {
            Some(Step::End(*fence))
        }
        (Ask::Renew { fence, .. } | Ask::Release { fence }, RecordedAnswer::Lost) => {
            Some(Step::SeesNot(*fence))
        }
        (Ask::Break { fence, .. }, RecordedAnswer::Broken) => Some(Step::End(*fence)),
        // A refusal without holders is no step: the lock may be passing to another waiter.
        (_, RecordedAnswer::Locked { holders }) if holders.is_empty() => None,
        (_, RecordedAnswer::Shown { holders, .. } | RecordedAnswer::Locked { holders }) => {
            let mut fences: Vec<u64> = holders.iter().map(|seen| seen.fence).collect();
            fences.sort_unstable();
            Some(Step::Sees(fences.into()))
        }
        _ => None,
    }
}

/// Searches an order of the operations. Answers the first operation that fits into no order, or nothing if there are
/// too many states. An operation that began before the stretch, or ends after it, may have been carried out outside of
/// it.
fn linearize<'a>(
    named: &Named<'_>,
    mut states: HashSet<State>,
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
            .map(|(index, bit)| (&steps[*index].1, *bit))
            .collect();
        states = expand(named, states, &under_way, at)?;
        if steps[index].0.asked >= from {
            states.retain(|(_, done)| done & carried_out != 0);
        }
        if states.is_empty() {
            return Some(Err(steps[index].0));
        }
        states = states
            .into_iter()
            .map(|(holders, done)| (holders, done & !carried_out))
            .collect();
        slots.remove(&index);
    }
    Some(Ok(()))
}

/// All states that open operations, ends of leases and grants without a known answer can reach from `states`; nothing
/// if there are too many.
fn expand(
    named: &Named<'_>,
    mut states: HashSet<State>,
    under_way: &[(&Step, u64)],
    at: u64,
) -> Option<HashSet<State>> {
    let mut fresh: Vec<State> = states.iter().cloned().collect();
    while let Some((holders, done)) = fresh.pop() {
        let ending = holders.iter().filter(|fence| {
            let lease = named.lock.leases.get(fence);
            lease.is_none_or(|lease| may_end(lease, at))
        });
        let ended = ending.map(|fence| (without_one(&holders, *fence), done));
        let granted = named.unheard.iter();
        let granted = granted.filter_map(|fence| Some((named.with(&holders, *fence)?, done)));
        let carried_out = under_way
            .iter()
            .filter(|(_, bit)| done & bit == 0)
            .filter_map(|(step, bit)| Some((step.after(named, &holders)?, done | bit)));
        for state in carried_out.chain(ended).chain(granted) {
            if !states.contains(&state) {
                states.insert(state.clone());
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
    // Ends of leases with a stream or an idempotency key are no steps, so they may happen at any time from `ending` on.
    let aside = lease.streamed || lease.keyed;
    lease.lasts.min(lease.asked_for) <= at || (aside && lease.ending <= at)
}

fn without_one(holders: &Holders, fence: u64) -> Holders {
    holders.iter().copied().filter(|it| *it != fence).collect()
}

// === impl Named ===

impl<'a> Named<'a> {
    fn from_steps(history: &'a History, lock: &'a Lock, steps: &[(&Op, Step)]) -> Self {
        let mut named = Self {
            lock,
            places: BTreeMap::new(),
            unheard: Vec::new(),
        };
        for (op, step) in steps {
            let seen = match op.answer() {
                Some(
                    RecordedAnswer::Shown { holders, .. } | RecordedAnswer::Locked { holders },
                ) => &holders[..],
                _ => &[],
            };
            for seen in seen {
                let mode = lock.mode_of(&history.ops, &seen.owner);
                let mode = mode.filter(|mode| mode.shares() == seen.shares);
                let mode = mode.unwrap_or(if seen.shares {
                    Mode::Shared { limit: None }
                } else {
                    Mode::Exclusive
                });
                let place = Place {
                    mode,
                    slot: seen.slot,
                };
                named.places.insert(seen.fence, place);
            }
            let (Step::Grant(fence)
            | Step::End(fence)
            | Step::SeesOne(fence)
            | Step::SeesNot(fence)) = step
            else {
                continue;
            };
            named.places.entry(*fence).or_insert(Place {
                mode: lock.mode_of(&history.ops, &op.errand).unwrap_or_default(),
                slot: None,
            });
        }
        for (fence, place) in &mut named.places {
            if let Some(lease) = lock.leases.get(fence) {
                (place.mode, place.slot) = (lease.mode, lease.slot);
            } else {
                named.unheard.push(*fence);
            }
        }
        named
    }

    /// The holders after a lease is added; nothing if the lease excludes a holder.
    fn with(&self, holders: &Holders, fence: u64) -> Option<Holders> {
        let place = self.places.get(&fence)?;
        let others = || holders.iter().map(|other| self.places[other]);
        let fits = match place.mode {
            Mode::Exclusive => holders.is_empty(),
            Mode::Shared { limit } => {
                others().all(|other| other.mode.shares())
                    && limit.is_none_or(|limit| (holders.len() as u64) < limit)
                    && (place.slot.is_none() || others().all(|other| other.slot != place.slot))
            }
        };
        if !fits || holders.contains(&fence) {
            return None;
        }
        let mut fences: Vec<u64> = holders.iter().copied().chain([fence]).collect();
        fences.sort_unstable();
        Some(fences.into())
    }

    /// The states in which the lock may be at the beginning of a stretch; nothing if there are too many.
    fn in_the_beginning(&self, history: &History, from: u64) -> Option<HashSet<State>> {
        let lease = |fence: &u64| self.lock.leases.get(fence);
        let possible = self.places.keys().copied().filter(|fence| {
            lease(fence).is_none_or(|lease| {
                let end_is_forgotten = history.faults.forgot(lease.ended, from);
                let ended = if end_is_forgotten {
                    lease.may_last
                } else {
                    lease.free()
                };
                lease.asked < from && from <= ended
            })
        });
        let is_certain = |fence: &u64| {
            lease(fence).is_some_and(|lease| {
                lease.granted <= from
                    && from < lease.lasts.min(lease.ending)
                    && !history.faults.forgot(lease.asked, from)
            })
        };
        let (certain, doubtful): (Vec<u64>, Vec<u64>) = possible.partition(is_certain);
        let (alone, sharing): (Vec<u64>, Vec<u64>) = doubtful
            .into_iter()
            .partition(|fence| !self.places[fence].mode.shares());
        if sharing.len() > MOST_IN_DOUBT {
            return None;
        }
        let mut states = HashSet::new();
        for chosen in 0..1_u32 << sharing.len() {
            let some = sharing.iter().enumerate();
            let some = some.filter(|(place, _)| chosen & (1 << place) != 0);
            let mut holders: Vec<u64> = some
                .map(|(_, fence)| *fence)
                .chain(certain.clone())
                .collect();
            holders.sort_unstable();
            states.insert((holders.into(), 0));
        }
        if certain.is_empty() {
            states.extend(alone.into_iter().map(|fence| ([fence].into(), 0)));
        }
        Some(states)
    }
}

// === impl Step ===

impl Step {
    /// The holders after this step; nothing if the step is not possible.
    fn after(&self, named: &Named<'_>, holders: &Holders) -> Option<Holders> {
        match self {
            Self::Grant(fence) => named.with(holders, *fence),
            Self::End(fence) => {
                let holds = holders.contains(fence);
                holds.then(|| without_one(holders, *fence))
            }
            Self::Sees(seen) => (seen == holders).then(|| Rc::clone(holders)),
            Self::SeesOne(fence) => holders.contains(fence).then(|| Rc::clone(holders)),
            Self::SeesNot(fence) => (!holders.contains(fence)).then(|| Rc::clone(holders)),
        }
    }
}

//! Reads the lines of a run into a history: requests with their answers, leases, observations and faults.

use std::collections::{BTreeMap, HashMap};

use super::{
    faults::{Fault, Faults},
    lease::Lease,
    line::{AFTERWARDS, Ask, Event, Line, Mode, RecordedAnswer, ResourceWrite, Seen},
    op::{MS, NEVER, Op},
};

/// All that the lines of a run say, in order of time.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// All requests, by the time at which they were sent.
    pub(super) ops: Vec<Op>,
    pub(super) locks: BTreeMap<String, Lock>,
    /// The parts of each group request, as indexes of `ops`.
    pub(super) groups: BTreeMap<u64, Vec<usize>>,
    /// The writes to resources with their times, in order.
    pub(super) writes: Vec<(u64, ResourceWrite)>,
    pub(super) faults: Faults,
    pub(super) begins: u64,
    /// When the clients had ended.
    pub(super) ends: u64,
}

/// The requests, leases and observations of one lock.
#[derive(Debug, Default)]
pub(crate) struct Lock {
    /// Indexes of `History::ops`, by the time at which the requests were sent.
    pub(super) ops: Vec<usize>,
    /// The leases of the lock by their fencing tokens.
    pub(super) leases: BTreeMap<u64, Lease>,
    /// The observations, by the time at which their answers were read.
    pub(super) observations: Vec<Observation>,
    /// The requests of each errand, in order.
    pub(super) errands: HashMap<String, Vec<usize>>,
}

/// What an answer says about holders and waiters of a lock, at some instant between `asked` and `heard`.
#[derive(Debug, Clone)]
pub(crate) struct Observation {
    pub(super) asked: u64,
    pub(super) heard: u64,
    pub(super) holders: Vec<Seen>,
    /// Whether the request was an inspect. Then an answer without holders means that the lock is free.
    pub(super) complete: bool,
    pub(super) waiters: Vec<String>,
}

/// How long after a freeze a client still counts as one that reads its answers late.
const THAWING: u64 = 1_000 * MS;

// === impl History ===

impl History {
    /// Makes a history of lines, which may come in any order.
    pub(crate) fn read(lines: impl IntoIterator<Item = Line>) -> Self {
        let mut lines: Vec<Line> = lines.into_iter().collect();
        lines.sort_by_key(|line| line.at);
        let during = lines.iter().rev().find(|line| line.by != AFTERWARDS);
        let ends = during.map(|line| line.at);
        let mut history = Self {
            begins: lines.first().map(|line| line.at).unwrap_or_default(),
            ends: ends.unwrap_or_default(),
            ..Self::default()
        };
        let mut places = HashMap::new();
        for line in lines {
            history.take(&mut places, line);
        }
        history.faults.settle();
        history.cut_the_killed();
        history.distrust_the_frozen();
        history.find_leases();
        history.look();
        history
    }

    /// How many leases were granted.
    pub(crate) fn grants(&self) -> usize {
        self.locks.values().map(|lock| lock.leases.len()).sum()
    }

    /// The requests for one lock, in order.
    pub(super) fn of_lock<'a>(&'a self, lock: &'a Lock) -> impl Iterator<Item = &'a Op> {
        lock.ops.iter().map(|place| &self.ops[*place])
    }

    /// The requests of one errand, in order.
    pub(super) fn of_errand<'a>(
        &'a self,
        lock: &'a Lock,
        errand: &str,
    ) -> impl Iterator<Item = &'a Op> {
        let places = lock.errands.get(errand).into_iter().flatten();
        places.map(|place| &self.ops[*place])
    }

    /// The requests that the errand of `op` made for all locks of its group; none if `op` is not a part of a group.
    pub(super) fn beside<'a>(&'a self, op: &'a Op) -> impl Iterator<Item = &'a Op> {
        let parts = op.group.and_then(|group| self.groups.get(&group));
        let parts = parts.into_iter().flatten();
        parts.flat_map(|place| self.of_errand(&self.locks[&self.ops[*place].lock], &op.errand))
    }

    fn take(&mut self, places: &mut HashMap<u64, usize>, line: Line) {
        let Line { at, by, event } = line;
        match event {
            Event::Asks {
                op,
                errand,
                lock,
                to,
                ask,
                group,
            } => {
                let place = self.ops.len();
                places.insert(op, place);
                let known = self.locks.entry(lock.clone()).or_default();
                known.ops.push(place);
                known.errands.entry(errand.clone()).or_default().push(place);
                if let Some(group) = group {
                    self.groups.entry(group).or_default().push(place);
                }
                self.ops.push(Op {
                    by,
                    errand,
                    lock,
                    to,
                    ask,
                    group,
                    asked: at,
                    heard: None,
                    kept: Vec::new(),
                    over: None,
                    read_late: false,
                    hung_up: false,
                    early: false,
                });
            }
            Event::Writes(write) => self.writes.push((at, write)),
            Event::Fault {
                fault,
                kind,
                target,
                forgets,
                stage,
            } => {
                let new = Fault::new(&kind, &target, forgets);
                self.faults.note(fault, at, stage, new);
            }
            Event::Hears { op, answer } => {
                let op = places.get(&op).map(|place| &mut self.ops[*place]);
                if let Some(op) = op.filter(|op| op.heard.is_none()) {
                    op.heard = Some((at, answer));
                }
            }
            Event::Keeps { op, left_ms } => {
                if let Some(place) = places.get(&op) {
                    self.ops[*place].kept.push((at, left_ms));
                }
            }
            Event::Ends { op } | Event::HangsUp { op, .. } => {
                if let Some(place) = places.get(&op) {
                    let op = &mut self.ops[*place];
                    op.over = Some(op.over.unwrap_or(NEVER).min(at));
                    op.hung_up |= matches!(event, Event::HangsUp { .. });
                    op.early |= matches!(event, Event::HangsUp { early: true, .. });
                }
            }
        }
    }

    /// Ends the connections of each client whose process was killed.
    fn cut_the_killed(&mut self) {
        for fault in self.faults.all.values() {
            if fault.kind != "kill-client" {
                continue;
            }
            let asked = self.ops.iter_mut();
            for op in asked.filter(|op| op.by == fault.target && op.asked <= fault.heals) {
                op.over = Some(op.over.unwrap_or(NEVER).min(fault.begins));
            }
        }
    }

    /// Ignores the times of answers that a client read late because it was frozen.
    fn distrust_the_frozen(&mut self) {
        for fault in self.faults.all.values() {
            if fault.kind != "freeze-client" {
                continue;
            }
            let frozen = fault.begins..=fault.heals.saturating_add(THAWING);
            let theirs = self.ops.iter_mut().filter(|op| op.by == fault.target);
            for op in theirs {
                op.kept.retain(|(at, _)| !frozen.contains(at));
                op.read_late |= op.heard.as_ref().is_some_and(|(at, _)| frozen.contains(at));
            }
        }
    }

    fn find_leases(&mut self) {
        for lock in self.locks.values_mut() {
            for op in lock.ops.iter().map(|place| &self.ops[*place]) {
                let Some(RecordedAnswer::Granted {
                    fence,
                    left_ms,
                    slot,
                    ..
                }) = op.answer()
                else {
                    continue;
                };
                let of_errand = lock.errands[&op.errand].first();
                let asked = of_errand.map_or(op.asked, |first| self.ops[*first].asked);
                let to = lock.only_gateway(&self.ops, &op.errand);
                let lease = Lease::granted(op, to, asked, (*fence, *slot), *left_ms);
                let known = lock.leases.entry(*fence);
                known
                    .and_modify(|known| known.again(&lease))
                    .or_insert(lease);
            }
            for op in lock.ops.iter().map(|place| &self.ops[*place]) {
                if let Some(lease) = op.about().and_then(|fence| lock.leases.get_mut(&fence)) {
                    lease.note(op);
                }
            }
        }
    }

    fn look(&mut self) {
        for lock in self.locks.values_mut() {
            for op in lock.ops.iter().map(|place| &self.ops[*place]) {
                let (complete, holders, waiters) = match op.answer() {
                    Some(RecordedAnswer::Locked { holders }) => {
                        (false, holders.clone(), Vec::new())
                    }
                    Some(RecordedAnswer::Shown { holders, waiters }) => {
                        (true, holders.clone(), waiters.clone())
                    }
                    _ => continue,
                };
                lock.observations.push(Observation {
                    asked: match op.ask {
                        // An acquire sees the holders at the end of its wait, except as a part of a group.
                        Ask::Acquire { wait_ms, .. }
                            if op.group.is_none() && op.asked + wait_ms * MS < op.returned() =>
                        {
                            op.asked + wait_ms * MS
                        }
                        _ => op.asked,
                    },
                    heard: op.returned(),
                    holders,
                    complete,
                    waiters,
                });
            }
            lock.observations
                .sort_by_key(|observation| observation.heard);
        }
    }
}

// === impl Lock ===

impl Lock {
    /// The mode in which an errand wants the lock, if the errand asks for it.
    pub(super) fn mode_of(&self, ops: &[Op], errand: &str) -> Option<Mode> {
        let places = self.errands.get(errand).into_iter().flatten();
        let mut asking = places.map(|place| &ops[*place]);
        let asks = asking.find(|op| op.wants().is_some())?;
        Some(asks.mode())
    }

    /// The gateway that an errand asked for the lock, if it asked only one.
    pub(super) fn only_gateway(&self, ops: &[Op], errand: &str) -> Option<usize> {
        let places = self.errands.get(errand).into_iter().flatten();
        let asking = places.map(|place| &ops[*place]);
        let mut gateways = asking.filter(|op| op.wants().is_some()).map(|op| op.to);
        let first = gateways.next()?;
        gateways.all(|other| other == first).then_some(first)
    }
}

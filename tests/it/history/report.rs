//! What a run came to.

use std::{collections::BTreeMap, fmt};

use super::{
    History,
    found::{Invariant, Violation},
    lease::Lease,
    op::MS,
};

/// What a run came to.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) operations: usize,
    pub(crate) grants: usize,
    /// How many of the grants shared a lock, how many of these had a slot, and how many were seen to hold a lock together.
    pub(crate) shared: (usize, usize, usize),
    pub(crate) groups: Groups,
    pub(crate) requests: Requests,
    pub(crate) seconds: f64,
    /// How often each kind of fault was seen to happen.
    pub(crate) faults: BTreeMap<String, u64>,
    /// How long after a fault the slowest gateway granted a lock again.
    pub(crate) worst_recovery: Option<(u64, String)>,
    /// What 99 of 100 hand-offs took at most while nothing was broken, and how many there were.
    pub(crate) hand_offs: Option<(u64, usize)>,
    /// The same of places of a shared lock behind one who has left.
    pub(crate) after_leave: Option<(u64, usize)>,
    /// How many overlaps of leases the documentation of the store allows, and how long they were together.
    pub(crate) overlaps: (usize, u64),
    /// How many changes of the unfenced resource were lost.
    pub(crate) lost_updates: usize,
    /// How many writes the fenced resource has refused.
    pub(crate) refused_writes: usize,
    /// How many stretches of how many operations were tried for an order.
    pub(crate) windows: (usize, usize),
    pub(crate) violations: Vec<Violation>,
    /// Why the run shows nothing.
    pub(crate) invalid: Vec<String>,
}

/// What came of those who wanted several locks as one.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Groups {
    pub(crate) asked: usize,
    pub(crate) granted: usize,
    /// For how long one waited at most while nothing was broken.
    pub(crate) longest: u64,
}

/// What came of those who were asked to release their lease.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Requests {
    /// How many leases they were of.
    pub(crate) made: usize,
    /// How many renewals told of one.
    pub(crate) told: usize,
    /// How often somebody found a lease lost for which there was one.
    pub(crate) carried_out: usize,
}

/// How many violations of one promise are printed.
const SHOWN: usize = 3;

/// How long clients came: who waits may be answered long after that.
fn traffic(history: &History) -> u64 {
    let last = history.ops.iter().map(|op| op.asked).max();
    last.unwrap_or_default().saturating_sub(history.begins)
}

fn shared(history: &History) -> (usize, usize, usize) {
    let leases = history.locks.values().flat_map(|lock| lock.leases.values());
    let sharing = leases.filter(|lease| lease.mode.shares());
    let with_slot = sharing.clone().filter(|lease| lease.slot.is_some());
    let looks = history.locks.values().flat_map(|lock| &lock.observations);
    let most = looks.map(|look| look.holders.len()).max();
    (sharing.count(), with_slot.count(), most.unwrap_or_default())
}

// === impl Report ===

impl Report {
    pub(super) fn of(history: &History) -> Self {
        let mut faults = BTreeMap::new();
        for fault in history.faults.all.values() {
            *faults.entry(fault.kind.clone()).or_default() += fault.seen;
        }
        Self {
            operations: history.ops.len(),
            grants: history.grants(),
            shared: shared(history),
            seconds: traffic(history) as f64 / 1e9,
            faults,
            ..Self::default()
        }
    }

    pub(crate) fn grants_per_second(&self) -> f64 {
        self.grants as f64 / self.seconds.max(f64::EPSILON)
    }

    pub(super) fn violated(&mut self, by: Invariant, lock: &str, at: u64, what: String) {
        self.violations.push(Violation::new(by, lock, at, what));
    }

    /// Looks whether two leases, the earlier first, are relied on together, which may not be unless the store may have
    /// forgotten the first: then it is counted. `had`: what both had.
    pub(super) fn together(
        &mut self,
        by: Invariant,
        history: &History,
        lock: &str,
        [before, lease]: [&Lease; 2],
        had: &str,
    ) {
        let both = before.relied_on().min(lease.relied_on());
        if lease.granted >= both {
            return;
        }
        let together = both - lease.granted;
        if history.faults.forgot(before.asked, lease.granted) {
            self.overlaps.0 += 1;
            self.overlaps.1 += together;
            return;
        }
        let what = format!(
            "{} ({}) and {} ({}) {had} together for {} µs",
            before.fence,
            before.errand,
            lease.fence,
            lease.errand,
            together / 1_000
        );
        self.violated(by, lock, lease.granted, what);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} operations, {} grants in {:.0} s ({:.0}/s)",
            self.operations,
            self.grants,
            self.seconds,
            self.grants_per_second()
        )?;
        let (shared, with_slot, together) = self.shared;
        writeln!(
            f,
            "of these {shared} shared the lock, {with_slot} of them with a slot; at most {together} were seen together"
        )?;
        let Groups {
            asked,
            granted,
            longest,
        } = self.groups;
        writeln!(
            f,
            "requests for several locks: {asked}, granted {granted}; the longest took {} ms without a fault",
            longest / MS
        )?;
        let Requests {
            made,
            told,
            carried_out,
        } = self.requests;
        writeln!(
            f,
            "leases to be released on request: {made}, told so by {told} renewals, found lost {carried_out} times"
        )?;
        let faults: Vec<_> = self
            .faults
            .iter()
            .map(|(kind, seen)| format!("{kind} {seen}"))
            .collect();
        writeln!(f, "faults, as often as seen: {}", faults.join(", "))?;
        match &self.worst_recovery {
            Some((took, fault)) => {
                writeln!(f, "worst recovery: {} ms after {fault}", took / MS)?;
            }
            None => writeln!(f, "worst recovery: there was no fault to recover from")?,
        }
        if let Some((took, count)) = self.hand_offs {
            writeln!(
                f,
                "hand-offs while nothing was broken: {count}, p99 {} ms",
                took / MS
            )?;
        }
        if let Some((took, count)) = self.after_leave {
            writeln!(
                f,
                "places behind one who has left: {count}, p99 {} ms",
                took / MS
            )?;
        }
        let (overlaps, together) = self.overlaps;
        writeln!(
            f,
            "overlaps that the store may have: {overlaps}, {} ms in all",
            together / MS
        )?;
        writeln!(
            f,
            "lost updates of the unfenced resource: {}; writes that the fenced one refused: {}",
            self.lost_updates, self.refused_writes
        )?;
        let (windows, ordered) = self.windows;
        writeln!(
            f,
            "stretches that were linearized: {windows}, {ordered} operations"
        )?;
        let mut shown = BTreeMap::<Invariant, usize>::new();
        for violation in &self.violations {
            let count = shown.entry(violation.invariant).or_default();
            *count += 1;
            if *count <= SHOWN {
                writeln!(
                    f,
                    "VIOLATION {} {} at {:.3} s: {}",
                    violation.invariant,
                    violation.lock,
                    violation.at as f64 / 1e9,
                    violation.what
                )?;
            }
        }
        for (invariant, count) in shown {
            writeln!(f, "violations of {invariant}: {count}")?;
        }
        for why in &self.invalid {
            writeln!(f, "INVALID: {why}")?;
        }
        if self.violations.is_empty() {
            writeln!(f, "violations: none")?;
        }
        Ok(())
    }
}

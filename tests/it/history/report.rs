//! The report of a run: its violations and its figures.

use std::{collections::BTreeMap, fmt};

use super::{History, lease::Lease, line::AFTERWARDS, op::MS};

/// The report of a run: its violations and its figures.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) operations: usize,
    pub(crate) grants: usize,
    /// How many grants shared a lock, how many of these had a slot, and the largest number of holders seen together.
    pub(crate) shared: (usize, usize, usize),
    pub(crate) groups: Groups,
    pub(crate) requests: Requests,
    /// How many checks of fencing tokens were answered.
    pub(crate) checks: usize,
    /// How many grants came after a rest: of exclusive leases, and of shared ones.
    pub(crate) rests: [usize; 2],
    /// How many leases were reservations.
    pub(crate) reservations: usize,
    /// How many leases had an order, and how many requests were refused because of theirs.
    pub(crate) orders: [usize; 2],
    /// How many histories were read, and in how many places of these the end of a lease had to be.
    pub(crate) histories: (usize, usize),
    pub(crate) seconds: f64,
    /// How often each kind of fault was observed to take effect.
    pub(crate) faults: BTreeMap<String, u64>,
    /// How long after a fault the slowest gateway granted a lock again.
    pub(crate) worst_recovery: Option<(u64, String)>,
    /// The 99th percentile of hand-offs without a fault, and their number.
    pub(crate) hand_offs: Option<(u64, usize)>,
    /// The same for positions of a shared lock behind a waiter for an exclusive lease that left the queue.
    pub(crate) after_leave: Option<(u64, usize)>,
    /// Overlaps of leases that the documentation of the store allows: their number and their total time.
    pub(crate) overlaps: (usize, u64),
    /// How many writes to the unfenced resource were lost.
    pub(crate) lost_updates: usize,
    /// How many writes the fenced resource refused.
    pub(crate) refused_writes: usize,
    /// The number of stretches for which an order of operations was found, and the number of their operations.
    pub(crate) windows: (usize, usize),
    pub(crate) violations: Vec<Violation>,
    /// The reasons why the run proves nothing.
    pub(crate) invalid: Vec<String>,
}

/// The outcomes of group requests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Groups {
    pub(crate) asked: usize,
    pub(crate) granted: usize,
    /// The longest wait of a group request, without the time of faults.
    pub(crate) longest: u64,
}

/// The outcomes of release requests.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Requests {
    /// How many leases had a release request.
    pub(crate) made: usize,
    /// How many renewals were told about a release request.
    pub(crate) told: usize,
    /// How many requests about such a lease were answered that the lease was lost.
    pub(crate) carried_out: usize,
}

/// An invariant, by its number in the list of promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Invariant {
    /// Every answer is allowed for its request.
    Contract,
    /// Fencing tokens are unique.
    I1,
    /// Fencing tokens rise in real-time order.
    I2,
    /// The holders of a lock never exceed what their modes and limits allow.
    I3,
    /// The fenced resource never goes back and loses no acknowledged write.
    I4,
    /// Every fencing token that is seen belongs to a request.
    I5,
    /// No grant is lost.
    I6,
    /// Hand-offs take bounded time.
    I7,
    /// A lease without a client ends in time.
    I8,
    /// Only the holder renews and releases.
    I9,
    /// An idempotency key is granted one fencing token.
    I10,
    /// Waiters are served in the order of the queue.
    I11,
    /// The operations of a lock are linearizable.
    I12,
    /// Slots of leases that live together are distinct, and below the limit.
    I13,
    /// Group requests get all locks or none, and are served.
    I14,
    /// The holder of a lease with a release request is told about it, and loses the lease when the time is over.
    I15,
    /// A check of a fencing token passes while the lease lasts, and not after its end.
    I16,
    /// A lock that rests is granted to nobody.
    I17,
    /// A reservation lasts until its time, and no longer.
    I18,
    /// The history of a lock says how its leases have ended.
    I19,
    /// A lock is not granted for a lower order than before.
    I20,
}

/// A violation of an invariant.
#[derive(Debug, Clone)]
pub(crate) struct Violation {
    pub(crate) invariant: Invariant,
    pub(crate) lock: String,
    /// When the violation could be seen.
    pub(crate) at: u64,
    pub(crate) what: String,
}

/// How many violations of one invariant are printed.
const SHOWN: usize = 3;

/// For how long clients sent requests. Waiters may be answered long after that.
fn traffic(history: &History) -> u64 {
    let during = history.ops.iter().filter(|op| op.by != AFTERWARDS);
    let last = during.map(|op| op.asked).max();
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
    pub(super) fn new(history: &History) -> Self {
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

    /// Reports a violation if the holders of two leases, the earlier first, rely on them at the same time. If the store
    /// may have forgotten the earlier lease, the overlap is only counted. `had`: what both leases had, for the message.
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

    /// Shows how often checks, rests, reservations, orders and histories were judged.
    fn show_promises(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "checks of fencing tokens: {}", self.checks)?;
        let [alone, shared] = self.rests;
        writeln!(
            f,
            "grants after a rest: {alone} of a lock, {shared} of a slot"
        )?;
        writeln!(f, "reservations: {}", self.reservations)?;
        let [granted, outdated] = self.orders;
        writeln!(f, "grants with an order: {granted}, outdated: {outdated}")?;
        let (histories, ends) = self.histories;
        writeln!(
            f,
            "histories: {histories}, with {ends} ends that had to be there"
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            operations,
            grants,
            seconds,
            lost_updates: lost,
            refused_writes: refused,
            ..
        } = self;
        let rate = self.grants_per_second();
        writeln!(
            f,
            "{operations} operations, {grants} grants in {seconds:.0} s ({rate:.0}/s)"
        )?;
        let (shared, with_slot, together) = self.shared;
        writeln!(
            f,
            "of these {shared} shared the lock, {with_slot} of them with a slot; at most {together} were seen together"
        )?;
        let Groups { asked, granted, .. } = self.groups;
        let longest = self.groups.longest / MS;
        writeln!(
            f,
            "requests for several locks: {asked}, granted {granted}; the longest took {longest} ms without a fault"
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
        self.show_promises(f)?;
        let faults = self
            .faults
            .iter()
            .map(|(kind, seen)| format!("{kind} {seen}"));
        let faults: Vec<_> = faults.collect();
        writeln!(f, "faults, as often as seen: {}", faults.join(", "))?;
        match &self.worst_recovery {
            Some((took, fault)) => writeln!(f, "worst recovery: {} ms after {fault}", took / MS)?,
            None => writeln!(f, "worst recovery: there was no fault to recover from")?,
        }
        for (what, took) in [
            ("hand-offs while nothing was broken", self.hand_offs),
            ("places behind one who has left", self.after_leave),
        ] {
            if let Some((took, count)) = took {
                writeln!(f, "{what}: {count}, p99 {} ms", took / MS)?;
            }
        }
        let (overlaps, together) = (self.overlaps.0, self.overlaps.1 / MS);
        writeln!(
            f,
            "overlaps that the store may have: {overlaps}, {together} ms in all"
        )?;
        writeln!(
            f,
            "lost updates of the unfenced resource: {lost}; writes that the fenced one refused: {refused}"
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
                let Violation {
                    invariant,
                    lock,
                    what,
                    ..
                } = violation;
                let at = violation.at as f64 / 1e9;
                writeln!(f, "VIOLATION {invariant} {lock} at {at:.3} s: {what}")?;
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

// === impl Violation ===

impl Violation {
    pub(crate) fn new(invariant: Invariant, lock: &str, at: u64, what: String) -> Self {
        Self {
            invariant,
            lock: lock.to_owned(),
            at,
            what,
        }
    }
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

//! Leases whose TTL has run out, or that the store may not have any more: which of them the gateway asks the store about,
//! and how the answer changes the registry. A lease stays in the registry until the store has answered.

use tokio::time::{Duration, Instant};

use crate::{
    engine::history::{RecordedLease, UnheardRelease},
    lock::{Mode, Owner},
    store::contract::{FenceCheck, FenceQuery},
};

use super::{LeaseRegistry, LeaseTag, Origin, Presence, Recording, RegisteredLease};

/// A lease whose TTL has run out, for asking the store what became of it.
#[derive(Debug)]
pub(in crate::engine) struct RunOutLease {
    pub(in crate::engine) tag: LeaseTag,
    pub(in crate::engine) query: FenceQuery,
    /// When the lease has run out, or will run out.
    until: Instant,
    /// Whether the history will record the beginning of the lease, if the lease lives.
    opens: bool,
}

/// The history records the beginning of a lease after half of its TTL, and at the latest after this time.
pub(super) const OPENS_WITHIN: Duration = Duration::from_secs(5);

// === impl LeaseRegistry ===

impl LeaseRegistry {
    /// Returns the leases about which the store must be asked: leases that have lasted long enough for the history,
    /// because they may have ended at another gateway; leases with an unheard release; and of the leases that had run
    /// out at `before`, recorded leases, and leases whose end no other gateway reports and that were granted or renewed
    /// here after `seen_since`.
    pub(in crate::engine) fn look(
        &self,
        before: Instant,
        seen_since: Option<Instant>,
    ) -> Vec<RunOutLease> {
        let (now, after) = (Instant::now(), self.recorded_after.get());
        let mut asked = Vec::new();
        for shard in &self.shards {
            for ((tag, name), lease) in &mut shard.lock().leases {
                let opens = lease.opens() && lease.opens_at <= now && self.is_long(lease, now);
                let is_unheard = after.is_some() && lease.unheard.is_some();
                let is_over = lease.until <= before;
                if lease.is_end_known || !(opens || is_unheard || is_over) {
                    continue;
                }
                let is_recorded = after.is_some() && lease.is_watched();
                if opens || is_unheard || is_recorded || lease.reports_end(seen_since) {
                    let query = FenceQuery {
                        name: name.clone(),
                        fence: lease.fence,
                        token: Some(lease.token),
                    };
                    asked.push(RunOutLease {
                        tag: *tag,
                        query,
                        until: lease.until,
                        opens,
                    });
                } else {
                    lease.is_end_known = true;
                }
            }
        }
        asked
    }

    /// Keeps watching a lease that, as the store says, lives until `until`. The gateway stays for its holder no longer
    /// than before. Returns what the history records of the beginning of the lease, if it does so now.
    pub(in crate::engine) fn extend_run_out(
        &self,
        run_out: &RunOutLease,
        until: Instant,
    ) -> Option<RecordedLease> {
        let opened = self.with_run_out(run_out, |lease| {
            (lease.until, lease.unheard, lease.presence) = (until, None, Presence::Held);
            let opened = run_out.opens.then(|| lease.recorded());
            if run_out.opens {
                lease.recording = Recording::Begun;
            }
            opened
        });
        opened.flatten()
    }

    /// Ends the questions about a lease that has run out, or is gone, after this answer of the store. `loses`: whether the
    /// store may lose a lease. Returns what the history records of the end, if it does, and the lease's owner and mode if
    /// this gateway reports the end: it has heard of all ends at other gateways.
    pub(in crate::engine) fn end_run_out(
        &self,
        run_out: &RunOutLease,
        found: FenceCheck,
        loses: bool,
        seen_since: Option<Instant>,
    ) -> (Option<RecordedLease>, Option<(Option<Owner>, Mode)>) {
        let ended = self.with_run_out(run_out, |lease| {
            let (now, is_unheard) = (Instant::now(), lease.unheard.is_some());
            let is_silent = !matches!(found, FenceCheck::Released(_));
            let is_gone = is_silent && !is_unheard && lease.until > now;
            if is_gone && !loses {
                // A break has ended the lease, and is recorded where it was made.
                (lease.until, lease.is_end_known) = (now, true);
                return (None, None);
            }
            if is_gone && lease.presence == Presence::Held && lease.origin == Origin::Here {
                // A release that this gateway has just sent is answered before the store is asked again.
                lease.presence = Presence::SeemsLost;
                return (None, None);
            }
            if is_gone {
                (lease.presence, lease.until) = (Presence::Lost, now);
            }
            // If another gateway has released the lease and the lease was short, that gateway counts the lease.
            let mut is_counted = is_unheard;
            if let FenceCheck::Released(ago) = found {
                is_counted &= ago.is_none();
                lease.presence = Presence::Held;
                lease.unheard.get_or_insert(UnheardRelease(None));
                let at = now.checked_sub(ago.unwrap_or_default()).unwrap_or(now);
                lease.until = lease.until.min(at);
            }
            lease.is_end_known = true;
            let is_long = lease.has_begun() || lease.may_rest() || self.is_long(lease, now);
            let is_recorded = match lease.origin {
                Origin::Here => is_long || is_counted || lease.presence == Presence::Lost,
                // The gateway that granted the lease may have released it, and records that or the loss.
                Origin::Elsewhere => {
                    is_counted || is_long && is_silent && lease.presence != Presence::Lost
                }
            };
            let reports = is_silent && lease.reports_end(seen_since);
            (
                is_recorded.then(|| lease.recorded()),
                reports.then(|| (lease.owner.clone(), lease.mode)),
            )
        });
        ended.unwrap_or_default()
    }

    /// Whether the lease has lasted long enough for the history.
    fn is_long(&self, lease: &RegisteredLease, now: Instant) -> bool {
        let after = self.recorded_after.get();
        after.is_some_and(|after| lease.since + *after <= now.min(lease.until))
    }

    /// Calls `then` with a lease that has run out, unless it was renewed here or removed since the store was asked, or
    /// its end was reported.
    fn with_run_out<T>(
        &self,
        run_out: &RunOutLease,
        then: impl FnOnce(&mut RegisteredLease) -> T,
    ) -> Option<T> {
        let then = |lease: &mut RegisteredLease| {
            let is_over = lease.until == run_out.until && !lease.is_end_known;
            is_over.then(|| then(lease))
        };
        self.with_lease(&run_out.query.name, run_out.tag, then)?
    }
}

// === impl RegisteredLease ===

impl RegisteredLease {
    /// Whether this gateway reports the end of the lease: no other gateway does, and the lease was granted or renewed
    /// here after `seen_since`. Since then this gateway hears of all ends at other gateways.
    fn reports_end(&self, seen_since: Option<Instant>) -> bool {
        !self.ends_elsewhere && seen_since.is_some_and(|since| self.seen >= since)
    }

    /// Whether the history records how the lease ends, so that the store must be asked.
    pub(super) fn is_watched(&self) -> bool {
        self.has_begun() || self.may_rest() || self.presence == Presence::Lost
    }

    /// Whether the history has the beginning of the lease.
    fn has_begun(&self) -> bool {
        matches!(self.recording, Recording::Begun)
    }
}

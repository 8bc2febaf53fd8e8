//! What an operator asks for after a bad night: breaks, lost leases and refused stale writes, as this gateway has made or
//! seen them. They are kept in memory only: a restart of the gateway forgets them.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    engine::{Actor, LossReason},
    lock::{LockName, Owner},
    with_all::with_all,
};

use super::fact::Fact;

/// A break, a lost lease or a refused stale write, as one gateway has made or seen it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incident {
    /// When the gateway learnt of it, by its clock. For display only.
    pub at: SystemTime,
    /// What has happened.
    pub kind: IncidentKind,
    /// The lock.
    pub name: LockName,
    /// The owner of the lease, if it has one and this gateway knows it.
    pub owner: Option<Box<str>>,
    /// The API key that broke the lease or asked for the check, if there was one.
    pub by: Option<Arc<str>>,
    /// The reason of a break, or how a lease was lost.
    pub reason: Option<Box<str>>,
}

with_all! {
    /// The kind of an incident.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum IncidentKind {
        /// A caller has broken a lease or a foreign lock.
        Broken => "broken",
        /// A lease has ended while its holder relied on it.
        Lost => "lost",
        /// A check refused the fencing token of a lease that has ended, after a larger one was granted.
        StaleWriteRefused => "stale-write-refused",
    }
}

/// The last incidents, oldest first.
#[derive(Debug, Default)]
pub(in crate::engine) struct Incidents(Mutex<VecDeque<Arc<Incident>>>);

/// How many incidents are kept, and for how long.
const MAX_INCIDENTS: usize = 100;
const KEPT: Duration = Duration::from_hours(24);

// === impl Incidents ===

impl Incidents {
    /// Keeps a fact about this lock, if the fact is an incident. A break is kept by the gateway that has carried it out,
    /// so the loss of a broken lease is none.
    pub(super) fn hear(&self, name: &LockName, fact: &Fact<'_>, now: impl FnOnce() -> SystemTime) {
        let (kind, owner, by, reason) = match fact {
            // Only the rest of a lease was ended, and its holder had released the lease.
            Fact::Broken(Some(lease), ..) if lease.is_resting => return,
            Fact::Broken(lease, by, reason) => {
                let owner = lease.and_then(|it| it.said.owner.as_ref());
                let (owner, by) = (owner.map(Owner::as_str), by.and_then(Actor::key));
                (IncidentKind::Broken, owner, by, Some(*reason))
            }
            Fact::StreamLost(_, reason)
                if !matches!(reason, LossReason::Broken | LossReason::Adopted) =>
            {
                (IncidentKind::Lost, None, None, Some(reason.as_str()))
            }
            Fact::Gone(lease, ..) if fact.lost_while_held().is_some() => {
                let how = if lease.until <= Instant::now() {
                    LossReason::Expired
                } else {
                    LossReason::Ended
                };
                let owner = lease.entry.owner.as_deref();
                (IncidentKind::Lost, owner, None, Some(how.as_str()))
            }
            Fact::StaleWriteRefused(_, by) => (IncidentKind::StaleWriteRefused, None, *by, None),
            _ => return,
        };
        self.add(Incident {
            at: now(),
            kind,
            name: name.clone(),
            owner: owner.map(Into::into),
            by: by.cloned(),
            reason: reason.map(Into::into),
        });
    }

    fn add(&self, incident: Incident) {
        let mut incidents = self.0.lock();
        if incidents.len() == MAX_INCIDENTS {
            incidents.pop_front();
        }
        incidents.push_back(Arc::new(incident));
    }

    /// The incidents of the last day, newest first.
    pub(in crate::engine) fn since_yesterday(&self, now: SystemTime) -> Vec<Arc<Incident>> {
        let is_kept = |it: &&Arc<Incident>| {
            // A time in the future is that of a clock that was set back.
            now.duration_since(it.at).unwrap_or_default() <= KEPT
        };
        let incidents = self.0.lock();
        incidents.iter().rev().filter(is_kept).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        engine::{
            history::RecordedLease,
            tests::scripted_store::{held, name},
        },
        store::contract::Loss,
        telemetry::metrics::SeenBy,
    };

    use super::*;

    fn told(incidents: &Incidents, now: SystemTime) -> Vec<(&'static str, Option<String>)> {
        let told = incidents.since_yesterday(now).into_iter();
        told.map(|it| (it.kind.as_str(), it.reason.as_deref().map(str::to_owned)))
            .collect()
    }

    #[test]
    fn breaks_losses_and_refused_writes_are_kept_and_ordinary_ends_are_not() {
        let (incidents, start) = (Incidents::default(), SystemTime::UNIX_EPOCH);
        let (lease, ops) = (held(), Actor::Key("ops".into()));
        let mut rest = held();
        rest.is_resting = true;
        let gone = |loss, seen_by| Fact::Gone(Box::new(RecordedLease::from(&lease)), loss, seen_by);
        for fact in [
            Fact::Renewed(&lease),
            Fact::Broken(Some(&rest), Some(&ops), "stuck"),
            Fact::Broken(Some(&lease), Some(&ops), "stuck"),
            Fact::StreamLost(lease.fence, LossReason::Broken),
            Fact::StreamLost(lease.fence, LossReason::Adopted),
            Fact::StreamLost(lease.fence, LossReason::Expired),
            // The lease was most likely released at another gateway.
            gone(Loss::Free, Some(SeenBy::Release)),
            gone(Loss::Broken { held: false }, Some(SeenBy::Renew)),
            gone(Loss::Free, None),
            gone(Loss::HeldByAnother, Some(SeenBy::Renew)),
            Fact::StaleWriteRefused(lease.fence, None),
        ] {
            incidents.hear(&name(), &fact, || start);
        }
        let reason = |text: &str| Some(text.to_owned());
        assert_eq!(
            told(&incidents, start),
            [
                ("stale-write-refused", None),
                ("lost", reason("ended")),
                ("lost", reason("expired")),
                ("broken", reason("stuck")),
            ]
        );
        let by = incidents.since_yesterday(start).pop().unwrap().by.clone();
        assert_eq!(by.as_deref(), Some("ops"));
    }

    #[test]
    fn the_last_hundred_of_a_day_are_kept() {
        let (incidents, start) = (Incidents::default(), SystemTime::UNIX_EPOCH);
        for hour in 0..130 {
            let (reason, at) = (hour.to_string(), start + Duration::from_hours(hour));
            incidents.hear(&name(), &Fact::Broken(None, None, &reason), || at);
        }
        assert_eq!(incidents.0.lock().len(), MAX_INCIDENTS);
        let kept = told(&incidents, start + Duration::from_hours(129));
        assert_eq!(kept.len(), 25);
        assert_eq!(kept[0].1.as_deref(), Some("129"));
        assert_eq!(kept[24].1.as_deref(), Some("105"));
    }
}

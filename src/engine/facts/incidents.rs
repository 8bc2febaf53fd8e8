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
    engine::{
        LossReason,
        events::{Event, EventKind},
    },
    lock::{LockName, Owner},
};

use super::fact::Fact;

/// The last incidents, oldest first, as events: `broken`, `lost` and `stale-write-refused`.
#[derive(Debug, Default)]
pub(in crate::engine) struct Incidents(Mutex<VecDeque<Arc<Event>>>);

/// How many incidents are kept, and for how long.
const MAX_INCIDENTS: usize = 100;
const KEPT: Duration = Duration::from_hours(24);

// === impl Incidents ===

impl Incidents {
    /// Keeps a fact about this lock, if the fact is an incident. A break is kept by the gateway that has carried it out,
    /// so the loss of a broken lease is none.
    pub(super) fn hear(&self, name: &LockName, fact: &Fact<'_>, now: impl FnOnce() -> SystemTime) {
        let is_incident = match fact {
            // The holder of a lease that rests has released it.
            Fact::Broken(lease, ..) => lease.is_none_or(|it| !it.is_resting),
            Fact::StreamLost(_, reason) => {
                !matches!(reason, LossReason::Broken | LossReason::Adopted)
            }
            Fact::StaleWriteRefused(..) => true,
            _ => false,
        };
        let incident = if is_incident {
            Event::from_fact(name, fact, now())
        } else if let (Fact::Gone(lease, ..), Some(_)) = (fact, fact.lost_while_held()) {
            let how = if lease.until <= Instant::now() {
                LossReason::Expired
            } else {
                LossReason::Ended
            };
            let owner = lease.entry.owner.as_deref();
            Some(Event {
                owner: owner.and_then(|owner| Owner::new(owner).ok()),
                reason: Some(how.as_str().into()),
                ..Event::for_lock(EventKind::Lost, name, now())
            })
        } else {
            None
        };
        if let Some(incident) = incident {
            let mut incidents = self.0.lock();
            if incidents.len() == MAX_INCIDENTS {
                incidents.pop_front();
            }
            incidents.push_back(Arc::new(incident));
        }
    }

    /// The incidents of the last day, newest first.
    pub(in crate::engine) fn since_yesterday(&self, now: SystemTime) -> Vec<Arc<Event>> {
        let is_kept = |it: &&Arc<Event>| {
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
            Actor,
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

//! What an operator asks for after a bad night: changes of the store, breaks, lost leases and refused stale writes, as this
//! gateway has made or noticed them. They are kept in memory only: a restart of the gateway forgets them.

use std::{
    collections::VecDeque,
    time::{Duration, SystemTime},
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{
    engine::{
        LossReason,
        events::{Event, EventKind},
    },
    lock::{FencingToken, LockName, Owner},
};

use super::fact::Fact;

/// The last incidents, oldest first, as events: `store-changed`, `broken`, `lost` and `stale-write-refused`.
#[derive(Debug, Default)]
pub(in crate::engine) struct Incidents(Mutex<VecDeque<Event>>);

/// How many incidents of each kind are kept, and for how long.
const MAX_OF_KIND: usize = 100;
const KEPT: Duration = Duration::from_hours(24);

// === impl Incidents ===

impl Incidents {
    /// Keeps a fact about this lock, if the fact is an incident. A holder that later finds its lease broken adds no second
    /// incident.
    pub(super) fn hear(&self, name: &LockName, fact: &Fact<'_>, now: impl FnOnce() -> SystemTime) {
        let incident = match fact {
            // A resting lock has no holder, so ending its rest takes nothing away.
            Fact::Broken(Some(lease), ..) if lease.is_resting => None,
            Fact::Broken(..)
            | Fact::StaleWriteRefused(..)
            | Fact::StreamLost(
                ..,
                LossReason::Expired
                | LossReason::HoldLimit
                | LossReason::Unread
                | LossReason::Failed,
            ) => Event::from_fact(name, fact, now()),
            // The store was asked: it knows of no release and no break.
            Fact::Expired(fence, Some(lease), _) if lease.is_lost => {
                let lost = (*fence, &lease.owner, LossReason::Ended);
                Some(lost_lease(name, lost, now()))
            }
            Fact::Gone(lease, ..) if fact.lost_while_held().is_some() => {
                let how = if lease.until <= Instant::now() {
                    LossReason::Expired
                } else {
                    LossReason::Ended
                };
                let fence = FencingToken::new(lease.entry.fencing_token).ok();
                fence.map(|fence| lost_lease(name, (fence, &lease.owner, how), now()))
            }
            _ => None,
        };
        if let Some(incident) = incident {
            self.keep(incident);
        }
    }

    /// Keeps an incident in place of one that says the same: a holder may find its loss more than once, and a former
    /// holder may go on writing.
    pub(in crate::engine) fn keep(&self, incident: Event) {
        let mut incidents = self.0.lock();
        let is_of_kind = |it: &Event| it.kind == incident.kind;
        incidents.retain(|it| {
            let is_same = is_of_kind(it) && it.name == incident.name && it.fence == incident.fence;
            !is_same || it.fence.is_none()
        });
        let of_kind = incidents.iter().filter(|it| is_of_kind(it)).count();
        if of_kind == MAX_OF_KIND {
            let oldest = incidents.iter().position(is_of_kind);
            oldest.map(|at| incidents.remove(at));
        }
        incidents.push_back(incident);
    }

    /// The incidents of the last 24 hours, newest first. A time in the future is that of a clock that was set back.
    pub(in crate::engine) fn of_last_day(&self, now: SystemTime) -> Vec<Event> {
        let is_kept = |it: &&Event| now.duration_since(it.at).unwrap_or_default() <= KEPT;
        let incidents = self.0.lock();
        incidents.iter().rev().filter(is_kept).cloned().collect()
    }
}

fn lost_lease(
    name: &LockName,
    (fence, owner, how): (FencingToken, &Option<Owner>, LossReason),
    at: SystemTime,
) -> Event {
    Event {
        fence: Some(fence),
        owner: owner.clone(),
        reason: Some(how.as_str().into()),
        ..Event::for_lock(EventKind::Lost, name, at)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::{
        engine::{
            Actor, StoreChange, StoreChangeKind,
            history::RecordedLease,
            tests::scripted_store::{held, name},
        },
        store::contract::Loss,
        telemetry::metrics::SeenBy,
    };

    use super::*;

    /// A lease of its own for each number.
    fn lease(number: u64) -> crate::lock::HeldLease {
        let mut lease = held();
        lease.fence = FencingToken::new(number).unwrap();
        lease
    }

    fn told(incidents: &Incidents, now: SystemTime) -> Vec<(&'static str, u64, Option<String>)> {
        let told = incidents.of_last_day(now).into_iter();
        let fence = |it: &Event| it.fence.map_or(0, FencingToken::get);
        told.map(|it| {
            (
                it.kind.as_str(),
                fence(&it),
                it.reason.as_deref().map(str::to_owned),
            )
        })
        .collect()
    }

    #[test]
    fn breaks_losses_and_refused_writes_are_kept_and_ordinary_ends_are_not() {
        let (incidents, start) = (Incidents::default(), SystemTime::UNIX_EPOCH);
        let ops = Actor::Key("ops".into());
        let mut rest = lease(1);
        rest.is_resting = true;
        let recorded = |number| Box::new(RecordedLease::from(&lease(number)));
        let over = |number| {
            let mut lease = recorded(number);
            lease.until = Instant::now();
            lease
        };
        let lost = |number| {
            let mut lease = recorded(number);
            (lease.is_lost, lease.owner) = (true, Owner::new("ci").ok());
            lease
        };
        let fence = |number| FencingToken::new(number).unwrap();
        for fact in [
            Fact::Renewed(&lease(2)),
            Fact::Broken(Some(&rest), Some(&ops), "stuck"),
            Fact::Broken(Some(&lease(3)), Some(&ops), "stuck"),
            Fact::StreamLost(fence(4), None, LossReason::Broken),
            Fact::StreamLost(fence(4), None, LossReason::Adopted),
            Fact::StreamLost(fence(4), None, LossReason::Revoked),
            // An ordinary release through another gateway, or a loss that the store is asked about.
            Fact::StreamLost(fence(4), None, LossReason::Ended),
            Fact::StreamLost(fence(5), Owner::new("ci").ok(), LossReason::Expired),
            // The lease was most likely released at another gateway.
            Fact::Gone(recorded(6), Loss::Free, Some(SeenBy::Release)),
            Fact::Gone(
                recorded(6),
                Loss::Broken { held: false },
                Some(SeenBy::Renew),
            ),
            Fact::Gone(recorded(6), Loss::Free, None),
            Fact::Expired(fence(6), Some(recorded(6)), None),
            Fact::Gone(recorded(7), Loss::HeldByAnother, Some(SeenBy::Renew)),
            Fact::Gone(over(8), Loss::Free, Some(SeenBy::Release)),
            Fact::Expired(fence(9), Some(lost(9)), None),
            Fact::StaleWriteRefused(fence(10), None),
            Fact::StaleWriteRefused(fence(10), None),
        ] {
            incidents.hear(&name(), &fact, || start);
        }
        let reason = |text: &str| Some(text.to_owned());
        assert_eq!(
            told(&incidents, start),
            [
                ("stale-write-refused", 10, None),
                ("lost", 9, reason("ended")),
                ("lost", 8, reason("expired")),
                ("lost", 7, reason("ended")),
                ("lost", 5, reason("expired")),
                ("broken", 3, reason("stuck")),
            ]
        );
        let all = incidents.of_last_day(start);
        let owners = [1, 4].map(|at| all[at].owner.clone());
        assert_eq!(owners, [Owner::new("ci").ok(), Owner::new("ci").ok()]);
        assert_eq!(all[5].by.as_deref(), Some("ops"));
    }

    #[test]
    fn the_last_hundred_of_each_kind_are_kept_for_a_day() {
        let (incidents, start) = (Incidents::default(), SystemTime::UNIX_EPOCH);
        let (kind, text) = (StoreChangeKind::FailedOver, String::new());
        let change = StoreChange {
            kind,
            text,
            at: start,
        };
        incidents.keep(Event::of_store(&Arc::new(change)));
        for hour in 1..=130 {
            let (reason, at) = (hour.to_string(), start + Duration::from_hours(hour));
            incidents.hear(
                &name(),
                &Fact::Broken(Some(&lease(hour)), None, &reason),
                || at,
            );
        }
        // The clock was set back.
        let all = told(&incidents, start);
        assert_eq!((all.len(), all[100].0), (MAX_OF_KIND + 1, "store-changed"));
        let kept = told(&incidents, start + Duration::from_hours(130));
        assert_eq!((kept.len(), kept[0].1, kept[24].1), (25, 130, 106));
    }
}

//! Grants whose event waits for the event of the end before them.
//!
//! A hand-off wakes the next holder before whoever ended the lease goes on, so the two may be published in either order.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use tokio::time::Instant;

use crate::lock::LockName;

use super::line::EventMessage;

/// Grants whose event waits, by their lock: thousands may wait while each event asks for those of its lock.
#[derive(Debug, Default)]
pub(super) struct WithheldGrants {
    by_lock: HashMap<LockName, Vec<WithheldGrant>>,
    /// When each is due, the earliest first; some may have been taken since.
    due: VecDeque<(Instant, LockName)>,
}

/// A grant whose event waits.
#[derive(Debug)]
pub(super) struct WithheldGrant {
    pub(super) news: EventMessage,
    /// Until when it waits: the end may be told much later, as an expiry, or by nobody.
    until: Instant,
}

/// How long an event waits: longer than a busy gateway needs to go on.
const LONGEST_WAIT: Duration = Duration::from_millis(250);

// === impl WithheldGrants ===

impl WithheldGrants {
    /// Withholds a grant of a lock.
    pub(super) fn put(&mut self, name: LockName, news: EventMessage) {
        let until = Instant::now() + LONGEST_WAIT;
        self.due.push_back((until, name.clone()));
        self.put_back(name, WithheldGrant { news, until });
    }

    /// Goes on with one that was taken, until the same time.
    pub(super) fn put_back(&mut self, name: LockName, grant: WithheldGrant) {
        self.by_lock.entry(name).or_default().push(grant);
    }

    /// When the next one has waited for long enough.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.front().map(|(until, _)| *until)
    }

    /// Takes those that have waited for long enough.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<WithheldGrant> {
        let mut taken = Vec::new();
        while self.next_due().is_some_and(|due| due <= now)
            && let Some((until, name)) = self.due.pop_front()
        {
            taken.extend(self.take(&name, |grant| grant.until <= until));
        }
        taken
    }

    /// Takes those of the lease of an event; all of them for an event of no lock.
    pub(super) fn take_same_lease(&mut self, news: &EventMessage) -> Vec<WithheldGrant> {
        let event = &news.event;
        let Some(name) = &event.name else {
            let last = self.due.back().map(|(until, _)| *until);
            return last.map_or_else(Vec::new, |last| self.take_due(last));
        };
        self.take(name, |grant| {
            let of_lease = grant.news.lease.is_some() && grant.news.lease == news.lease;
            of_lease || event.fence.is_some() && grant.news.event.fence == event.fence
        })
    }

    /// Takes those of a lock.
    pub(super) fn take_same_lock(&mut self, name: &LockName) -> Vec<WithheldGrant> {
        self.take(name, |_| true)
    }

    fn take(
        &mut self,
        name: &LockName,
        mut wanted: impl FnMut(&WithheldGrant) -> bool,
    ) -> Vec<WithheldGrant> {
        let Some(grants) = self.by_lock.get_mut(name) else {
            return Vec::new();
        };
        let taken = grants.extract_if(.., |grant| wanted(grant)).collect();
        if grants.is_empty() {
            self.by_lock.remove(name);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::{
        super::event::{Event, EventKind},
        *,
    };

    fn news(kind: EventKind, name: &LockName) -> EventMessage {
        Event::of(kind, name, SystemTime::UNIX_EPOCH).into()
    }

    #[test]
    fn thousands_of_grants_that_wait_cost_an_event_of_another_lock_nothing() {
        let name = |number| LockName::new(&format!("lock-{number}")).unwrap();
        let mut withheld = WithheldGrants::default();
        for name in (0..2_000).map(name) {
            let grant = news(EventKind::Acquired, &name);
            withheld.put(name, grant);
        }
        let mut looked_at = 0;
        let taken = withheld.take(&name(1_000), |_| {
            looked_at += 1;
            true
        });
        assert_eq!((taken.len(), looked_at), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_grant_that_is_put_back_is_due_at_its_time() {
        let name = LockName::new("a").unwrap();
        let mut withheld = WithheldGrants::default();
        withheld.put(name.clone(), news(EventKind::Acquired, &name));
        let due = withheld.next_due().unwrap();
        for grant in withheld.take_same_lock(&name) {
            withheld.put_back(name.clone(), grant);
        }
        assert_eq!(withheld.next_due(), Some(due));
        assert_eq!(withheld.take_due(due).len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn grants_are_taken_in_the_order_in_which_they_were_published() {
        let names = ["b", "a", "b", "c"].map(|name| LockName::new(name).unwrap());
        let taken = |grants: Vec<WithheldGrant>| {
            let names = grants
                .iter()
                .filter_map(|grant| grant.news.event.name.as_ref());
            names.map(LockName::to_string).collect::<Vec<_>>()
        };
        let filled = async || {
            let mut withheld = WithheldGrants::default();
            for name in &names {
                let grant = news(EventKind::Acquired, name);
                withheld.put(name.clone(), grant);
                tokio::time::advance(Duration::from_millis(1)).await;
            }
            withheld
        };
        let gap = Event::gap("too-many", SystemTime::UNIX_EPOCH).into();
        assert_eq!(
            taken(filled().await.take_same_lease(&gap)),
            ["b", "a", "b", "c"]
        );
        let mut withheld = filled().await;
        let grant = withheld.take_same_lock(&names[1]).pop().unwrap();
        withheld.put_back(names[1].clone(), grant);
        // The first two.
        let due = Instant::now() + Duration::from_millis(247);
        assert_eq!(taken(withheld.take_due(due)), ["b", "a"]);
        assert_eq!(taken(withheld.take_same_lock(&names[0])), ["b"]);
        assert_eq!(taken(withheld.take_due(due + LONGEST_WAIT)), ["c"]);
        assert_eq!(withheld.next_due(), None);
    }
}

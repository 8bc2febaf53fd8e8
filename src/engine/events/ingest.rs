//! What the publisher makes of an event: fills in what is known, drops what was told before.

use tokio::time::Instant;

use crate::{
    engine::leases::{LeaseTag, RegisteredLease},
    lock::LockName,
};

use super::{
    event::{Event, EventKind},
    line::EventMessage,
    recent_ends::{EndedLease, RecentEnds},
    tracker::{EventLeaseKey, Tracked, Tracker},
};

/// What is known of leases, while there are listeners.
#[derive(Debug, Default)]
pub(super) struct EventIngest {
    pub(super) tracker: Tracker,
    ended: RecentEnds,
}

// === impl EventIngest ===

impl EventIngest {
    /// Takes in an event, and answers what is to be told.
    pub(super) fn process(&mut self, news: EventMessage) -> Option<Event> {
        match news.event.kind {
            EventKind::Acquired | EventKind::Renewed => self.apply_live(news),
            EventKind::Released | EventKind::Expired | EventKind::Broken | EventKind::Lost => {
                self.apply_end(news)
            }
            EventKind::Gap | EventKind::Queued | EventKind::ReleaseRequested => Some(news.event),
        }
    }

    /// Begins with a lease that was granted before anybody listened.
    pub(super) fn track(&mut self, tag: LeaseTag, name: &LockName, lease: &RegisteredLease) {
        let key = EventLeaseKey {
            name: name.clone(),
            fence: lease.fence,
        };
        let tracked = Tracked {
            id: Some(tag),
            owner: lease.owner.clone(),
            mode: Some(lease.mode),
            announced: false,
            until: lease.until,
        };
        self.tracker.track(key, tracked);
    }

    /// Whether the lease of an event is known to live.
    pub(super) fn is_known(&self, news: &EventMessage) -> bool {
        self.resolve(news).is_some()
    }

    /// Whether this is a new lease although one lives that excludes it, as far as is known: the end of that was not told
    /// yet.
    pub(super) fn is_before_end(&self, news: &EventMessage) -> bool {
        let event = &news.event;
        let key = key_of(event).filter(|_| event.kind == EventKind::Acquired);
        key.is_some_and(|key| self.tracker.excludes(&key, event.mode))
    }

    fn resolve(&self, news: &EventMessage) -> Option<&EventLeaseKey> {
        self.tracker.resolve(news.lease?, news.event.name.as_ref()?)
    }

    fn apply_live(&mut self, news: EventMessage) -> Option<Event> {
        let (event, id) = (news.event, news.lease);
        let Some(key) = key_of(&event) else {
            return Some(event);
        };
        let ended = self.has_ended(Some(&key), id, Some(&key.name));
        if ended && event.kind == EventKind::Renewed {
            return None;
        }
        let begins = event.kind == EventKind::Acquired;
        // Both the request that was granted it and one that asked again may say so.
        let before = self.tracker.get(&key);
        let told = begins && before.is_some_and(|lease| lease.announced && lease.id == id);
        if begins && before.is_some() {
            // A renewal that was heard of first says until when it lasts.
            self.tracker.has_begun(&key);
        } else if let (false, Some(left)) = (ended, event.expires_in) {
            let lease = Tracked {
                id,
                owner: event.owner.clone(),
                mode: event.mode,
                announced: begins,
                until: Instant::now() + left,
            };
            self.tracker.track(key, lease);
        }
        (!told).then_some(event)
    }

    fn apply_end(&mut self, news: EventMessage) -> Option<Event> {
        let id = news.lease;
        let key = key_of(&news.event).or_else(|| self.resolve(&news).cloned());
        let name = news.event.name.as_ref();
        let is_told = news.event.kind.ends_lease() && self.has_ended(key.as_ref(), id, name);
        if is_told || (key.is_none() && news.if_known) {
            return None;
        }
        Some(self.record_end(news.event, key, id))
    }

    fn record_end(
        &mut self,
        mut event: Event,
        key: Option<EventLeaseKey>,
        id: Option<LeaseTag>,
    ) -> Event {
        // Of a stream that lost a lease in time the lease may live a little longer.
        let over = event.kind.ends_lease() || event.reason.as_deref() == Some("ended");
        if let Some(key) = key {
            let tracked = self.tracker.get(&key);
            let id = id.or(tracked.and_then(|lease| lease.id));
            let owner = tracked.and_then(|lease| lease.owner.clone());
            event.fence = Some(key.fence);
            event.owner = event.owner.or(owner);
            event.mode = event.mode.or(tracked.and_then(|lease| lease.mode));
            if over {
                self.tracker.forget(&key);
                let name = key.name.clone();
                self.ended.insert(EndedLease::Key(key));
                if let Some(id) = id {
                    self.ended.insert(EndedLease::Id(id, name));
                }
            }
        } else if let (true, Some(id), Some(name)) = (over, id, &event.name) {
            self.ended.insert(EndedLease::Id(id, name.clone()));
        }
        event
    }

    fn has_ended(
        &self,
        key: Option<&EventLeaseKey>,
        id: Option<LeaseTag>,
        name: Option<&LockName>,
    ) -> bool {
        let key = key.is_some_and(|key| self.ended.contains(&EndedLease::Key(key.clone())));
        key || id.zip(name).is_some_and(|(id, name)| {
            let mark = EndedLease::Id(id, name.clone());
            self.ended.contains(&mark)
        })
    }
}

fn key_of(event: &Event) -> Option<EventLeaseKey> {
    Some(EventLeaseKey {
        name: event.name.clone()?,
        fence: event.fence?,
    })
}

//! What the teller makes of an event: fills in what is known, drops what was told before.

use std::time::SystemTime;

use tokio::time::Instant;

use super::{
    ended::{Ended, Mark},
    event::{Event, EventKind},
    line::{LeaseId, News},
    tracker::{LeaseKey, Tracked, Tracker},
};

/// Where an event has happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    /// Here: everybody hears of the expiry of this lease from here.
    Here,
    /// At another gateway, which tells of the expiry.
    Elsewhere,
}

/// What is known of leases, while somebody listens.
#[derive(Debug, Default)]
pub(super) struct Knowledge {
    pub(super) tracker: Tracker,
    ended: Ended,
    /// Whether a lease may end at another gateway and nobody here hears of it.
    deaf: bool,
}

// === impl Knowledge ===

impl Knowledge {
    /// Takes in an event, and answers what is to be told.
    pub(super) fn take_in(&mut self, news: News, origin: Origin) -> Option<Event> {
        match news.event.kind {
            EventKind::Acquired | EventKind::Renewed => self.lives(news, origin),
            EventKind::Released | EventKind::Expired | EventKind::Broken | EventKind::Lost => {
                self.ends(news)
            }
            EventKind::Gap => {
                self.tracker.watch_none();
                Some(news.event)
            }
            EventKind::Queued => Some(news.event),
        }
    }

    /// From now on leases may end unheard at other gateways.
    pub(super) fn hears_nothing(&mut self) {
        self.deaf = true;
        self.tracker.watch_none();
    }

    /// From now on ends are heard of wherever a lease ends.
    pub(super) fn hears(&mut self) {
        self.deaf = false;
    }

    /// Whether the lease of an event is known to live.
    pub(super) fn knows(&self, news: &News) -> bool {
        news.lease
            .is_some_and(|id| self.tracker.resolve(id).is_some())
    }

    /// A lease that was watched is gone, and nobody has said why: its time was over.
    pub(super) fn gone(&mut self, key: &LeaseKey, at: SystemTime) -> Option<News> {
        let lease = self.tracker.get(key)?;
        if !lease.watched {
            self.tracker.forget(key);
            return None;
        }
        Some(News {
            event: Event {
                fence: Some(key.fence),
                owner: lease.owner.clone(),
                ..Event::of(EventKind::Expired, &key.name, at)
            },
            lease: lease.id,
            if_known: false,
        })
    }

    fn lives(&mut self, news: News, origin: Origin) -> Option<Event> {
        let (event, id) = (news.event, news.lease);
        let Some(key) = key_of(&event) else {
            return Some(event);
        };
        let ended = self.has_ended(Some(&key), id);
        if ended && event.kind == EventKind::Renewed {
            return None;
        }
        let begins = event.kind == EventKind::Acquired;
        // Both the request that was granted it and one that asked again may say so.
        let before = self.tracker.get(&key);
        let told = begins && before.is_some_and(|lease| lease.begun && lease.id == id);
        if begins && before.is_some() {
            // A renewal that was heard of first, here perhaps, says until when it lasts and who watches it.
            self.tracker.has_begun(&key);
        } else if let (false, Some(left)) = (ended, event.expires_in) {
            let watched = origin == Origin::Here && !self.deaf;
            let until = Instant::now() + left;
            let lease = Tracked {
                begun: begins,
                ..Tracked::new(id, event.owner.clone(), until, watched)
            };
            self.tracker.track(key, lease);
        }
        (!told).then_some(event)
    }

    fn ends(&mut self, news: News) -> Option<Event> {
        let id = news.lease;
        let key = key_of(&news.event).or_else(|| self.tracker.resolve(id?).cloned());
        let is_told = news.event.kind.ends_lease() && self.has_ended(key.as_ref(), id);
        if is_told || (key.is_none() && news.if_known) {
            return None;
        }
        Some(self.tell_end(news.event, key, id))
    }

    fn tell_end(&mut self, mut event: Event, key: Option<LeaseKey>, id: Option<LeaseId>) -> Event {
        // Of a stream that lost a lease in time the lease may live a little longer.
        let over = event.kind.ends_lease() || event.reason.as_deref() == Some("ended");
        if let Some(key) = key {
            let id = id.or_else(|| self.tracker.get(&key)?.id);
            let owner = self.tracker.get(&key).and_then(|lease| lease.owner.clone());
            event.fence = Some(key.fence);
            event.owner = event.owner.or(owner);
            if over {
                self.tracker.forget(&key);
                self.ended.insert(Mark::Key(key));
                if let Some(id) = id {
                    self.ended.insert(Mark::Id(id));
                }
            }
        } else if let (true, Some(id)) = (over, id) {
            self.ended.insert(Mark::Id(id));
        }
        event
    }

    fn has_ended(&self, key: Option<&LeaseKey>, id: Option<LeaseId>) -> bool {
        let key = key.is_some_and(|key| self.ended.contains(&Mark::Key(key.clone())));
        key || id.is_some_and(|id| self.ended.contains(&Mark::Id(id)))
    }
}

fn key_of(event: &Event) -> Option<LeaseKey> {
    Some(LeaseKey {
        name: event.name.clone()?,
        fence: event.fence?,
    })
}

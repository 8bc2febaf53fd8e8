//! What the teller makes of an event: fills in what is known, drops what was told before.

use tokio::time::Instant;

use super::{
    ended::{Ended, Mark},
    event::{Event, EventKind},
    limbo::Limbo,
    line::{LeaseId, News},
    tracker::{LeaseKey, Origin, Tracked, Tracker},
};

/// What is known of leases, while somebody listens.
#[derive(Debug, Default)]
pub(super) struct Knowledge {
    pub(super) tracker: Tracker,
    pub(super) limbo: Limbo,
    ended: Ended,
    /// Whether a lease may end at another gateway and nobody here hears of it.
    deaf: bool,
}

// === impl Knowledge ===

impl Knowledge {
    /// Takes in an event, and answers what is to be told now.
    pub(super) fn take_in(&mut self, news: News, origin: Origin) -> Vec<Event> {
        match news.event.kind {
            EventKind::Acquired => {
                let id = news.lease;
                let mut told = self.lives(news, origin);
                for (news, origin) in id.map(|id| self.limbo.take(id)).unwrap_or_default() {
                    told.extend(self.settle(news, origin));
                }
                told
            }
            EventKind::Renewed
            | EventKind::Released
            | EventKind::Expired
            | EventKind::Broken
            | EventKind::Lost => {
                let unknown = news.lease.filter(|&id| self.is_new(id));
                let news = match unknown {
                    Some(id) => self.limbo.enter(id, news, origin),
                    None => Some(news),
                };
                news.map(|news| self.settle(news, origin))
                    .unwrap_or_default()
            }
            EventKind::Gap => {
                self.tracker.doubt_all();
                vec![news.event]
            }
            EventKind::Queued => vec![news.event],
        }
    }

    /// From now on leases may end unheard at other gateways.
    pub(super) fn hears_nothing(&mut self) {
        self.deaf = true;
    }

    /// Whether leases may end unheard.
    pub(super) fn is_deaf(&self) -> bool {
        self.deaf
    }

    /// From now on ends are heard of wherever a lease ends. Of those that live, only what is seen to
    /// live from now on can be said to have expired.
    pub(super) fn hears(&mut self) {
        self.deaf = false;
        self.tracker.doubt_all();
    }

    /// A lease was seen to live, until then.
    pub(super) fn is_alive(&mut self, key: &LeaseKey, until: Instant) {
        self.tracker.is_alive(key, until, !self.deaf);
    }

    /// Whether the lease of an event is known to live.
    pub(super) fn knows(&self, news: &News) -> bool {
        news.lease
            .is_some_and(|id| self.tracker.resolve(id).is_some())
    }

    /// What has waited in vain for the beginning of its lease.
    pub(super) fn overdue(&mut self, now: Instant) -> Option<Vec<Event>> {
        let waited = self.limbo.take_due(now)?;
        let settled = waited.into_iter();
        Some(
            settled
                .flat_map(|(news, origin)| self.settle(news, origin))
                .collect(),
        )
    }

    /// A lease is gone, and nobody has said why.
    pub(super) fn gone(&mut self, key: &LeaseKey, at: std::time::SystemTime) -> Option<News> {
        let lease = self.tracker.get(key)?;
        if !lease.witnessed {
            self.tracker.is_missing(key);
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

    /// Whether nothing was heard yet of a lease.
    fn is_new(&self, id: LeaseId) -> bool {
        self.tracker.resolve(id).is_none() && !self.ended.contains(&Mark::Id(id))
    }

    /// Takes in what waits for nothing.
    fn settle(&mut self, news: News, origin: Origin) -> Vec<Event> {
        if news.event.kind == EventKind::Renewed {
            self.lives(news, origin)
        } else {
            self.ends(news)
        }
    }

    fn lives(&mut self, news: News, origin: Origin) -> Vec<Event> {
        let (event, id) = (news.event, news.lease);
        let Some(key) = key_of(&event) else {
            return vec![event];
        };
        let ended = self.has_ended(Some(&key), id);
        if ended && event.kind == EventKind::Renewed {
            return Vec::new();
        }
        let begins = event.kind == EventKind::Acquired;
        // Both the request that was granted it and one that asked again may say so.
        let before = self.tracker.get(&key);
        let told = begins && before.is_some_and(|lease| lease.begun && lease.id == id);
        if let (false, Some(left)) = (ended, event.expires_in) {
            let lease = Tracked {
                id,
                witnessed: !self.deaf,
                begun: begins,
                ..Tracked::new(event.owner.clone(), Instant::now() + left, origin)
            };
            self.tracker.track(key, lease);
        }
        if told { Vec::new() } else { vec![event] }
    }

    fn ends(&mut self, news: News) -> Vec<Event> {
        let id = news.lease;
        let key = key_of(&news.event).or_else(|| self.tracker.resolve(id?).cloned());
        let is_told = news.event.kind.ends_lease() && self.has_ended(key.as_ref(), id);
        if is_told || (key.is_none() && news.if_known) {
            return Vec::new();
        }
        vec![self.tell_end(news.event, key, id)]
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

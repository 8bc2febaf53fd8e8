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
}

// === impl Knowledge ===

impl Knowledge {
    /// Takes in an event, and answers what is to be told now.
    pub(super) fn take_in(&mut self, news: News, origin: Origin) -> Vec<Event> {
        match news.event.kind {
            EventKind::Acquired | EventKind::Renewed => self.lives(news, origin),
            EventKind::Released | EventKind::Expired | EventKind::Broken | EventKind::Lost => {
                self.ends(news, true)
            }
            EventKind::Gap => {
                self.tracker.doubt_all();
                vec![news.event]
            }
            EventKind::Queued => vec![news.event],
        }
    }

    /// Whether the lease of an event is known to live.
    pub(super) fn knows(&self, news: &News) -> bool {
        news.lease
            .is_some_and(|id| self.tracker.resolve(id).is_some())
    }

    /// An end that has waited for its beginning in vain.
    pub(super) fn overdue(&mut self, now: Instant) -> Option<Vec<Event>> {
        let news = self.limbo.take_due(now)?;
        Some(self.ends(news, false))
    }

    /// A lease is gone, and nobody has said why.
    pub(super) fn gone(&mut self, key: &LeaseKey, at: std::time::SystemTime) -> Option<News> {
        let lease = self.tracker.get(key)?;
        if !lease.witnessed {
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

    fn lives(&mut self, news: News, origin: Origin) -> Vec<Event> {
        let (event, id) = (news.event, news.lease);
        let Some(key) = key_of(&event) else {
            return vec![event];
        };
        let ended = self.has_ended(Some(&key), id);
        if ended && event.kind == EventKind::Renewed {
            return Vec::new();
        }
        if let (false, Some(left)) = (ended, event.expires_in) {
            let lease = Tracked::new(event.owner.clone(), Instant::now() + left, origin);
            self.tracker.track(key, Tracked { id, ..lease });
        }
        let end = id.and_then(|id| self.limbo.take(id));
        let mut told = vec![event];
        told.extend(end.into_iter().flat_map(|end| self.ends(end, false)));
        told
    }

    fn ends(&mut self, news: News, may_wait: bool) -> Vec<Event> {
        let id = news.lease;
        let known = key_of(&news.event).or_else(|| self.tracker.resolve(id?).cloned());
        let is_end = news.event.kind.ends_lease();
        if is_end && self.has_ended(known.as_ref(), id) {
            return Vec::new();
        }
        let Some(key) = known else {
            return match id {
                Some(_) if news.if_known => Vec::new(),
                Some(id) if may_wait => match self.limbo.enter(id, news) {
                    None => Vec::new(),
                    Some(news) => self.tell_end(news.event, None, Some(id)),
                },
                id => self.tell_end(news.event, None, id),
            };
        };
        self.tell_end(news.event, Some(key), id)
    }

    fn tell_end(
        &mut self,
        mut event: Event,
        key: Option<LeaseKey>,
        id: Option<LeaseId>,
    ) -> Vec<Event> {
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
        vec![event]
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

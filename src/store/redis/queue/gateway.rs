//! State of this gateway for the queues in Redis: its id, its waiters, its timers, and the attempts that ended here
//! lately.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{mpsc, watch},
    time::Instant,
};
use tracing::{debug, warn};

use crate::{
    lock::{FencingToken, LockName, TokenHash},
    store::{
        contract::{BreakFeed, BrokenLease, Contention, Holder},
        parking::{News, Parking},
    },
};

use super::{
    super::{
        Slot,
        client::token_hash,
        gateways::{Channels, Heard, NewsWanted},
        keys::{GatewayId, Keys},
        scripts::ScriptNews,
        slot::Floors,
    },
    timers::{BACKLOG, OrphanKind, OrphanedAttempt, Timers},
};

/// State of this gateway for the queues in Redis. It processes the news of scripts and the messages of other gateways.
#[derive(Debug)]
pub(crate) struct RedisGateway {
    pub(crate) id: GatewayId,
    pub(crate) channels: Channels,
    pub(crate) parking: Parking,
    pub(crate) breaks: BreakFeed,
    pub(crate) floors: Arc<Floors>,
    pub(crate) timers: Timers<LockName>,
    /// Timers for the kept positions, whose callers may come back to this gateway.
    pub(crate) kept: Timers<(LockName, TokenHash)>,
    /// How many times messages of other gateways may have been missed.
    pub(crate) missed: watch::Sender<u64>,
    /// Whether the subscription to messages of other gateways is connected.
    pub(crate) is_subscribed: AtomicBool,
    /// Requests of other gateways for the news of this gateway.
    pub(crate) news_wanted: Arc<NewsWanted>,
    /// Whether a grant must wait for replicas. If so, a handed-over grant is delivered as provisional, because its
    /// confirmation waits for replicas.
    pub(crate) waits_for_replicas: bool,
    /// The slots in which an attempt was queued through this gateway, and the time of the last such attempt.
    slots: Mutex<HashMap<Slot, Instant>>,
    /// When an acquire last announced in each slot that this gateway is alive.
    announced: Mutex<HashMap<Slot, Instant>>,
    /// Attempts without a caller, whose grants and positions must be released.
    orphans: mpsc::Sender<OrphanedAttempt>,
    /// Attempts that ended lately at this gateway, of which a server that takes over may not know the end.
    pub(crate) departures: Departures,
    /// How many messages to other gateways could not be published. Each lost message delays a waiter by up to two
    /// seconds.
    pub(crate) unsent: AtomicU64,
}

/// How long a gateway counts as alive after it last announced this, as in `acquire.lua` and `confirm.lua`.
pub(crate) const ALIVE: Duration = Duration::from_secs(6);
/// How often acquires announce in a slot that their gateway is alive; the rounds announce it too.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(1);
/// How many slots `announced` may hold before entries older than [`ANNOUNCE_EVERY`] are removed.
const MAX_ANNOUNCED: usize = 1_024;
/// The longest time to the end of a lease that an `ends` message may announce. The next round notices the end of a
/// longer lease.
const LONGEST_ANNOUNCED: Duration = Duration::from_secs(4);

// === impl RedisGateway ===

impl RedisGateway {
    pub(crate) fn new(
        channels: Channels,
        floors: Arc<Floors>,
        waits_for_replicas: bool,
    ) -> (Self, mpsc::Receiver<OrphanedAttempt>) {
        let (orphans, found) = mpsc::channel(BACKLOG);
        let gateway = Self {
            id: GatewayId::random(),
            channels,
            parking: Parking::default(),
            breaks: BreakFeed::default(),
            floors,
            timers: Timers::default(),
            kept: Timers::default(),
            missed: watch::Sender::new(0),
            is_subscribed: AtomicBool::new(false),
            news_wanted: Arc::default(),
            waits_for_replicas,
            slots: Mutex::default(),
            announced: Mutex::default(),
            orphans,
            departures: Departures::default(),
            unsent: AtomicU64::new(0),
        };
        (gateway, found)
    }

    /// Processes the news in a script's reply for this gateway.
    pub(crate) fn ingest(&self, keys: &Keys, all_news: Vec<ScriptNews>) {
        for news in all_news {
            match news {
                ScriptNews::Granted(token, lease) => {
                    self.floors.raise(keys.slot(), lease.fence);
                    self.watch_expiry(keys.name(), lease.expires_in);
                    let fence = lease.fence;
                    let granted = if self.waits_for_replicas {
                        News::GrantedProvisionally
                    } else {
                        News::Granted(lease)
                    };
                    self.deliver_grant(keys.name(), token, fence, granted);
                }
                ScriptNews::Passed(lasts) => self.watch_expiry(keys.name(), lasts),
                ScriptNews::Provisional(token) => {
                    // If the attempt no longer waits at this gateway, nothing is done: a provisional grant ends soon
                    // unless it is confirmed.
                    let _delivered =
                        self.parking
                            .deliver(keys.name(), &token, News::GrantedProvisionally);
                }
                ScriptNews::Replaced(token) => self.end(keys.name(), &token, News::Replaced),
                ScriptNews::Outdated(token) => self.end(keys.name(), &token, News::NewerWaiter),
                ScriptNews::Forgotten(token) => self.end(keys.name(), &token, News::Forgotten),
                ScriptNews::More => self.timers.set(keys.name(), Duration::ZERO),
                ScriptNews::Unsent => {
                    self.unsent.fetch_add(1, Ordering::Relaxed);
                }
                ScriptNews::Lapsed => self.note_lapsed(keys.slot()),
            }
        }
    }

    /// Processes an event of the subscription to messages of other gateways.
    pub(crate) fn ingest_heard(&self, heard: Heard<'_>) {
        match heard {
            Heard::Connected => {
                self.missed.send_modify(|times| *times += 1);
                self.is_subscribed.store(true, Ordering::Relaxed);
            }
            Heard::Message(message) => self.ingest_message(message),
            Heard::Disconnected => self.is_subscribed.store(false, Ordering::Relaxed),
        }
    }

    /// Processes a message of another gateway: kind, token hash and lock name, with spaces between, and the fence of a
    /// grant. Unknown messages, perhaps of a later version, are ignored.
    fn ingest_message(&self, message: &str) {
        if let Some(rest) = message.strip_prefix("ends ") {
            return self.ingest_end(rest);
        }
        let mut words = message.split(' ');
        let (what, token) = (words.next(), words.next().and_then(token_hash));
        match (what, token, words.next().map(LockName::new)) {
            (Some("granted"), Some(token), Some(Ok(name))) => {
                let fence = words.next().and_then(|digits| digits.parse().ok());
                let Some(fence) = fence.and_then(|number| FencingToken::new(number).ok()) else {
                    return debug!("a message in an unknown format");
                };
                self.deliver_grant(&name, token, fence, News::GrantedProvisionally);
            }
            (Some("broken"), Some(token), Some(Ok(name))) => {
                self.breaks.publish(BrokenLease { name, token });
            }
            (Some("replaced"), Some(token), Some(Ok(name))) => {
                self.end(&name, &token, News::Replaced);
            }
            (Some("outdated"), Some(token), Some(Ok(name))) => {
                self.end(&name, &token, News::NewerWaiter);
            }
            (Some("forgotten"), Some(token), Some(Ok(name))) => {
                self.end(&name, &token, News::Forgotten);
            }
            _ => debug!("a message in an unknown format"),
        }
    }

    /// Records that an attempt is queued through this gateway, and sets a timer for the time at which the lock may pass
    /// on.
    pub(crate) fn note_queued(
        &self,
        keys: &Keys,
        contention: &Contention,
        next_look: Option<Duration>,
    ) {
        self.slots.lock().insert(keys.slot(), Instant::now());
        let left = match &contention.holder {
            // A provisional grant may end sooner once it is confirmed, because its TTL may be shorter.
            Some(Holder::Lease(lease)) => Some(lease.expires_in.min(lease.ttl.duration())),
            Some(Holder::Shared(_)) => Some(next_look.unwrap_or_default()),
            // Without an expiry, or if the lock is free but could not be granted, no timer is set, and only the rounds
            // look at the lock.
            Some(Holder::Foreign { expires_in, .. }) => *expires_in,
            None => None,
        };
        if let Some(left) = left {
            self.watch_expiry(keys.name(), left);
        }
    }

    /// Makes the waiters of a slot ask again, because this gateway did not count as alive in the slot until now, and
    /// scripts may have removed its waiters as dead. If no attempt was queued in the slot through this gateway before,
    /// the attempt that has just been queued stays.
    fn note_lapsed(&self, slot: Slot) {
        if self.slots.lock().contains_key(&slot) {
            self.parking
                .notify_forgotten(|name| Slot::of_name(name) == slot);
        }
    }

    /// Whether an acquire that may be queued must announce that this gateway is alive: if no acquire has announced this
    /// in the slot within the last second.
    pub(crate) fn should_announce(&self, slot: Slot) -> bool {
        let last = self.announced.lock().get(&slot).copied();
        last.is_none_or(|at| at.elapsed() >= ANNOUNCE_EVERY)
    }

    /// Forgets the announcements in some slots, whose server may not know that this gateway is alive: the next acquire
    /// in the slot announces it again.
    pub(crate) fn may_be_thought_dead(&self, concerned: impl Fn(Slot) -> bool) {
        self.announced.lock().retain(|&slot, _| !concerned(slot));
    }

    /// Records that an acquire was queued in a slot, and has announced there that this gateway is alive.
    pub(crate) fn note_announced(&self, slot: Slot) {
        let mut announced = self.announced.lock();
        if announced.len() >= MAX_ANNOUNCED {
            announced.retain(|_, at| at.elapsed() < ANNOUNCE_EVERY);
        }
        announced.insert(slot, Instant::now());
    }

    /// Sets a timer for the end of a lease, if its lock has a waiter here.
    pub(crate) fn watch_expiry(&self, name: &LockName, left: Duration) {
        if self.parking.has_waiters(name) {
            self.timers.set(name, left);
        }
    }

    /// Processes an `ends` message, which has the remaining TTL of a lock in ms and the name of the lock.
    fn ingest_end(&self, rest: &str) {
        let mut words = rest.split(' ');
        let (left, name) = (words.next().map(str::parse), words.next());
        if let (Some(Ok(ms)), Some(Ok(name))) = (left, name.map(LockName::new)) {
            self.watch_expiry(&name, Duration::from_millis(ms).min(LONGEST_ANNOUNCED));
        }
    }

    /// The slots in which this gateway must announce that it is alive. `waited_for`: whether a slot has waiters here.
    pub(crate) fn slots_to_keep(&self, waited_for: impl Fn(Slot) -> bool) -> Vec<Slot> {
        let mut slots = self.slots.lock();
        // An attempt may have been queued after the waiters were listed.
        slots.retain(|&slot, last| waited_for(slot) || last.elapsed() < ALIVE);
        slots.keys().copied().collect()
    }

    /// Sets a timer for the end of a kept position, which is given up if no caller has come back by then.
    pub(crate) fn schedule_lapse(&self, name: &LockName, token: TokenHash, keep_for: Duration) {
        // If this many kept positions have timers, a further kept position gets no timer, and stays in the queue until
        // its turn comes.
        if self.kept.len() < BACKLOG {
            self.kept.set(&(name.clone(), token), keep_for);
        }
    }

    fn end(&self, name: &LockName, token: &TokenHash, news: News) {
        // An attempt that has left does not need the news.
        let _delivered = self.parking.deliver(name, token, news);
    }

    /// Releases again the attempts that ended lately, because another server has their locks now, or the same server
    /// with older data.
    pub(crate) fn repeat_departures(&self, concerned: impl Fn(&LockName) -> bool) {
        let mut departed = self.departures.remembered(concerned);
        departed.retain(|attempt| self.orphans.try_send(attempt.clone()).is_err());
        if !departed.is_empty() {
            let count = departed.len();
            warn!(
                count,
                "attempts that have ended may hold locks at the new server for their TTL"
            );
        }
    }

    /// Delivers a grant to the attempt that waits for it at this gateway. If no such attempt waits, the grant is
    /// released.
    fn deliver_grant(&self, name: &LockName, token: TokenHash, fence: FencingToken, granted: News) {
        if self.parking.deliver(name, &token, granted) {
            return;
        }
        let orphan = OrphanedAttempt {
            name: name.clone(),
            token,
            kind: OrphanKind::Grant(fence),
        };
        if let Err(error) = self.orphans.try_send(orphan) {
            warn!(%error, "a grant without a waiter is left to its TTL");
        }
    }
}

// Redis replicates after it has answered, and may write to its disk later, too. So the next master, or a restarted
// server, may still have the ticket of an attempt that has left, or a grant that was taken back. Without this list,
// such an attempt would hold the lock there without a caller.

/// The attempts that ended lately at this gateway, the earliest first.
#[derive(Debug, Default)]
pub(crate) struct Departures(Mutex<VecDeque<(Instant, OrphanedAttempt)>>);

/// How many ended attempts are remembered, at most: all are released together when another server takes over.
const MAX_REMEMBERED: usize = BACKLOG / 2;
/// How long an ended attempt is remembered: much longer than replicas and disks are behind. The grant of an older
/// attempt is released only when the lock is handed to the attempt.
const REMEMBERED: Duration = Duration::from_mins(10);

// === impl Departures ===

impl Departures {
    /// Remembers an attempt that has ended, and which grant or position of it must be released on another server.
    pub(crate) fn add(&self, name: &LockName, token: TokenHash, kind: OrphanKind) {
        let attempt = OrphanedAttempt {
            name: name.clone(),
            token,
            kind,
        };
        let mut ended = self.0.lock();
        while ended.len() >= MAX_REMEMBERED
            || (ended.front()).is_some_and(|(at, _)| at.elapsed() >= REMEMBERED)
        {
            ended.pop_front();
        }
        ended.push_back((Instant::now(), attempt));
    }

    /// The remembered attempts for the locks that `concerned` selects.
    pub(crate) fn remembered(&self, concerned: impl Fn(&LockName) -> bool) -> Vec<OrphanedAttempt> {
        let ended = self.0.lock();
        let of_these = ended
            .iter()
            .filter(|(at, attempt)| at.elapsed() < REMEMBERED && concerned(&attempt.name));
        of_these.map(|(_, attempt)| attempt.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use crate::lock::Token;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_last_ends_are_remembered_for_a_while() {
        let departures = Departures::default();
        let name = |text: &str| LockName::new(text).unwrap();
        let place = OrphanKind::Departed(None, None);
        let add = |text| departures.add(&name(text), Token::random().hash(), place);
        let count = || departures.remembered(|_| true).len();
        add("a");
        advance(REMEMBERED / 2).await;
        add("b");
        assert_eq!(departures.remembered(|of| of.as_str() == "b").len(), 1);
        assert_eq!(count(), 2);
        advance(REMEMBERED / 2).await;
        assert_eq!(count(), 1);
        for _ in 0..=MAX_REMEMBERED {
            add("c");
        }
        assert_eq!(
            departures.remembered(|of| of.as_str() == "c").len(),
            MAX_REMEMBERED
        );
        assert_eq!(count(), MAX_REMEMBERED);
    }
}

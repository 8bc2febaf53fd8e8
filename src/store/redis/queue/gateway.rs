//! This gateway as the queues in Redis know it: its id, who waits here, what it has to see to, and which attempts have ended
//! here lately.

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

/// What the scripts tell this gateway comes here, by a reply or by a message.
#[derive(Debug)]
pub(crate) struct RedisGateway {
    pub(crate) id: GatewayId,
    pub(crate) channels: Channels,
    pub(crate) parking: Parking,
    pub(crate) breaks: BreakFeed,
    pub(crate) floors: Arc<Floors>,
    pub(crate) timers: Timers<LockName>,
    /// The places that are kept for those who left through this gateway.
    pub(crate) kept: Timers<(LockName, TokenHash)>,
    /// How often messages may have been missed.
    pub(crate) missed: watch::Sender<u64>,
    /// Whether messages arrive now.
    pub(crate) is_subscribed: AtomicBool,
    /// Told when another gateway has asked for news.
    pub(crate) news_wanted: Arc<NewsWanted>,
    /// Whether a grant is kept back until replicas have it: whoever is handed a lock asks for that.
    pub(crate) waits_for_replicas: bool,
    /// The slots in which somebody was queued through this gateway, and when the last.
    slots: Mutex<HashMap<Slot, Instant>>,
    /// When an acquire has last said in a slot that this gateway is alive.
    announced: Mutex<HashMap<Slot, Instant>>,
    /// Attempts that nobody waits for any more, to be given back.
    orphans: mpsc::Sender<OrphanedAttempt>,
    /// The attempts that ended lately, which a server that takes over may not know.
    pub(crate) departures: Departures,
    /// How many messages to other gateways could not be published. Each costs the waiter that it was for up to two seconds.
    pub(crate) unsent: AtomicU64,
}

/// For how long a gateway counts as alive that says nothing, as in `acquire.lua` and `confirm.lua`.
pub(crate) const ALIVE: Duration = Duration::from_secs(6);
/// How often those who are queued say in a slot that their gateway is alive; the rounds say it too.
const ANNOUNCE_EVERY: Duration = Duration::from_secs(1);
/// In how many slots it is known when that was said, before what is long ago is forgotten.
const MAX_ANNOUNCED: usize = 1_024;
/// No message tells of a lease that lasts longer: the next round sees its end.
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

    /// Takes in what a script had to tell.
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
                    // One that waits elsewhere by now, or no more, is looked after by whoever made it.
                    let _delivered =
                        self.parking
                            .deliver(keys.name(), &token, News::GrantedProvisionally);
                }
                ScriptNews::Superseded(token) => self.supersede(keys.name(), &token),
                ScriptNews::More => self.timers.set(keys.name(), Duration::ZERO),
                ScriptNews::Unsent => {
                    self.unsent.fetch_add(1, Ordering::Relaxed);
                }
                ScriptNews::Lapsed => self.note_lapsed(keys.slot()),
            }
        }
    }

    /// Takes in what the subscription hands on.
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

    /// Takes in a message of another gateway: what, ticket and name, with a space between, and of a
    /// grant its fence. Messages of a later version are not for us.
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
                    return debug!("a message that is none of ours");
                };
                self.deliver_grant(&name, token, fence, News::GrantedProvisionally);
            }
            (Some("broken"), Some(token), Some(Ok(name))) => {
                self.breaks.publish(BrokenLease { name, token });
            }
            (Some("superseded"), Some(token), Some(Ok(name))) => self.supersede(&name, &token),
            _ => debug!("a message that is none of ours"),
        }
    }

    /// Takes note that somebody is queued through this gateway; of a lock that is shared also when it may pass on.
    pub(crate) fn note_queued(
        &self,
        keys: &Keys,
        contention: &Contention,
        next_look: Option<Duration>,
    ) {
        self.slots.lock().insert(keys.slot(), Instant::now());
        let left = match &contention.holder {
            // A grant that is not confirmed yet may end sooner once it is.
            Some(Holder::Lease(lease)) => Some(lease.expires_in.min(lease.ttl.duration())),
            Some(Holder::Shared(_)) => Some(next_look.unwrap_or_default()),
            // Without an expiry, or free although nobody could be granted it: looked after once a period.
            Some(Holder::Foreign { expires_in, .. }) => *expires_in,
            None => None,
        };
        if let Some(left) = left {
            self.watch_expiry(keys.name(), left);
        }
    }

    /// This gateway was not known to be alive in a slot, and is from now on. Whoever waits there since
    /// before may have been cleared away as dead, and asks again. Where nobody was queued through this
    /// gateway yet, it could not be known, and whoever has just been queued stays.
    fn note_lapsed(&self, slot: Slot) {
        if self.slots.lock().contains_key(&slot) {
            self.parking
                .notify_forgotten(|name| Slot::of_name(name) == slot);
        }
    }

    /// Whether an acquire that may be queued is to say that this gateway is alive: until one has said it in
    /// the slot, and then once a second.
    pub(crate) fn should_announce(&self, slot: Slot) -> bool {
        let last = self.announced.lock().get(&slot).copied();
        last.is_none_or(|at| at.elapsed() >= ANNOUNCE_EVERY)
    }

    /// In such slots the server may not know that this gateway is alive: the next acquire says it again.
    pub(crate) fn may_be_thought_dead(&self, concerned: impl Fn(Slot) -> bool) {
        self.announced.lock().retain(|&slot, _| !concerned(slot));
    }

    /// Takes note that somebody was queued in a slot, and has said there that this gateway is alive.
    pub(crate) fn note_announced(&self, slot: Slot) {
        let mut announced = self.announced.lock();
        if announced.len() >= MAX_ANNOUNCED {
            announced.retain(|_, at| at.elapsed() < ANNOUNCE_EVERY);
        }
        announced.insert(slot, Instant::now());
    }

    /// Looks after a lock when its lease ends, if somebody waits for it here.
    pub(crate) fn watch_expiry(&self, name: &LockName, left: Duration) {
        if self.parking.has_waiters(name) {
            self.timers.set(name, left);
        }
    }

    /// Takes in for how many milliseconds a lock is held that the next waits for here, and its name.
    fn ingest_end(&self, rest: &str) {
        let mut words = rest.split(' ');
        let (left, name) = (words.next().map(str::parse), words.next());
        if let (Some(Ok(ms)), Some(Ok(name))) = (left, name.map(LockName::new)) {
            self.watch_expiry(&name, Duration::from_millis(ms).min(LONGEST_ANNOUNCED));
        }
    }

    /// The slots in which this gateway must be known to be alive, given those in which somebody
    /// waits.
    pub(crate) fn slots_to_keep(&self, waited_for: impl Fn(Slot) -> bool) -> Vec<Slot> {
        let mut slots = self.slots.lock();
        // Somebody may have been queued since it was found out who waits.
        slots.retain(|&slot, last| waited_for(slot) || last.elapsed() < ALIVE);
        slots.keys().copied().collect()
    }

    /// The place of an attempt is kept for so long, and nobody asks for it then.
    pub(crate) fn schedule_lapse(&self, name: &LockName, token: TokenHash, keep_for: Duration) {
        // Those beyond it are shown to nobody who looks, and stand until their turn comes.
        if self.kept.len() < BACKLOG {
            self.kept.set(&(name.clone(), token), keep_for);
        }
    }

    fn supersede(&self, name: &LockName, token: &TokenHash) {
        // An attempt that has left already need not be told.
        let _delivered = self.parking.deliver(name, token, News::Superseded);
    }

    /// Ends once more what has ended lately: another server has these locks now, or the same one with older data.
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

    /// Hands a grant to the attempt that waits for it here. If none does, the grant is given back.
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
            warn!(%error, "a grant that nobody waits for is left to its TTL");
        }
    }
}

// === Departures ===
//
// Redis replicates after it has answered, and may write to its disk later, too. So the next master, or a server that was
// started again, may still have the ticket of an attempt that has left, or a grant that was taken back. Without this, the
// lock would be held there by an attempt that nobody waits for.

/// The attempts that ended lately through this gateway, the earliest first.
#[derive(Debug, Default)]
pub(crate) struct Departures(Mutex<VecDeque<(Instant, OrphanedAttempt)>>);

/// How many attempts are remembered, at most: all of them are given back together when another server takes over.
const MAX_REMEMBERED: usize = BACKLOG / 2;
/// How long an attempt is remembered: much longer than replicas and disks are behind. An older one is given back when the
/// lock is handed to it.
const REMEMBERED: Duration = Duration::from_mins(10);

// === impl Departures ===

impl Departures {
    /// Remembers an attempt that has ended, and what is to be ended of it on another server.
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

    /// The remembered attempts for some of the locks.
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

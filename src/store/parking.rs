//! Attempts of this gateway that wait for news from the queue, and that watch their position in it.
//!
//! The queue itself belongs to the store. This is the list of the waiters whose answer this process owes: the store
//! delivers the news of a waiter by the token of its attempt.
//!
//! A position is looked up now and then, for the waiters that watch it, and not when it changes: each hand-off changes all
//! positions of a queue at once.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{oneshot, watch},
    time::{Duration, Instant},
};

use crate::lock::{HeldLease, LockName, TokenHash};

/// The attempts that wait here. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Parking(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    attempts: Mutex<ParkedAttempts>,
    /// At how many of them somebody waits: whoever only wants to know that needs no lock.
    attended: AtomicUsize,
}

/// The position of a waiter in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// How many are queued before it.
    pub ahead: u64,
    /// How many are queued in all.
    pub waiters: u64,
}

/// The place of one attempt; leaving it behind takes it off the list.
#[derive(Debug)]
pub struct Parked {
    parking: Parking,
    name: LockName,
    token: TokenHash,
    news: oneshot::Receiver<News>,
}

/// What has become of an attempt that stood in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// It holds the lock.
    Granted(HeldLease),
    /// It was granted the lock through another gateway, for a few seconds only: the grant must be
    /// confirmed just before it is answered.
    GrantedProvisionally,
    /// A newer request with the same idempotency key has taken its place.
    Superseded,
    /// The store has lost the queue; whoever still wants the lock must ask again.
    Forgotten,
}

/// The bytes of an attempt's token hash, by which those who wait can be come by in turns.
type Key = [u8; 32];

/// Those who wait here for one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameWaiters {
    /// The name.
    pub name: LockName,
    /// How many they are.
    pub waiters: usize,
    /// How long the first of them has waited.
    pub longest: Duration,
}

#[derive(Debug, Default)]
struct ParkedAttempts {
    by_token: BTreeMap<Key, ParkedAttempt>,
    /// How many wait for each name; the keys are the names that somebody waits for.
    by_name: HashMap<LockName, usize>,
    /// Those that watch their position, until they leave their place.
    watched: BTreeMap<Key, watch::Sender<Option<Position>>>,
}

#[derive(Debug)]
struct ParkedAttempt {
    name: LockName,
    since: Instant,
    /// Whether copies of its acquire may still arrive, however often it asks.
    resent: bool,
    /// Whether somebody waits there, and not only the news are kept for who may come back.
    attended: bool,
    /// `None`: it has heard its news, and deals with them.
    news: Option<oneshot::Sender<News>>,
}

// === impl Parking ===

impl Parking {
    /// Takes a place, before the attempt is sent: news may come back before the answer does.
    pub fn park(&self, name: LockName, token: TokenHash) -> Parked {
        let (sender, news) = oneshot::channel();
        let attempt = ParkedAttempt {
            name: name.clone(),
            since: Instant::now(),
            resent: false,
            attended: true,
            news: Some(sender),
        };
        let mut attempts = self.lock();
        attempts.by_token.insert(*token.as_bytes(), attempt);
        *attempts.by_name.entry(name.clone()).or_default() += 1;
        self.0.attended.fetch_add(1, Ordering::Relaxed);
        drop(attempts);
        Parked {
            parking: self.clone(),
            name,
            token,
            news,
        }
    }

    /// Tells an attempt its news of this name. False if nobody waits for them here: a grant must then be given
    /// back. The first news count; an attempt that deals with them already, and may be about to
    /// confirm its grant, stays where it is until it leaves its place.
    ///
    /// The attempts of a group have one token, and wait for one name after the other: late news of an earlier
    /// name are not those of the one that is waited for now.
    #[must_use = "a grant that nobody waits for must be given back"]
    pub fn deliver(&self, name: &LockName, token: &TokenHash, news: News) -> bool {
        match self.lock().by_token.get_mut(token.as_bytes()) {
            Some(attempt) if attempt.name == *name => {
                let sender = attempt.news.take();
                sender.is_none_or(|sender| sender.send(news).is_ok())
            }
            Some(_) | None => false,
        }
    }

    /// Tells every attempt that waits for such a name that the store has lost its queue.
    pub fn notify_forgotten(&self, concerned: impl Fn(&LockName) -> bool) {
        for attempt in self.lock().by_token.values_mut() {
            if concerned(&attempt.name)
                && let Some(sender) = attempt.news.take()
            {
                // Whoever is just leaving its place need not hear it.
                drop(sender.send(News::Forgotten));
            }
        }
    }

    /// Watches the position of an attempt that waits here, for as long as it does.
    pub fn watch_position(&self, token: &TokenHash) -> watch::Receiver<Option<Position>> {
        let (news, receiver) = watch::channel(None);
        let mut attempts = self.lock();
        if attempts.by_token.contains_key(token.as_bytes()) {
            attempts.watched.insert(*token.as_bytes(), news);
        }
        receiver
    }

    /// Tells the position of an attempt, if it is watched.
    pub fn publish_position(&self, token: &TokenHash, position: Position) {
        if let Some(news) = self.lock().watched.get(token.as_bytes()) {
            news.send_replace(Some(position));
        }
    }

    /// At most so many of the attempts that watch their position, from behind `last` on and around: repeated calls with
    /// the last of these come by all of them.
    pub fn next_watched(
        &self,
        last: Option<&TokenHash>,
        most: usize,
    ) -> Vec<(LockName, TokenHash)> {
        let attempts = self.lock();
        let from = last.map_or(Bound::Unbounded, |last| Bound::Excluded(*last.as_bytes()));
        let to = last.map_or(Bound::Unbounded, |last| Bound::Included(*last.as_bytes()));
        let behind = attempts.watched.range((from, Bound::Unbounded));
        let around = last.map(|_| attempts.watched.range((Bound::Unbounded, to)));
        let all = behind.chain(around.into_iter().flatten()).take(most);
        let all = all.filter_map(|(key, _)| attempts.with_name(key));
        all.collect()
    }

    /// All attempts that watch their position, by the lock that they wait for.
    pub fn watched_by_name(&self) -> HashMap<LockName, Vec<TokenHash>> {
        let attempts = self.lock();
        let mut by_name: HashMap<LockName, Vec<TokenHash>> = HashMap::new();
        for (name, token) in attempts
            .watched
            .keys()
            .filter_map(|it| attempts.with_name(it))
        {
            by_name.entry(name).or_default().push(token);
        }
        by_name
    }

    /// How many attempts wait here, of which somebody waits for the outcome.
    pub fn len(&self) -> usize {
        self.0.attended.load(Ordering::Relaxed)
    }

    /// Whether nobody waits here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those who wait here, by the name that they wait for, in no order. Walks the whole list: for
    /// people who look.
    pub fn waiters_by_name(&self) -> Vec<NameWaiters> {
        let now = Instant::now();
        let mut by_name = HashMap::new();
        for attempt in self.lock().by_token.values() {
            let waited = now.saturating_duration_since(attempt.since);
            let (waiters, longest) = by_name
                .entry(attempt.name.clone())
                .or_insert((0, Duration::ZERO));
            *waiters += 1;
            *longest = waited.max(*longest);
        }
        let waiters_of = |(name, (waiters, longest))| NameWaiters {
            name,
            waiters,
            longest,
        };
        by_name.into_iter().map(waiters_of).collect()
    }

    /// The names that somebody waits for here.
    pub fn names(&self) -> Vec<LockName> {
        self.lock().by_name.keys().cloned().collect()
    }

    /// Whether somebody waits for this name here.
    pub fn has_waiters(&self, name: &LockName) -> bool {
        self.lock().by_name.contains_key(name)
    }

    /// Whether this attempt waits here.
    pub fn contains(&self, token: &TokenHash) -> bool {
        self.lock().by_token.contains_key(token.as_bytes())
    }

    /// Takes note that an acquire of this attempt was sent more than once.
    pub fn mark_resent(&self, token: &TokenHash) {
        if let Some(attempt) = self.lock().by_token.get_mut(token.as_bytes()) {
            attempt.resent = true;
        }
    }

    /// Whether an acquire of this attempt, which waits here, was sent more than once.
    pub fn was_resent(&self, token: &TokenHash) -> bool {
        let attempts = self.lock();
        let attempt = attempts.by_token.get(token.as_bytes());
        attempt.is_some_and(|attempt| attempt.resent)
    }

    /// At most so many of those who wait for news here, from behind `last` on: whoever goes on with the
    /// last of these, and begins anew when there are fewer, comes by all of them.
    pub fn next_waiters(
        &self,
        last: Option<&TokenHash>,
        most: usize,
    ) -> Vec<(LockName, TokenHash)> {
        let from = last.map_or(Bound::Unbounded, |last| Bound::Excluded(*last.as_bytes()));
        let attempts = self.lock();
        let behind = attempts.by_token.range((from, Bound::Unbounded));
        let waiting = behind.filter(|(_, attempt)| attempt.news.is_some());
        waiting
            .take(most)
            .map(|(key, attempt)| (attempt.name.clone(), TokenHash::from_bytes(*key)))
            .collect()
    }

    /// The attempts that wait for this name here. Walks the whole list: for recovery only.
    pub fn waiting_for(&self, name: &LockName) -> Vec<TokenHash> {
        let attempts = self.lock();
        let of_name = attempts
            .by_token
            .iter()
            .filter(|(_, attempt)| attempt.name == *name);
        of_name
            .map(|(key, _)| TokenHash::from_bytes(*key))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, ParkedAttempts> {
        self.0.attempts.lock()
    }
}

// === impl ParkedAttempts ===

impl ParkedAttempts {
    fn remove(&mut self, token: &TokenHash) -> Option<ParkedAttempt> {
        let attempt = self.by_token.remove(token.as_bytes())?;
        self.watched.remove(token.as_bytes());
        let name = &attempt.name;
        if let Some(count) = self.by_name.get_mut(name) {
            *count -= 1;
            if *count == 0 {
                self.by_name.remove(name);
            }
        }
        Some(attempt)
    }

    fn with_name(&self, key: &Key) -> Option<(LockName, TokenHash)> {
        let attempt = self.by_token.get(key)?;
        Some((attempt.name.clone(), TokenHash::from_bytes(*key)))
    }
}

// === impl Parked ===

impl Parked {
    /// Waits for the news. Safe to drop and call again.
    pub async fn news(&mut self) -> News {
        // The sender lives in the list until this place is given up or told.
        (&mut self.news).await.unwrap_or(News::Forgotten)
    }

    /// The news that came before now, if any.
    pub fn try_news(&mut self) -> Option<News> {
        self.news.try_recv().ok()
    }

    /// Stays in place to ask again, without a moment in which nobody waits here. What was told since
    /// the news that were heard is said again by the store to whoever asks.
    pub fn rearm(&mut self) {
        let (sender, news) = oneshot::channel();
        if let Some(attempt) = self.parking.lock().by_token.get_mut(self.token.as_bytes()) {
            attempt.news = Some(sender);
        }
        self.news = news;
    }

    /// The place was in the queue before this attempt, and has waited since then.
    pub fn waits_since(&mut self, since: Instant) {
        if let Some(attempt) = self.parking.lock().by_token.get_mut(self.token.as_bytes()) {
            attempt.since = since;
        }
    }

    /// Stays in place for who may come back. Nobody waits there now.
    pub fn keep(&mut self) {
        let mut attempts = self.parking.lock();
        attempts.watched.remove(self.token.as_bytes());
        if let Some(attempt) = attempts.by_token.get_mut(self.token.as_bytes()) {
            let attended = std::mem::replace(&mut attempt.attended, false);
            let attended = usize::from(attended);
            self.parking
                .0
                .attended
                .fetch_sub(attended, Ordering::Relaxed);
        }
    }

    /// The lock that is waited for.
    pub fn name(&self) -> &LockName {
        &self.name
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        let removed = self.parking.lock().remove(&self.token);
        if removed.is_some_and(|attempt| attempt.attended) {
            self.parking.0.attended.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;

//! The attempts of this gateway that wait for news from the queue, or watch their position in it.
//!
//! The queue of a lock belongs to the store. This list holds the waiters to which this process owes an answer: the
//! store delivers the news of a waiter by the token of its attempt.
//!
//! Positions are looked up periodically for the waiters that watch them, not at each change: each hand-off
//! changes all positions of a queue at once.

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

/// The list of the attempts that wait at this gateway. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Parking(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    attempts: Mutex<ParkedAttempts>,
    /// How many of the attempts have a caller that waits. This number is an atomic, so that a reader of it needs no
    /// lock.
    attended: AtomicUsize,
}

/// The position of a waiter in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// How many waiters are queued before this waiter.
    pub ahead: u64,
    /// How many waiters are queued for the lock in all.
    pub waiters: u64,
}

/// The entry of one attempt in the list of this gateway's waiters; dropping the `Parked` removes the entry.
#[derive(Debug)]
pub struct Parked {
    parking: Parking,
    name: LockName,
    token: TokenHash,
    news: oneshot::Receiver<News>,
}

/// The outcome of an attempt that was queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum News {
    /// The attempt holds the lock by this lease.
    Granted(HeldLease),
    /// Another gateway has granted the lock to the attempt, for a few seconds only: the grant must be confirmed
    /// just before it is answered.
    GrantedProvisionally,
    /// A newer request with the same idempotency key has taken over the position.
    Replaced,
    /// A newer waiter has taken the attempt out of the queue.
    NewerWaiter,
    /// The store has lost the queue; an attempt that still wants the lock must send its acquire again.
    Forgotten,
}

/// The bytes of an attempt's token hash. Walks visit the waiters in the order of these bytes.
type Key = [u8; 32];

/// The attempts that wait for one name at this gateway.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameWaiters {
    /// The name of the lock.
    pub name: LockName,
    /// How many attempts wait for this name at this gateway.
    pub waiters: usize,
    /// How long the first of these attempts has waited.
    pub longest: Duration,
}

#[derive(Debug, Default)]
struct ParkedAttempts {
    by_token: BTreeMap<Key, ParkedAttempt>,
    /// How many attempts wait for each name; a name that no attempt waits for has no entry.
    by_name: HashMap<LockName, usize>,
    /// The attempts that watch their position, until their entry in the list is removed.
    watched: BTreeMap<Key, watch::Sender<Option<Position>>>,
}

#[derive(Debug)]
struct ParkedAttempt {
    name: LockName,
    since: Instant,
    /// Whether an acquire of the attempt was sent more than once, so that a late copy may still arrive.
    resent: bool,
    /// Whether a caller waits for the news. If not, the entry is kept for a later request with the same
    /// idempotency key.
    attended: bool,
    /// `None` if the news were delivered, and the attempt is acting on them.
    news: Option<oneshot::Sender<News>>,
}

// === impl Parking ===

impl Parking {
    /// Registers an attempt in the list of waiters. Must be called before the acquire is sent, because news may arrive
    /// before the acquire's answer.
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

    /// Delivers the news of an attempt for this name. Answers false if the attempt does not wait here for this
    /// name: a grant must then be given back. Only the first news count. An attempt that already acts on its
    /// news, and may be about to confirm its grant, keeps its entry until the entry is dropped.
    ///
    /// The attempts of a group have one token, and wait for one name after the other. Without the comparison of
    /// names, late news of an earlier name would reach the attempt that waits for the next.
    #[must_use = "a grant without a waiter must be released"]
    pub fn deliver(&self, name: &LockName, token: &TokenHash, news: News) -> bool {
        match self.lock().by_token.get_mut(token.as_bytes()) {
            Some(attempt) if attempt.name == *name => {
                let sender = attempt.news.take();
                sender.is_none_or(|sender| sender.send(news).is_ok())
            }
            Some(_) | None => false,
        }
    }

    /// Tells every attempt whose name `concerned` selects that the store has lost its queue.
    pub fn notify_forgotten(&self, concerned: impl Fn(&LockName) -> bool) {
        for attempt in self.lock().by_token.values_mut() {
            if concerned(&attempt.name)
                && let Some(sender) = attempt.news.take()
            {
                // A waiter that has just left does not need the news.
                drop(sender.send(News::Forgotten));
            }
        }
    }

    /// Watches the position of an attempt that waits at this gateway, until the attempt leaves.
    pub fn watch_position(&self, token: &TokenHash) -> watch::Receiver<Option<Position>> {
        let (news, receiver) = watch::channel(None);
        let mut attempts = self.lock();
        if attempts.by_token.contains_key(token.as_bytes()) {
            attempts.watched.insert(*token.as_bytes(), news);
        }
        receiver
    }

    /// Sends the position of an attempt to its watcher, if there is one.
    pub fn publish_position(&self, token: &TokenHash, position: Position) {
        if let Some(news) = self.lock().watched.get(token.as_bytes()) {
            news.send_replace(Some(position));
        }
    }

    /// Returns at most `most` of the attempts that watch their position: those after `last`, then from the start again.
    /// Repeated calls, each with the last attempt of the call before, visit all of these attempts.
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

    /// All attempts that watch their position, by the name that they wait for.
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

    /// How many attempts at this gateway have a caller that waits for the outcome.
    pub fn len(&self) -> usize {
        self.0.attended.load(Ordering::Relaxed)
    }

    /// Whether no attempt at this gateway has a caller that waits for the outcome.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The waiters at this gateway by name, in no order. Walks the whole list: for displays and diagnosis only.
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

    /// The names that attempts wait for at this gateway.
    pub fn names(&self) -> Vec<LockName> {
        self.lock().by_name.keys().cloned().collect()
    }

    /// Whether an attempt waits for this name at this gateway.
    pub fn has_waiters(&self, name: &LockName) -> bool {
        self.lock().by_name.contains_key(name)
    }

    /// Whether this attempt waits at this gateway.
    pub fn contains(&self, token: &TokenHash) -> bool {
        self.lock().by_token.contains_key(token.as_bytes())
    }

    /// Records that an acquire of this attempt was sent more than once.
    pub fn mark_resent(&self, token: &TokenHash) {
        if let Some(attempt) = self.lock().by_token.get_mut(token.as_bytes()) {
            attempt.resent = true;
        }
    }

    /// Whether an acquire of this attempt, which waits at this gateway, was sent more than once.
    pub fn was_resent(&self, token: &TokenHash) -> bool {
        let attempts = self.lock();
        let attempt = attempts.by_token.get(token.as_bytes());
        attempt.is_some_and(|attempt| attempt.resent)
    }

    /// Returns at most `most` of the attempts that wait for news here: those after `last`. A caller that
    /// continues with the last of them, and starts again when there are fewer than `most`, visits all attempts.
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

    /// The attempts that wait for this name at this gateway. Walks the whole list: for recovery only.
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
    /// Waits for the news of this attempt. Safe to drop and call again.
    pub async fn news(&mut self) -> News {
        // The entry holds the sender until the entry is removed or news are delivered, so a closed channel means that
        // the attempt is forgotten.
        (&mut self.news).await.unwrap_or(News::Forgotten)
    }

    /// The news of this attempt that have already arrived, if any.
    pub fn try_news(&mut self) -> Option<News> {
        self.news.try_recv().ok()
    }

    /// Keeps the attempt's entry and waits for further news, so that the attempt can send its acquire again and is
    /// never missing from the list. News that arrived since the last news are lost; the store tells them again when the
    /// attempt asks.
    pub fn rearm(&mut self) {
        let (sender, news) = oneshot::channel();
        if let Some(attempt) = self.parking.lock().by_token.get_mut(self.token.as_bytes()) {
            attempt.news = Some(sender);
        }
        self.news = news;
    }

    /// Sets the time since which the attempt's position has waited, if the attempt has taken over an older position.
    pub fn waits_since(&mut self, since: Instant) {
        if let Some(attempt) = self.parking.lock().by_token.get_mut(self.token.as_bytes()) {
            attempt.since = since;
        }
    }

    /// Keeps the attempt's entry for a later request with the same idempotency key. From now on no caller waits for the
    /// news.
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

    /// The name of the lock that the attempt waits for.
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

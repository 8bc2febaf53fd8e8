//! Where the attempts of this gateway wait for news from the queue.
//!
//! The queue itself belongs to the store. This is the list of those whose answer this process owes:
//! the store tells them, by the token of their attempt, what has become of it.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard},
};

use tokio::{
    sync::oneshot,
    time::{Duration, Instant},
};

use crate::lock::{HeldLease, LockName, TokenHash};

use super::positions::Positions;

/// The attempts that wait here. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Parking {
    places: Arc<Mutex<Places>>,
    positions: Positions,
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
pub struct Crowd {
    /// The name.
    pub name: LockName,
    /// How many they are.
    pub waiters: usize,
    /// How long the first of them has waited.
    pub longest: Duration,
}

#[derive(Debug, Default)]
struct Places {
    by_token: BTreeMap<Key, Place>,
    /// How many wait for each name; the keys are the names that somebody waits for.
    by_name: HashMap<LockName, usize>,
}

#[derive(Debug)]
struct Place {
    name: LockName,
    since: Instant,
    /// `None`: it has heard its news, and deals with them.
    news: Option<oneshot::Sender<News>>,
}

// === impl Parking ===

impl Parking {
    /// Takes a place, before the attempt is sent: news may come back before the answer does.
    pub fn park(&self, name: LockName, token: TokenHash) -> Parked {
        let (sender, news) = oneshot::channel();
        let mut places = self.lock();
        let place = Place {
            name: name.clone(),
            since: Instant::now(),
            news: Some(sender),
        };
        places.by_token.insert(*token.as_bytes(), place);
        *places.by_name.entry(name.clone()).or_default() += 1;
        drop(places);
        Parked {
            parking: self.clone(),
            name,
            token,
            news,
        }
    }

    /// Tells an attempt its news. False if nobody waits for them here: a grant must then be given
    /// back. The first news count; an attempt that deals with them already, and may be about to
    /// confirm its grant, stays where it is until it leaves its place.
    #[must_use = "a grant that nobody waits for must be given back"]
    pub fn tell(&self, token: &TokenHash, news: News) -> bool {
        match self.lock().by_token.get_mut(token.as_bytes()) {
            Some(place) => {
                let sender = place.news.take();
                sender.is_none_or(|sender| sender.send(news).is_ok())
            }
            None => false,
        }
    }

    /// Tells every attempt that waits for such a name that the store has lost its queue.
    pub fn forget(&self, concerned: impl Fn(&LockName) -> bool) {
        for place in self.lock().by_token.values_mut() {
            if concerned(&place.name)
                && let Some(sender) = place.news.take()
            {
                // Whoever is just leaving its place need not hear it.
                drop(sender.send(News::Forgotten));
            }
        }
    }

    /// Those who want to see how their place moves. The store tells them every few seconds.
    pub fn positions(&self) -> &Positions {
        &self.positions
    }

    /// How many attempts wait here.
    pub fn len(&self) -> usize {
        self.lock().by_token.len()
    }

    /// Whether nobody waits here.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Those who wait here, by the name that they wait for, in no order. Walks the whole list: for
    /// people who look.
    pub fn crowds(&self) -> Vec<Crowd> {
        let now = Instant::now();
        let mut crowds = HashMap::new();
        for place in self.lock().by_token.values() {
            let waited = now.saturating_duration_since(place.since);
            let (waiters, longest) = crowds
                .entry(place.name.clone())
                .or_insert((0, Duration::ZERO));
            *waiters += 1;
            *longest = waited.max(*longest);
        }
        let crowd = |(name, (waiters, longest))| Crowd {
            name,
            waiters,
            longest,
        };
        crowds.into_iter().map(crowd).collect()
    }

    /// The names that somebody waits for here.
    pub fn names(&self) -> Vec<LockName> {
        self.lock().by_name.keys().cloned().collect()
    }

    /// Whether somebody waits for this name here.
    pub fn awaits(&self, name: &LockName) -> bool {
        self.lock().by_name.contains_key(name)
    }

    /// Whether this attempt waits here.
    pub fn has_place(&self, token: &TokenHash) -> bool {
        self.lock().by_token.contains_key(token.as_bytes())
    }

    /// At most so many of those who wait for news here, from behind `last` on: whoever goes on with the
    /// last of these, and begins anew when there are fewer, comes by all of them.
    pub fn next(&self, last: Option<&TokenHash>, most: usize) -> Vec<(LockName, TokenHash)> {
        let from = last.map_or(Bound::Unbounded, |last| Bound::Excluded(*last.as_bytes()));
        let places = self.lock();
        let behind = places.by_token.range((from, Bound::Unbounded));
        let waiting = behind.filter(|(_, place)| place.news.is_some());
        waiting
            .take(most)
            .map(|(key, place)| (place.name.clone(), TokenHash::from_bytes(*key)))
            .collect()
    }

    /// The attempts that wait for this name here. Walks the whole list: for recovery only.
    pub fn waiting_for(&self, name: &LockName) -> Vec<TokenHash> {
        let places = self.lock();
        let of_name = places
            .by_token
            .iter()
            .filter(|(_, place)| place.name == *name);
        of_name
            .map(|(key, _)| TokenHash::from_bytes(*key))
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places
            .lock()
            .expect("no code panics while it holds the list")
    }
}

// === impl Places ===

impl Places {
    fn remove(&mut self, token: &TokenHash) {
        let Some(Place { name, .. }) = self.by_token.remove(token.as_bytes()) else {
            return;
        };
        if let Some(count) = self.by_name.get_mut(&name) {
            *count -= 1;
            if *count == 0 {
                self.by_name.remove(&name);
            }
        }
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
    pub fn news_so_far(&mut self) -> Option<News> {
        self.news.try_recv().ok()
    }

    /// Stays in place to ask again, without a moment in which nobody waits here. What was told since
    /// the news that were heard is said again by the store to whoever asks.
    pub fn wait_again(&mut self) {
        let (sender, news) = oneshot::channel();
        if let Some(place) = self.parking.lock().by_token.get_mut(self.token.as_bytes()) {
            place.news = Some(sender);
        }
        self.news = news;
    }

    /// The lock that is waited for.
    pub fn name(&self) -> &LockName {
        &self.name
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        self.parking.lock().remove(&self.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::Token;

    fn place(parking: &Parking, name: &str) -> (Parked, TokenHash) {
        let token = Token::random().hash();
        (parking.park(LockName::new(name).unwrap(), token), token)
    }

    #[tokio::test]
    async fn news_reach_the_attempt_they_are_for() {
        let parking = Parking::default();
        let (mut first, _) = place(&parking, "a");
        let (mut second, token) = place(&parking, "a");
        assert!(parking.tell(&token, News::Superseded));
        assert_eq!(second.news().await, News::Superseded);
        assert_eq!(first.news_so_far(), None);
    }

    #[tokio::test]
    async fn nobody_hears_news_for_a_place_that_was_left() {
        let parking = Parking::default();
        let (parked, token) = place(&parking, "a");
        drop(parked);
        assert!(!parking.tell(&token, News::GrantedProvisionally));
        assert!(parking.is_empty());
    }

    #[tokio::test]
    async fn news_that_come_twice_are_heard_once_and_still_have_their_attempt() {
        let parking = Parking::default();
        let (mut parked, token) = place(&parking, "a");
        assert!(parking.tell(&token, News::GrantedProvisionally));
        assert!(parking.tell(&token, News::Forgotten));
        assert_eq!(parked.news().await, News::GrantedProvisionally);
    }

    #[tokio::test]
    async fn all_who_wait_are_come_by_in_turns() {
        let parking = Parking::default();
        let places: Vec<_> = (0..7).map(|_| place(&parking, "a")).collect();
        let (_told, told) = &places[3];
        assert!(parking.tell(told, News::Forgotten));
        let (mut seen, mut last) = (Vec::new(), None);
        for expected in [3, 3, 0] {
            let turn = parking.next(last.as_ref(), 3);
            assert_eq!(turn.len(), expected);
            last = turn.last().map(|(_, token)| *token);
            seen.extend(turn.into_iter().map(|(_, token)| token));
        }
        for (_, token) in &places {
            assert_eq!(seen.contains(token), token != told, "who was told has news");
        }
    }

    #[tokio::test]
    async fn one_who_asks_again_keeps_the_place_and_hears_what_comes_then() {
        let parking = Parking::default();
        let (mut parked, token) = place(&parking, "a");
        assert!(parking.tell(&token, News::Forgotten));
        assert_eq!(parked.news().await, News::Forgotten);
        parked.wait_again();
        assert_eq!(parked.news_so_far(), None);
        assert!(parking.tell(&token, News::Superseded));
        assert_eq!(parked.news().await, News::Superseded);
        assert_eq!(parking.len(), 1);
        drop(parked);
        assert!(parking.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_for_a_name_is_a_crowd_with_the_time_of_its_first() {
        let parking = Parking::default();
        assert_eq!(parking.crowds(), []);
        let (mut first, token) = place(&parking, "a");
        tokio::time::advance(Duration::from_secs(2)).await;
        let _others = [place(&parking, "a"), place(&parking, "b")];
        // Who asks again has waited all the while.
        assert!(parking.tell(&token, News::Forgotten));
        first.wait_again();
        tokio::time::advance(Duration::from_secs(1)).await;
        let mut crowds = parking.crowds();
        crowds.sort_by_key(|crowd| crowd.waiters);
        let seen = crowds
            .iter()
            .map(|crowd| (crowd.name.as_str(), crowd.waiters, crowd.longest.as_secs()));
        assert_eq!(seen.collect::<Vec<_>>(), [("b", 1, 1), ("a", 2, 3)]);
    }

    #[tokio::test]
    async fn a_queue_is_forgotten_for_those_who_stood_in_it() {
        let parking = Parking::default();
        let (mut concerned, _) = place(&parking, "a");
        let (mut other, _) = place(&parking, "b");
        parking.forget(|name| name.as_str() == "a");
        assert_eq!(concerned.news_so_far(), Some(News::Forgotten));
        assert_eq!(other.news_so_far(), None);
    }

    #[tokio::test]
    async fn a_name_is_awaited_until_its_last_place_is_left() {
        let parking = Parking::default();
        let (first, _) = place(&parking, "a");
        let (second, token) = place(&parking, "a");
        let name = first.name().clone();
        drop(first);
        assert!(parking.awaits(&name));
        assert_eq!(parking.waiting_for(&name), [token]);
        drop(second);
        assert!(!parking.awaits(&name));
        assert!(parking.names().is_empty());
    }
}

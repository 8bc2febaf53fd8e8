//! When the keys of an issuer are fetched, and how long they count.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::key_set::KeySet;

/// The keys of an issuer as they were last fetched, and when they are fetched again.
#[derive(Debug)]
pub(super) struct KeyCache {
    keys: Option<Arc<KeySet>>,
    /// Whether an operator has pinned the keys, which then count without an end.
    is_pinned: bool,
    /// Until when the keys count without another fetch.
    fresh_until: Instant,
    /// When the next fetch is due.
    due: Instant,
    /// How many fetches have failed since the last that did not.
    failures: u32,
    /// When a token with an unknown `kid` last caused a fetch.
    asked_at: Option<Instant>,
}

/// How long keys count at least and at most, whatever the issuer says.
const FRESH_FOR: (Duration, Duration) = (Duration::from_hours(1), Duration::from_hours(24));
/// How long the last good keys count while the issuer is away.
const STALE_FOR: Duration = Duration::from_hours(24);
/// How often tokens with an unknown `kid` may cause a fetch.
const ASKS_EVERY: Duration = Duration::from_mins(1);
/// The first and the longest pause after a fetch that has failed.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

// === impl KeyCache ===

impl KeyCache {
    /// Keys that have never been fetched, which is due at once.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            keys: None,
            is_pinned: false,
            fresh_until: now,
            due: now,
            failures: 0,
            asked_at: None,
        }
    }

    /// Keys that an operator has pinned, which are never fetched.
    pub(super) fn pinned(keys: KeySet, now: Instant) -> Self {
        Self {
            keys: Some(Arc::new(keys)),
            is_pinned: true,
            ..Self::new(now)
        }
    }

    /// The keys, if they count.
    pub(super) fn keys(&self, now: Instant) -> Option<&Arc<KeySet>> {
        self.keys
            .as_ref()
            .filter(|_| self.is_pinned || now < self.fresh_until + STALE_FOR)
    }

    /// Whether an operator should know that the issuer could not be reached.
    pub(super) fn is_failing(&self) -> bool {
        self.failures > 0
    }

    /// Whether a fetch is due.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    /// Makes a fetch due.
    pub(super) fn make_due(&mut self, now: Instant) {
        self.due = now;
    }

    /// The time until the next fetch is due, or can be caused by a token with an unknown `kid`.
    pub(super) fn asks_in(&self, now: Instant) -> Duration {
        let asks = self.asked_at.map_or(self.due, |at| at + ASKS_EVERY);
        self.due.min(asks).saturating_duration_since(now)
    }

    /// Makes a fetch due because of a token with an unknown `kid`, at most once a minute. Returns whether it did.
    pub(super) fn ask(&mut self, now: Instant) -> bool {
        let may = self.asked_at.is_none_or(|at| now >= at + ASKS_EVERY);
        if may {
            self.asked_at = Some(now);
            self.make_due(now);
        }
        may
    }

    /// Records that keys were fetched, with the `max-age` of the answer.
    pub(super) fn fetched(&mut self, keys: KeySet, max_age: Option<Duration>, now: Instant) {
        let (least, most) = FRESH_FOR;
        self.keys = Some(Arc::new(keys));
        self.fresh_until = now + max_age.unwrap_or_default().clamp(least, most);
        self.due = self.fresh_until;
        self.failures = 0;
    }

    /// Records that a fetch has failed. The keys stay as they were.
    pub(super) fn failed(&mut self, now: Instant) {
        let (first, longest) = PAUSES;
        self.due = now + longest.min(first * 2_u32.saturating_pow(self.failures));
        self.failures += 1;
    }
}

/// The `max-age` of a header `Cache-Control`, if it permits to keep the answer.
pub(super) fn max_age(cache_control: &str) -> Option<Duration> {
    let mut age = None;
    for directive in cache_control.split(',').map(str::trim) {
        let (name, value) = directive.split_once('=').unwrap_or((directive, ""));
        if name.eq_ignore_ascii_case("no-store") || name.eq_ignore_ascii_case("no-cache") {
            return None;
        }
        if name.eq_ignore_ascii_case("max-age") {
            age = value
                .trim_matches('"')
                .parse()
                .ok()
                .map(Duration::from_secs);
        }
    }
    age
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn set() -> KeySet {
        KeySet::parse(super::super::key_set::tests::one_key().as_bytes()).unwrap()
    }

    #[test]
    fn keys_are_kept_for_an_hour_to_a_day_as_the_issuer_says() {
        let now = Instant::now();
        for (age, hours) in [
            (None, 1),
            (Some(5), 1),
            (Some(7_200), 2),
            (Some(u64::MAX), 24),
        ] {
            let mut cache = KeyCache::new(now);
            assert!(cache.is_due(now) && cache.keys(now).is_none());
            cache.fetched(set(), age.map(Duration::from_secs), now);
            let end = now + hours * HOUR;
            assert!(
                !cache.is_due(end - HOUR / 60) && cache.is_due(end),
                "{age:?}"
            );
        }
    }

    #[test]
    fn the_last_good_keys_count_for_a_day_while_the_issuer_is_away() {
        let mut now = Instant::now();
        let mut cache = KeyCache::new(now);
        cache.fetched(set(), None, now);
        now += HOUR;
        cache.failed(now);
        assert!(cache.is_failing());
        let end = now + 24 * HOUR;
        assert!(cache.keys(end - HOUR).is_some() && cache.keys(end).is_none());
        cache.fetched(set(), None, end);
        assert!(!cache.is_failing() && cache.keys(end).is_some());
    }

    #[test]
    fn an_issuer_that_is_away_is_asked_after_1_2_4_to_30_seconds() {
        let mut now = Instant::now();
        let mut cache = KeyCache::new(now);
        for seconds in [1, 2, 4, 8, 16, 30, 30] {
            cache.failed(now);
            let due = now + Duration::from_secs(seconds);
            assert!(!cache.is_due(due - Duration::from_millis(1)) && cache.is_due(due));
            now = due;
        }
    }

    #[test]
    fn pinned_keys_count_without_an_end() {
        let now = Instant::now();
        let cache = KeyCache::pinned(set(), now);
        assert!(cache.keys(now + 1_000 * HOUR).is_some());
    }

    #[test]
    fn unknown_kids_cause_one_fetch_a_minute_however_many_they_are() {
        let mut now = Instant::now();
        let mut cache = KeyCache::new(now);
        cache.fetched(set(), None, now);
        let asked = (0..1_000).filter(|_| {
            let asks = cache.ask(now);
            assert_eq!(asks, cache.is_due(now));
            if asks {
                cache.fetched(set(), None, now);
            }
            now += Duration::from_millis(60);
            asks
        });
        assert_eq!(asked.count(), 1);
        assert!(cache.ask(now));
    }

    #[test]
    fn an_ask_too_soon_is_told_when_the_next_may_be() {
        let now = Instant::now();
        let mut cache = KeyCache::new(now);
        cache.fetched(set(), None, now);
        assert!(cache.ask(now));
        cache.fetched(set(), None, now);
        assert!(!cache.ask(now));
        let later = now + Duration::from_secs(20);
        assert_eq!(cache.asks_in(later), Duration::from_secs(40));
        cache.make_due(now);
        assert!(cache.is_due(now));
        assert_eq!(cache.asks_in(now), Duration::ZERO);
    }

    #[test]
    fn reads_how_long_an_answer_may_be_kept() {
        for (header, seconds) in [
            ("max-age=60", Some(60)),
            ("public, Max-Age=60, must-revalidate", Some(60)),
            ("max-age=\"60\"", Some(60)),
            ("max-age=60, no-store", None),
            ("no-cache", None),
            ("max-age=-1", None),
            ("s-maxage=60", None),
            ("", None),
        ] {
            assert_eq!(
                max_age(header),
                seconds.map(Duration::from_secs),
                "{header}"
            );
        }
    }
}

//! Limits for audit lines that any caller can cause repeatedly without cost. Without limits, such lines would fill
//! the disk, and take the room in the queue that rarer and more important lines need.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::event::{LeftOut, Requester};

/// Limits audit lines that callers can cause repeatedly: counts the lines written in the current minute, and those
/// left out.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    minute: Mutex<Minute>,
    left_out: [AtomicU64; 3],
}

/// A kind of audit line whose number is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Bounded {
    /// A line about a request that was refused.
    Refusal,
    /// A line about a session that a caller ended, which no rate limit counts.
    SignOut,
    /// A line about an ID token that a caller exchanged, which it may do again with the same token.
    Exchange,
}

#[derive(Debug, Default)]
struct Minute {
    since: Option<Instant>,
    total: u32,
    by_source: HashMap<(Bounded, Source), u32>,
}

/// The caller that caused an audit line: its API key, or its address if it has no key.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Source {
    Key(Box<str>),
    Address(Option<IpAddr>),
}

/// How many audit lines may wait to be written. A flood of refusals takes a few megabytes at most.
pub(super) const QUEUE: usize = 4_096;

/// How many limited audit lines one caller may cause in a minute: enough to show what the caller tries. A flood
/// shows in the number of lines left out.
pub(super) const MOST_OF_ONE: u32 = 60;
/// How many limited audit lines are written in a minute for all callers together: about two megabytes.
const MOST_OF_ALL: u32 = 6_000;
/// How many places of the writer's queue are reserved for audit lines that are not limited.
pub(super) const RESERVED: usize = QUEUE / 2;
const MINUTE: Duration = Duration::from_mins(1);

// === impl Bounds ===

impl Bounds {
    /// Whether an audit line that this caller caused may be written. A line that may not is counted as left out.
    /// `room` is the number of free places in the writer's queue.
    pub(super) fn admit(
        &self,
        what: Bounded,
        requester: &Requester<'_>,
        now: Instant,
        room: usize,
    ) -> bool {
        let admitted = room > RESERVED && self.minute.lock().admit((what, source(requester)), now);
        if !admitted {
            self.left_out[what as usize].fetch_add(1, Ordering::Relaxed);
        }
        admitted
    }

    /// How many audit lines were left out since the last call of this function.
    pub(super) fn take_left_out(&self) -> LeftOut {
        let counts = self.left_out.each_ref();
        counts.map(|count| count.swap(0, Ordering::Relaxed))
    }
}

// === impl Minute ===

impl Minute {
    fn admit(&mut self, source: (Bounded, Source), now: Instant) -> bool {
        let is_over = |since| now.saturating_duration_since(since) >= MINUTE;
        if self.since.is_none_or(is_over) {
            *self = Self {
                since: Some(now),
                ..Self::default()
            };
        }
        // This limit bounds the memory too, because there are at most as many sources as lines.
        if self.total >= MOST_OF_ALL {
            return false;
        }
        let written = self.by_source.entry(source).or_default();
        if *written >= MOST_OF_ONE {
            return false;
        }
        *written += 1;
        self.total += 1;
        true
    }
}

/// The source of a request: the caller whose audit lines are counted together. An IPv6 network of 64 bits is one
/// source, because its owner has all of its addresses.
fn source(requester: &Requester<'_>) -> Source {
    match (requester.key, requester.remote) {
        (Some(key), _) => Source::Key(key.into()),
        (None, Some(IpAddr::V6(address))) => {
            let [a, b, c, d, ..] = address.segments();
            Source::Address(Some(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0).into()))
        }
        (None, remote) => Source::Address(remote),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requester(key: Option<&str>, remote: u32) -> Requester<'_> {
        Requester {
            key,
            request_id: "r",
            remote: Some(remote.to_be_bytes().into()),
        }
    }

    fn admitted(bounds: &Bounds, requester: &Requester<'_>, times: u32, now: Instant) -> u32 {
        let admit = |_: &u32| bounds.admit(Bounded::Refusal, requester, now, QUEUE);
        u32::try_from((0..times).filter(admit).count()).unwrap()
    }

    #[test]
    fn each_source_has_its_share_of_a_minute_and_the_rest_is_counted() {
        let (bounds, now) = (Bounds::default(), Instant::now());
        assert_eq!(
            admitted(&bounds, &requester(None, 1), 100, now),
            MOST_OF_ONE
        );
        assert_eq!(admitted(&bounds, &requester(None, 2), 10, now), 10);
        assert_eq!(admitted(&bounds, &requester(Some("ci"), 1), 10, now), 10);
        assert_eq!(bounds.take_left_out(), [40, 0, 0]);
        assert_eq!(bounds.take_left_out(), LeftOut::default());
        let later = now + MINUTE;
        assert_eq!(admitted(&bounds, &requester(None, 1), 10, later), 10);
    }

    #[test]
    fn who_signs_out_over_and_over_takes_nothing_from_the_refusals_of_the_same_key() {
        let (bounds, now) = (Bounds::default(), Instant::now());
        let ops = requester(Some("ops"), 1);
        for _ in 0..100 {
            bounds.admit(Bounded::SignOut, &ops, now, QUEUE);
        }
        assert_eq!(bounds.take_left_out(), [0, 40, 0]);
        assert_eq!(admitted(&bounds, &ops, 10, now), 10);
    }

    #[test]
    fn many_sources_have_no_more_than_all_may() {
        let (bounds, now) = (Bounds::default(), Instant::now());
        let written: u32 = (0..10_000)
            .map(|remote| admitted(&bounds, &requester(None, remote), 1, now))
            .sum();
        assert_eq!(written, MOST_OF_ALL);
        assert!(bounds.minute.lock().by_source.len() <= MOST_OF_ALL as usize);
    }

    #[test]
    fn half_of_the_queue_is_left_to_others() {
        let (bounds, now) = (Bounds::default(), Instant::now());
        for (room, expected) in [(RESERVED + 1, true), (RESERVED, false), (0, false)] {
            let admitted = bounds.admit(Bounded::Refusal, &requester(None, 1), now, room);
            assert_eq!(admitted, expected);
        }
        assert_eq!(bounds.take_left_out(), [2, 0, 0]);
    }
}

//! How many lines are written of what anybody can cause over and over, and it costs them nothing: it
//! must not fill the disk, nor take the room of what is rarer and matters more.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::event::{LeftOut, Requester};

/// What of the log is left to such lines, and how many were left out.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    minute: Mutex<Minute>,
    left_out: [AtomicU64; 2],
}

/// What is bounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Bounded {
    /// Somebody is refused.
    Refusal,
    /// Somebody signs out, which is charged to nobody.
    SignOut,
}

#[derive(Debug, Default)]
struct Minute {
    since: Option<Instant>,
    total: u32,
    by_source: HashMap<(Bounded, Source), u32>,
}

/// Who it is: a key, or an address for those without.
#[derive(Debug, PartialEq, Eq, Hash)]
enum Source {
    Key(Box<str>),
    Address(Option<IpAddr>),
}

/// How many lines may wait to be written: a flood of refusals takes no more than some megabytes.
pub(super) const QUEUE: usize = 4_096;

/// How many lines a source has in a minute: what it tries shows in them, and a flood only in its number.
pub(super) const MOST_OF_ONE: u32 = 60;
/// How many lines there are in a minute, whoever it is: about two megabytes.
const MOST_OF_ALL: u32 = 6_000;
/// How much room of the queue such lines leave to others.
pub(super) const RESERVED: usize = QUEUE / 2;
const MINUTE: Duration = Duration::from_mins(1);

// === impl Bounds ===

impl Bounds {
    /// Whether this is to be written of somebody, where the queue has so much room. If not, it is counted.
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

    /// How many were left out since this was asked the last time.
    pub(super) fn take_left_out(&self) -> LeftOut {
        let counts = self.left_out.each_ref();
        counts.map(|count| count.swap(0, Ordering::Relaxed))
    }

    /// The line that was to say so was not written.
    pub(super) fn put_back(&self, left_out: LeftOut) {
        for (sum, count) in self.left_out.iter().zip(left_out) {
            sum.fetch_add(count, Ordering::Relaxed);
        }
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
        // Also the bound of the memory: no more sources than lines.
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

/// An IPv6 network is one source: who has one of its addresses has them all.
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
        let left_out = [40, 0];
        assert_eq!(bounds.take_left_out(), left_out);
        assert_eq!(bounds.take_left_out(), LeftOut::default());
        bounds.put_back(left_out);
        assert_eq!(bounds.take_left_out(), left_out);
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
        assert_eq!(bounds.take_left_out(), [0, 40]);
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
        assert_eq!(bounds.take_left_out(), [2, 0]);
    }
}

//! How many lines are written of what anybody can cause over and over, and it costs them nothing: it
//! must not fill the disk, nor take the room of what is rarer and matters more.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::Requester;

/// What of the log is left to such lines, and how many were left out.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    minute: Mutex<Minute>,
    waiting: AtomicUsize,
    /// How many of each were left out, by [`Bounded`].
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

/// How many were left out of the log since the last line that says so.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct LeftOut {
    pub(super) refusals: Option<u64>,
    pub(super) sign_outs: Option<u64>,
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
/// How many may wait to be written: half of the queue.
pub(super) const MOST_WAITING: usize = QUEUE / 2;
const MINUTE: Duration = Duration::from_mins(1);

// === impl Bounds ===

impl Bounds {
    /// Whether this is to be written of somebody; if so it waits until [`Bounds::taken`] is called, and if
    /// not it is counted.
    pub(super) fn admit(&self, what: Bounded, requester: &Requester<'_>, now: Instant) -> bool {
        let admitted = self.minute.lock().admit((what, source(requester)), now) && self.wait();
        if !admitted {
            self.left_out[what as usize].fetch_add(1, Ordering::Relaxed);
        }
        admitted
    }

    /// One that waited is about to be written, or will not be.
    pub(super) fn taken(&self) {
        self.waiting.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many were left out since this was asked the last time.
    pub(super) fn take_left_out(&self) -> LeftOut {
        let taken = |what: Bounded| {
            let count = self.left_out[what as usize].swap(0, Ordering::Relaxed);
            (count > 0).then_some(count)
        };
        LeftOut {
            refusals: taken(Bounded::Refusal),
            sign_outs: taken(Bounded::SignOut),
        }
    }

    /// The line that was to say so was not written.
    pub(super) fn put_back(&self, left_out: LeftOut) {
        let counts = [left_out.refusals, left_out.sign_outs];
        for (sum, count) in self.left_out.iter().zip(counts) {
            sum.fetch_add(count.unwrap_or_default(), Ordering::Relaxed);
        }
    }

    fn wait(&self) -> bool {
        let is_room = self.waiting.fetch_add(1, Ordering::Relaxed) < MOST_WAITING;
        if !is_room {
            self.taken();
        }
        is_room
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
        let admit = |_: &u32| {
            let admitted = bounds.admit(Bounded::Refusal, requester, now);
            if admitted {
                bounds.taken();
            }
            admitted
        };
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
        let left_out = LeftOut {
            refusals: Some(40),
            sign_outs: None,
        };
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
            if bounds.admit(Bounded::SignOut, &ops, now) {
                bounds.taken();
            }
        }
        let left_out = LeftOut {
            refusals: None,
            sign_outs: Some(40),
        };
        assert_eq!(bounds.take_left_out(), left_out);
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
    fn no_more_wait_than_half_of_the_queue_takes() {
        let (bounds, now) = (Bounds::default(), Instant::now());
        let refused = |&remote: &u32| bounds.admit(Bounded::Refusal, &requester(None, remote), now);
        assert_eq!((0..6_000).filter(refused).count(), MOST_WAITING);
    }
}

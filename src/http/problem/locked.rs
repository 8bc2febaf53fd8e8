//! What is told to somebody who asks for a lock that is held.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    http::locks::{CurrentHolder, millis},
    lock::{HeldLease, LockName, Sharing, Ttl},
    store::contract::{Contention, Holder},
};

/// The longest time after which to ask again: a holder may release long before its TTL is over.
const LONGEST: Duration = Duration::from_secs(5);
/// After how long to ask again when the lock is just passing to somebody who waited for it: the new
/// holder is known then.
const PASSING_ON: Duration = Duration::from_secs(1);

/// Who holds the lock, and when to ask again.
#[derive(Debug, Clone)]
pub(in crate::http) struct Locked {
    /// Which lock it is, if several were asked for.
    pub(super) name: Option<LockName>,
    pub(super) holders: Vec<CurrentHolder>,
    pub(super) holder_count: u64,
    pub(super) waited_ms: u64,
    pub(super) waiters: u64,
    pub(super) retry_after_ms: u64,
}

// === impl Locked ===

impl Locked {
    /// `sharing` is how the caller wanted to share the lock. `jitter` varies the time after which to ask again;
    /// any number will do.
    pub(super) fn by(
        contention: Contention,
        sharing: Option<Sharing>,
        waited: Duration,
        jitter: u32,
    ) -> Self {
        let left = time_to_wait(contention.holder.as_ref(), sharing);
        let holder_count = contention.holder.as_ref().map_or(0, Holder::count);
        let holders = contention
            .holder
            .map_or_else(Vec::new, CurrentHolder::all_of);
        let left = left.clamp(Ttl::MIN.duration(), LONGEST);
        // After the lease is over for a short one, so that asking again can succeed; within the
        // last fifth of the longest time for a long one.
        let spread = left / 5 * (jitter % 1000) / 1000;
        let retry_after = if left + spread > LONGEST {
            LONGEST.saturating_sub(spread)
        } else {
            left + spread
        };
        Self {
            name: None,
            holders,
            holder_count,
            waited_ms: millis(waited),
            waiters: contention.waiters,
            retry_after_ms: millis(retry_after),
        }
    }
}

/// After how long there is room for the caller, if nobody renews or releases: a shared lease needs as many to
/// end as are too many for its limit, an exclusive one needs all of them to.
fn time_to_wait(holder: Option<&Holder>, sharing: Option<Sharing>) -> Duration {
    let left = |lease: &HeldLease| lease.left_at(Instant::now());
    match holder {
        None => PASSING_ON,
        Some(Holder::Lease(lease)) => left(lease),
        Some(Holder::Foreign { expires_in, .. }) => expires_in.unwrap_or(LONGEST),
        Some(Holder::Shared(holders)) => {
            let limit = sharing.map_or(1, |sharing| u64::from(sharing.limit.get()));
            let too_many = (holders.count + 1).saturating_sub(limit);
            // With none too many it is the queue that stands before the caller, and any change may move it.
            let last = usize::try_from(too_many.saturating_sub(1)).unwrap_or(usize::MAX);
            let mut ends: Vec<_> = holders.leases.iter().map(left).collect();
            ends.sort_unstable();
            // Those that are not seen end later than those that are.
            ends.get(last).copied().unwrap_or(LONGEST)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        lock::{FencingToken, Limit, Metadata, Mode},
        store::contract::SharedHolders,
    };

    fn retry_after(holder: Option<Holder>, jitter: u32) -> (u64, u64) {
        let contention = Contention { holder, waiters: 0 };
        let locked = Locked::by(contention, None, Duration::ZERO, jitter);
        (locked.retry_after_ms, locked.retry_after_ms.div_ceil(1000))
    }

    fn foreign(ms: Option<u64>, jitter: u32) -> (u64, u64) {
        let expires_in = ms.map(Duration::from_millis);
        let mark = None;
        retry_after(Some(Holder::Foreign { expires_in, mark }), jitter)
    }

    #[test]
    fn sends_callers_back_soon_when_the_lock_is_passing_on() {
        assert_eq!(retry_after(None, 0), (1000, 1));
        assert_eq!(retry_after(None, 999), (1199, 2));
    }

    #[test]
    fn sends_callers_back_after_the_lease_is_over_and_within_five_seconds() {
        for jitter in [0, 1, 500, 999, 1000, u32::MAX] {
            for (left, least, most, seconds) in [
                (Some(0), 100, 120, 1..=1),
                (Some(50), 100, 120, 1..=1),
                (Some(1000), 1000, 1200, 1..=2),
                (Some(4000), 4000, 5000, 4..=5),
                (Some(4900), 4000, 5000, 4..=5),
                (Some(3_600_000), 4000, 5000, 4..=5),
                (None, 4000, 5000, 4..=5),
            ] {
                let (ms, header) = foreign(left, jitter);
                assert!((least..=most).contains(&ms), "{left:?} {jitter}: {ms} ms");
                assert!(seconds.contains(&header), "{left:?} {jitter}: {header} s");
            }
        }
    }

    /// Three leases that share a lock and end after one, two and four seconds, and so many more.
    fn shared_by(more: u64) -> Holder {
        let lease = |seconds| HeldLease {
            fence: FencingToken::new(1).unwrap(),
            mode: Mode::Shared { slot: None },
            ttl: Ttl::MIN,
            expires_in: Duration::from_secs(seconds),
            held_for: Duration::ZERO,
            hold_expires_in: None,
            owner: None,
            metadata: Metadata::default(),
            release_requested: None,
            as_of: Instant::now() + Duration::from_hours(1),
        };
        Holder::Shared(SharedHolders {
            // Renewed since they were put in order.
            leases: [2, 1, 4].map(lease).into(),
            count: 3 + more,
        })
    }

    #[test]
    fn sends_callers_back_when_there_is_a_place_for_what_they_want() {
        let limit = |limit| {
            Some(Sharing {
                limit: Limit::new(limit).unwrap(),
                has_slot: true,
            })
        };
        for (more, wanted, seconds) in [
            // There is room, but somebody waits before this one.
            (0, limit(4), 1),
            (0, limit(3), 1),
            (0, limit(2), 2),
            (0, limit(1), 4),
            (0, None, 4),
            (1, limit(4), 1),
            (1, limit(2), 4),
            // Whoever decides it is not seen.
            (1, limit(1), 5),
            (1, None, 5),
        ] {
            let contention = Contention {
                holder: Some(shared_by(more)),
                waiters: 0,
            };
            let left = time_to_wait(contention.holder.as_ref(), wanted);
            assert_eq!(left, Duration::from_secs(seconds), "{more} {wanted:?}");
            let locked = Locked::by(contention, wanted, Duration::ZERO, 0);
            assert_eq!(u128::from(locked.retry_after_ms), left.as_millis());
        }
    }

    #[test]
    fn does_not_send_all_callers_back_at_one_time() {
        assert_ne!(foreign(Some(3000), 0), foreign(Some(3000), 900));
        assert_ne!(foreign(None, 0), foreign(None, 900));
    }
}

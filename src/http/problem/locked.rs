//! What is told to somebody who asks for a lock that is held.

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::{
    http::locks::MetadataBody,
    lock::{HeldLease, LockName, Ttl},
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

/// Who holds the lock that was asked for.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(in crate::http) struct CurrentHolder {
    /// Who asked for the lease, for people to read; null if the API key may not view the lock.
    #[schema(required = true)]
    owner: Option<String>,
    /// What the holder attached to the lease; empty if the API key may not view the lock.
    #[schema(value_type = std::collections::BTreeMap<String, String>)]
    metadata: MetadataBody,
    /// The fencing token of the lease; null if a foreign client holds the lock.
    #[schema(minimum = 1, maximum = 9_007_199_254_740_991_u64, required = true)]
    fencing_token: Option<u64>,
    /// `exclusive` or `shared`; null if a foreign client holds the lock.
    #[schema(required = true)]
    mode: Option<&'static str>,
    /// The slot of a shared lease whose request had a limit; else null.
    #[schema(required = true)]
    slot: Option<u16>,
    /// What is left of the lease; null if a foreign client holds the lock without an expiry.
    #[schema(required = true)]
    expires_in_ms: Option<u64>,
    /// Whether a client that does not use the gateway took the lock in the store itself.
    foreign: bool,
}

// === impl Locked ===

impl Locked {
    /// `jitter` varies the time after which to ask again; any number will do.
    pub(super) fn by(contention: Contention, waited: Duration, jitter: u32) -> Self {
        let holder_count = contention.holder.as_ref().map_or(0, Holder::count);
        let holders = contention
            .holder
            .map_or_else(Vec::new, CurrentHolder::all_of);
        let left = match holders.first() {
            None => PASSING_ON,
            Some(soonest) => soonest.expires_in_ms.map_or(LONGEST, Duration::from_millis),
        };
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

    /// Leaves out what the holders say of themselves. That somebody holds the lock, and for how long, is
    /// what the answer is about.
    pub(super) fn hide_holders(&mut self) {
        for holder in &mut self.holders {
            // Each field by name, so that a new one is not shown by mistake.
            let CurrentHolder {
                owner,
                metadata,
                fencing_token: _,
                mode: _,
                slot: _,
                expires_in_ms: _,
                foreign: _,
            } = holder;
            *owner = None;
            *metadata = MetadataBody::default();
        }
    }
}

// === impl CurrentHolder ===

impl CurrentHolder {
    fn all_of(holder: Holder) -> Vec<Self> {
        match holder {
            Holder::Lease(lease) => vec![Self::of_lease(lease)],
            Holder::Shared(holders) => holders.leases.into_iter().map(Self::of_lease).collect(),
            Holder::Foreign { expires_in, .. } => vec![Self {
                owner: None,
                metadata: MetadataBody::default(),
                fencing_token: None,
                mode: None,
                slot: None,
                expires_in_ms: expires_in.map(millis),
                foreign: true,
            }],
        }
    }

    fn of_lease(lease: HeldLease) -> Self {
        Self {
            expires_in_ms: Some(millis(lease.left_at(Instant::now()))),
            owner: lease.owner.map(|owner| owner.as_str().to_owned()),
            metadata: MetadataBody(lease.metadata),
            fencing_token: Some(lease.fence.get()),
            mode: Some(lease.mode.as_str()),
            slot: lease.mode.slot(),
            foreign: false,
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retry_after(holder: Option<Holder>, jitter: u32) -> (u64, u64) {
        let contention = Contention { holder, waiters: 0 };
        let locked = Locked::by(contention, Duration::ZERO, jitter);
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

    #[test]
    fn does_not_send_all_callers_back_at_one_time() {
        assert_ne!(foreign(Some(3000), 0), foreign(Some(3000), 900));
        assert_ne!(foreign(None, 0), foreign(None, 900));
    }
}

//! Which leases this gateway may still be asked to renew or release.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use crate::lock::{FencingToken, HeldLease, LockName, Owner, TokenHash};

/// The leases that were granted or renewed through this gateway and, as far as it knows, live.
/// Cheap to clone.
///
/// Nothing is decided by it but how long the gateway stays when it is told to end, and who may ask
/// for a release although others at the same address have guessed too often. A lease that
/// ended elsewhere is listed until its time is over.
#[derive(Debug, Clone, Default)]
pub(super) struct Owed {
    leases: Arc<Mutex<Leases>>,
    /// Told when a lease has been struck off.
    settled: watch::Sender<()>,
}

/// A lease that was granted or renewed here.
#[derive(Debug, Clone)]
pub(super) struct Owing {
    pub(super) token: TokenHash,
    pub(super) name: LockName,
    pub(super) fence: FencingToken,
    pub(super) owner: Option<Owner>,
    /// When it was granted, for those who only count.
    pub(super) since: Instant,
    /// When it is over.
    pub(super) until: Instant,
    /// Until when a gateway that ends stays for its holder.
    waited_until: Instant,
}

#[derive(Debug, Default)]
struct Leases {
    owing: HashMap<TokenHash, Owing>,
    /// How long the list may grow before what is over is struck off.
    sweep_at: usize,
}

/// A list as short as this is not worth sweeping.
const SWEEP_FROM: usize = 1024;

// === impl Owed ===

impl Owed {
    /// A lease has so long to live from now.
    pub(super) fn owe(&self, token: TokenHash, name: &LockName, held: &HeldLease) {
        let now = Instant::now();
        let until = now + held.expires_in;
        let owing = Owing {
            token,
            name: name.clone(),
            fence: held.fence,
            owner: held.owner.clone(),
            since: now.checked_sub(held.held_for).unwrap_or(now),
            until,
            waited_until: until,
        };
        let mut leases = self.lock();
        leases.owing.insert(token, owing);
        if leases.owing.len() > leases.sweep_at.max(SWEEP_FROM) {
            leases.owing.retain(|_, owing| owing.until > now);
            // Twice as many as live, so that sweeping costs a fixed share of granting.
            leases.sweep_at = 2 * leases.owing.len();
        }
    }

    /// A lease has ended, or nobody knows its token. A token of another lock holds nothing here, and says
    /// nothing of its own lease.
    pub(super) fn settle(&self, name: &LockName, token: &TokenHash) -> Option<Owing> {
        let mut leases = self.lock();
        let of_lock = leases.owing.get(token)?.name == *name;
        let owing = of_lock.then(|| leases.owing.remove(token)).flatten();
        drop(leases);
        if owing.is_some() {
            self.settled.send_replace(());
        }
        owing
    }

    /// Nobody is waited for on account of this lease for longer than this, unless it is renewed here.
    /// Whoever waits until nothing is owed is told.
    pub(super) fn owe_at_most(&self, token: &TokenHash, at_most: Duration) {
        let mut leases = self.lock();
        let Some(owing) = leases.owing.get_mut(token) else {
            return;
        };
        owing.waited_until = owing.waited_until.min(Instant::now() + at_most);
        drop(leases);
        self.settled.send_replace(());
    }

    /// What is left of a lease, as far as is known here.
    pub(super) fn left(&self, token: &TokenHash) -> Option<Duration> {
        let leases = self.lock();
        let owing = leases.owing.get(token)?;
        Some(owing.until.saturating_duration_since(Instant::now()))
    }

    /// How many live, as far as is known here.
    pub(super) fn len(&self) -> usize {
        let now = Instant::now();
        let leases = self.lock();
        let living = leases.owing.values().filter(|owing| owing.until > now);
        living.count()
    }

    /// For how long the one that is held for longest has been held; `None` if none lives.
    pub(super) fn longest(&self) -> Option<Duration> {
        let now = Instant::now();
        let leases = self.lock();
        let living = leases.owing.values().filter(|owing| owing.until > now);
        let oldest = living.map(|owing| owing.since).min()?;
        Some(now.saturating_duration_since(oldest))
    }

    /// Whether this lease lives, as far as is known here.
    pub(super) fn is_owed(&self, name: &LockName, token: &TokenHash) -> bool {
        let leases = self.lock();
        let owing = leases.owing.get(token);
        owing.is_some_and(|owing| owing.name == *name && owing.until > Instant::now())
    }

    /// Ends when, from this call on, a lease has ended before its time, or is not waited for as long.
    pub(super) fn settled(&self) -> impl Future<Output = ()> + use<> {
        let mut settled = self.settled.subscribe();
        async move {
            // An error: nobody is there to settle anything any more.
            let _ = settled.changed().await;
        }
    }

    /// Until when somebody is waited for; `None` if nobody is.
    pub(super) fn waited_until(&self) -> Option<Instant> {
        let leases = self.lock();
        let last = leases.owing.values().map(|owing| owing.waited_until).max();
        last.filter(|&until| until > Instant::now())
    }

    /// Those that live, as far as is known here.
    pub(super) fn living(&self) -> Vec<Owing> {
        let now = Instant::now();
        let leases = self.lock();
        let living = leases.owing.values().filter(|owing| owing.until > now);
        living.cloned().collect()
    }

    fn lock(&self) -> MutexGuard<'_, Leases> {
        self.leases
            .lock()
            .expect("no code panics while it holds the list")
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::{
        engine::tests::scripted_store::{held, name},
        lock::Token,
    };

    fn lasting(seconds: u64) -> HeldLease {
        HeldLease {
            expires_in: Duration::from_secs(seconds),
            ..held()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn is_over_with_the_last_lease_that_was_not_settled() {
        let owed = Owed::default();
        assert_eq!(owed.waited_until(), None);
        let begin = Instant::now();
        let [short, long] = [(); 2].map(|()| Token::random().hash());
        owed.owe(short, &name(), &lasting(10));
        owed.owe(long, &name(), &lasting(30));
        assert_eq!(owed.waited_until(), Some(begin + Duration::from_secs(30)));
        owed.settle(&name(), &long);
        assert_eq!(owed.waited_until(), Some(begin + Duration::from_secs(10)));
        owed.owe(short, &name(), &lasting(20));
        assert_eq!(owed.waited_until(), Some(begin + Duration::from_secs(20)));
        advance(Duration::from_secs(20)).await;
        assert_eq!(owed.waited_until(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_sent_away_is_waited_for_a_while_and_longer_when_they_renew() {
        let owed = Owed::default();
        let begin = Instant::now();
        let token = Token::random().hash();
        let after = |seconds| Some(begin + Duration::from_secs(seconds));
        owed.owe(token, &name(), &lasting(30));
        let told = owed.settled();
        owed.owe_at_most(&token, Duration::from_secs(2));
        told.await;
        assert_eq!(owed.waited_until(), after(2));
        advance(Duration::from_secs(2)).await;
        assert_eq!(owed.waited_until(), None);
        assert!(owed.is_owed(&name(), &token), "its lease lives on");
        assert_eq!(owed.left(&token), Some(Duration::from_secs(28)));
        owed.owe_at_most(&token, Duration::from_secs(3));
        assert_eq!(
            owed.waited_until(),
            None,
            "it grows by nothing but a renewal"
        );
        owed.owe(token, &name(), &lasting(30));
        assert_eq!(owed.waited_until(), after(32));
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_is_tried_on_another_lock_says_nothing_of_its_lease() {
        let owed = Owed::default();
        let token = Token::random().hash();
        owed.owe(token, &name(), &lasting(10));
        let other = LockName::new("other").unwrap();
        assert!(owed.settle(&other, &token).is_none());
        assert!(owed.is_owed(&name(), &token));
        assert!(owed.settle(&name(), &token).is_some());
        assert_eq!(owed.len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn does_not_grow_with_what_is_over() {
        let owed = Owed::default();
        for _ in 0..10 {
            for _ in 0..SWEEP_FROM {
                owed.owe(Token::random().hash(), &name(), &lasting(1));
            }
            advance(Duration::from_secs(1)).await;
        }
        let listed = owed.lock().owing.len();
        assert!(listed <= 2 * SWEEP_FROM, "{listed} are listed");
    }
}

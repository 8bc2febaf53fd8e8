//! The leases that were granted, renewed or answered by this gateway.

use std::{
    collections::{HashMap, hash_map},
    hash::{BuildHasherDefault, Hasher},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{Notify, oneshot},
    time::{Duration, Instant},
};

use crate::{
    auth::LeaseSlot,
    lock::{FencingToken, HeldLease, KeeperId, LockName, Mode, Owner, TokenHash},
};

use super::replies::{LeaseReplies, LeaseReply};

/// The leases that were granted, renewed or answered by this gateway and, as far as it knows, live.
///
/// It decides nothing about a lock. It says how long a gateway that stops must stay, which releases are let
/// in although their address has sent too many wrong tokens, and whether a lease that was answered under an
/// idempotency key has reached any of its callers. It has the slot of the lease among those of its API key, and the
/// stream of this gateway that keeps the lease. A lease that ended elsewhere is listed until its time is over.
#[derive(Debug, Default)]
pub(super) struct LeaseRegistry {
    shards: [Mutex<Shard>; SHARDS],
    /// Notified when a lease is removed, or is waited for less long, while `is_watched` is set.
    shrunk: Arc<Notify>,
    /// Set by the first call of `shrunk`, which only a gateway that stops makes: notifying takes a lock.
    is_watched: AtomicBool,
    /// While set, leases that have run out stay listed until `take_run_out`.
    keeps_run_out: AtomicBool,
}

/// Tells leases apart: a part of the hash of the token, which leads to no token. Random, so no two living leases of a
/// lock have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LeaseTag(pub(super) u64);

/// A lease that was granted or renewed here.
#[derive(Debug)]
pub(super) struct RegisteredLease {
    pub(super) tag: LeaseTag,
    pub(super) name: LockName,
    pub(super) fence: FencingToken,
    pub(super) owner: Option<Owner>,
    pub(super) mode: Mode,
    /// When it was granted, for statistics only.
    pub(super) since: Instant,
    /// Whether it counts here: it was granted here, or a stream of this gateway keeps it.
    is_counted: bool,
    /// When it is over.
    pub(super) until: Instant,
    /// Until when a gateway that ends stays for its holder.
    needed_until: Instant,
    /// When it was granted or renewed here last.
    seen: Instant,
    /// Whether another gateway reports its end, as far as is known: that gateway has renewed the lease since.
    ends_elsewhere: bool,
    /// The slot among the leases of its API key, if the key may have only so many.
    slot: Option<LeaseSlot>,
    /// The stream of this gateway that keeps it, if one does, unless the stream was told already.
    stream: Option<oneshot::Sender<Displaced>>,
}

/// What happens to the lease of a stream without the stream's doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Displaced {
    /// The lease was released, with its token.
    Released,
    /// Another stream of this gateway may have adopted the lease, or the lease is not listed any more; the store
    /// decides.
    Adopted,
    /// The lease may have been broken; the store decides.
    Broken,
}

/// Tells a stream at once what it would otherwise learn from its next renewal. Dropped, the stream keeps the lease no
/// more.
#[derive(Debug)]
pub(super) struct KeeperEntry {
    leases: Arc<LeaseRegistry>,
    name: LockName,
    tag: LeaseTag,
    /// `None`: the stream was displaced.
    news: Option<oneshot::Receiver<Displaced>>,
}

/// How many leases count here.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct CountedLeases {
    pub(super) all: usize,
    /// How many of them share their lock.
    pub(super) shared: usize,
    /// How many are kept by a stream of this gateway.
    pub(super) held_by_streams: usize,
}

#[derive(Debug, Default)]
struct Shard {
    leases: HashMap<LeaseTag, LeaseEntry, BuildHasherDefault<TagHasher>>,
    /// How many may be listed before what is over is struck off.
    sweep_at: usize,
}

/// What is known of one lease.
#[derive(Debug, Default)]
struct LeaseEntry {
    lease: Option<RegisteredLease>,
    /// The others with the same token, if it is that of a group.
    others: Vec<RegisteredLease>,
    /// Its answers, if it has an idempotency key.
    answers: Option<Box<LeaseReplies>>,
    /// When it was last answered under its idempotency key.
    answered: Option<Instant>,
}

/// Takes a tag as it is, because it is random.
#[derive(Debug, Default)]
struct TagHasher(u64);

/// Enough that two cores seldom want the same one.
const SHARDS: usize = 16;

/// How old the news of another gateway may be. Two that renew a lease within this time may both report its end, because
/// otherwise each might leave it to the other.
const NEWS_DELAY: Duration = Duration::from_secs(1);

/// A list as short as this is not worth sweeping.
const SWEEP_FROM: usize = 64;

// === impl LeaseRegistry ===

impl LeaseRegistry {
    /// A lease was granted here, or renewed by a stream of this gateway.
    pub(super) fn insert_counted(&self, token: TokenHash, name: &LockName, held: &HeldLease) {
        self.insert_as(true, token, name, held);
    }

    /// A lease was renewed or answered again here. It may count at another
    /// gateway, and does not begin to count here.
    pub(super) fn insert(&self, token: TokenHash, name: &LockName, held: &HeldLease) {
        self.insert_as(false, token, name, held);
    }

    fn insert_as(&self, counts: bool, token: TokenHash, name: &LockName, held: &HeldLease) {
        let now = Instant::now();
        let until = now + held.left_at(now);
        let held_for = held.held_for + now.saturating_duration_since(held.as_of);
        let mut lease = RegisteredLease {
            tag: (&token).into(),
            name: name.clone(),
            fence: held.fence,
            owner: held.owner.clone(),
            mode: held.mode,
            since: now.checked_sub(held_for).unwrap_or(now),
            until,
            is_counted: counts,
            needed_until: until,
            seen: now,
            ends_elsewhere: false,
            slot: None,
            stream: None,
        };
        let mut shard = self.shard(lease.tag);
        let entry = shard.leases.entry(lease.tag).or_default();
        if let Some(listed) = entry.named(name) {
            lease.is_counted |= listed.is_counted;
            lease.slot = listed.slot.take();
            lease.stream = listed.stream.take();
            if let Some(slot) = &lease.slot {
                slot.extend_until(until);
            }
            *listed = lease;
        } else {
            entry.push(lease);
        }
        self.sweep(&mut shard, now);
    }

    /// The lease belongs to an API key from now on; `None` for a key that may have any number, or for nobody.
    pub(super) fn charge(&self, name: &LockName, token: &TokenHash, slot: Option<LeaseSlot>) {
        let mut shard = self.shard(token);
        let Some(lease) = shard.lease_mut(name, token) else {
            return;
        };
        // A request that is repeated under its idempotency key must find the slot that it has.
        if let (Some(listed), Some(slot)) = (&lease.slot, &slot)
            && listed.has_same_account(slot)
        {
            return;
        }
        if let Some(slot) = &slot {
            slot.extend_until(lease.until);
        }
        lease.slot = slot;
    }

    /// A stream of this gateway keeps the lease, in the place of an older one. If the lease is not listed, the stream
    /// is told at once.
    pub(super) fn keep(self: &Arc<Self>, name: LockName, token: TokenHash) -> KeeperEntry {
        let (sender, news) = oneshot::channel();
        let tag = LeaseTag::from(&token);
        if let Some(lease) = self.shard(tag).lease_mut(&name, tag)
            && let Some(older) = lease.stream.replace(sender)
        {
            // The stream may have ended at the same time, and then is not notified.
            let _ = older.send(Displaced::Adopted);
        }
        KeeperEntry {
            leases: Arc::clone(self),
            name,
            tag,
            news: Some(news),
        }
    }

    /// A lease may have been broken, or its holder was asked to release it: tells the stream that keeps it, if there is one.
    pub(super) fn broken(&self, name: &LockName, token: &TokenHash) {
        let mut shard = self.shard(token);
        let lease = shard.lease_mut(name, token);
        let stream = lease.and_then(|lease| lease.stream.take());
        drop(shard);
        if let Some(stream) = stream {
            let _ = stream.send(Displaced::Broken);
        }
    }

    /// Another stream has adopted the lease: it counts where that is.
    pub(super) fn adopted(&self, name: &LockName, token: &TokenHash) {
        if let Some(lease) = self.shard(token).lease_mut(name, token) {
            lease.is_counted = false;
        }
    }

    /// A lease has ended in a way that is reported elsewhere. A token that was tried on another lock does not
    /// remove its own lease.
    pub(super) fn remove(
        &self,
        name: &LockName,
        lease: impl Into<LeaseTag>,
    ) -> Option<RegisteredLease> {
        let tag = lease.into();
        let mut shard = self.shard(tag);
        let hash_map::Entry::Occupied(mut listed) = shard.leases.entry(tag) else {
            return None;
        };
        let entry = listed.get_mut();
        let removed = entry.remove(name)?;
        if entry.is_empty() {
            listed.remove();
        }
        drop(shard);
        self.notify();
        Some(removed)
    }

    /// A lease is lost, or given back if it lives: it is over for this gateway. Returns since when it was held. While
    /// ends are to be reported it stays listed as one that has run out, so that the store is asked what became of it.
    pub(super) fn lose(&self, name: &LockName, token: &TokenHash) -> Option<Instant> {
        if !self.keeps_run_out.load(Ordering::Relaxed) {
            return self.remove(name, token).map(|lease| lease.since);
        }
        let mut shard = self.shard(token);
        let lease = shard.lease_mut(name, token)?;
        let since = lease.since;
        // Asked again and again, it does not put off the end that is to be reported.
        let now = Instant::now();
        (lease.until, lease.needed_until) = (lease.until.min(now), now);
        (lease.is_counted, lease.slot, lease.stream) = (false, None, None);
        drop(shard);
        self.notify();
        Some(since)
    }

    /// The lease is to be released for a caller that has gone: it counts for no API key, and the gateway does not stay
    /// for its holder. A stream that keeps it is told when it is released.
    pub(super) fn give_up(&self, name: &LockName, token: &TokenHash) {
        self.charge(name, token, None);
        self.wait_at_most(name, token, Duration::ZERO);
    }

    /// Another gateway has renewed the lease, and reports its end, unless that was before the last renewal here.
    pub(super) fn renewed_elsewhere(&self, name: &LockName, tag: LeaseTag) {
        if let Some(lease) = self.shard(tag).lease_mut(name, tag) {
            lease.ends_elsewhere |= lease.seen.elapsed() > NEWS_DELAY;
        }
    }

    /// From now on leases that have run out stay listed until `take_run_out`, or no longer.
    pub(super) fn keep_run_out(&self, keeps: bool) {
        self.keeps_run_out.store(keeps, Ordering::Relaxed);
    }

    /// Removes the leases that had run out at `before`, and returns those whose end no other gateway reports and that
    /// were granted or renewed here after `seen_since`.
    pub(super) fn take_run_out(
        &self,
        before: Instant,
        seen_since: Option<Instant>,
    ) -> Vec<RegisteredLease> {
        let mut run_out = Vec::new();
        for shard in &self.shards {
            let leases = &mut shard.lock().leases;
            leases.retain(|_, entry| entry.sweep(before, |lease| run_out.push(lease)));
        }
        run_out.retain(|lease| lease.reports_end(seen_since));
        run_out
    }

    /// A lease that was taken lives until then, and is watched on unless it was renewed here meanwhile. The gateway
    /// stays for its holder no longer than before.
    pub(super) fn put_back(&self, mut lease: RegisteredLease, until: Instant) {
        lease.until = until;
        let mut shard = self.shard(lease.tag);
        let entry = shard.leases.entry(lease.tag).or_default();
        if entry.named(&lease.name).is_none() {
            entry.push(lease);
        }
    }

    /// Limits how long the gateway stays for this lease when it stops, unless the lease is renewed here, and
    /// notifies `shrunk`.
    pub(super) fn wait_at_most(&self, name: &LockName, token: &TokenHash, at_most: Duration) {
        let mut shard = self.shard(token);
        let Some(lease) = shard.lease_mut(name, token) else {
            return;
        };
        lease.needed_until = lease.needed_until.min(Instant::now() + at_most);
        drop(shard);
        self.notify();
    }

    /// Whether this lease lives, as far as is known here.
    pub(super) fn is_listed(&self, name: &LockName, lease: impl Into<LeaseTag>) -> bool {
        let tag = lease.into();
        let mut shard = self.shard(tag);
        let lease = shard.lease_mut(name, tag);
        lease.is_some_and(|lease| lease.until > Instant::now())
    }

    /// How many live that were granted here or are kept by a stream of this gateway, as far as is known here.
    /// They count at no other gateway, so that those of all gateways add up.
    pub(super) fn counted(&self) -> CountedLeases {
        let mut counted = CountedLeases::default();
        self.for_each_active(|lease| {
            counted.all += usize::from(lease.is_counted);
            counted.shared += usize::from(lease.is_counted && lease.mode.is_shared());
            counted.held_by_streams += usize::from(lease.stream.is_some());
        });
        counted
    }

    /// For how long the one that is held for longest has been held; `None` if none lives.
    pub(super) fn longest_hold(&self) -> Option<Duration> {
        let mut oldest = None;
        self.for_each_active(|lease| {
            oldest = Some(oldest.map_or(lease.since, |oldest| lease.since.min(oldest)));
        });
        Some(Instant::now().saturating_duration_since(oldest?))
    }

    /// Until when the gateway stays for a holder; `None` if there is none.
    pub(super) fn needed_until(&self) -> Option<Instant> {
        let mut last = None;
        self.for_each_active(|lease| last = last.max(Some(lease.needed_until)));
        last.filter(|&until| until > Instant::now())
    }

    /// Ends when, from this call on, a lease has ended before its time, or is not waited for as long.
    pub(super) fn shrunk(&self) -> impl Future<Output = ()> + use<> {
        // Set before the caller reads the leases: a removal after that read sees it, because both lock the
        // same shard.
        self.is_watched.store(true, Ordering::Release);
        Arc::clone(&self.shrunk).notified_owned()
    }

    fn notify(&self) {
        if self.is_watched.load(Ordering::Acquire) {
            self.shrunk.notify_waiters();
        }
    }

    /// An answer is on its way, of a lease with an idempotency key and so long to live from now.
    pub(super) fn reply_started(&self, token: TokenHash, answer: LeaseReply, left: Duration) {
        let now = Instant::now();
        let mut shard = self.shard(&token);
        let entry = shard.leases.entry((&token).into()).or_default();
        entry.answered = Some(now);
        let answers = entry.answers.get_or_insert_default();
        answers.started(answer, now + left);
        self.sweep(&mut shard, now);
    }

    /// Whether a lease was answered under its idempotency key after this instant.
    pub(super) fn was_answered_since(&self, token: &TokenHash, since: Instant) -> bool {
        let shard = self.shard(token);
        let entry = shard.leases.get(&token.into());
        entry.is_some_and(|entry| entry.answered > Some(since))
    }

    /// An answer of a lease with an idempotency key has arrived, so the lease is its caller's.
    pub(super) fn reply_delivered(&self, token: &TokenHash) {
        let mut shard = self.shard(token);
        if let hash_map::Entry::Occupied(mut listed) = shard.leases.entry(token.into()) {
            listed.get_mut().answers = None;
            if listed.get().is_empty() {
                listed.remove();
            }
        }
    }

    /// An answer was lost. If it was the last one on its way and none has arrived: returns the keeper of the
    /// lease, unless another gateway has answered it since.
    pub(super) fn reply_lost(&self, token: &TokenHash) -> Option<KeeperId> {
        let mut shard = self.shard(token);
        let answers = shard.leases.get_mut(&token.into())?.answers.as_mut()?;
        answers.lost()
    }

    /// Looks at each lease that lives, as far as is known here.
    pub(super) fn for_each_active(&self, mut each: impl FnMut(&RegisteredLease)) {
        let now = Instant::now();
        for shard in &self.shards {
            let shard = shard.lock();
            let leases = shard.leases.values().flat_map(LeaseEntry::leases);
            leases.filter(|lease| lease.until > now).for_each(&mut each);
        }
    }

    fn shard(&self, lease: impl Into<LeaseTag>) -> MutexGuard<'_, Shard> {
        // Bits that decide least about the place in the map of the shard.
        let bits = lease.into().0.to_be_bytes()[1];
        self.shards[usize::from(bits) % SHARDS].lock()
    }

    /// Removes the leases that are over, if the list has grown.
    fn sweep(&self, shard: &mut Shard, now: Instant) {
        let is_due = shard.leases.len() > shard.sweep_at.max(SWEEP_FROM);
        if is_due && !self.keeps_run_out.load(Ordering::Relaxed) {
            shard.leases.retain(|_, entry| entry.sweep(now, drop));
            // Twice as many as live, so that sweeping costs a fixed share of granting.
            shard.sweep_at = 2 * shard.leases.len();
        }
    }
}

// === impl RegisteredLease ===

impl RegisteredLease {
    /// Whether this gateway reports the end of the lease: no other one does, and the lease was granted or renewed
    /// here after `seen_since`, from when on all ends at other gateways are heard.
    pub(super) fn reports_end(&self, seen_since: Option<Instant>) -> bool {
        !self.ends_elsewhere && seen_since.is_some_and(|since| self.seen >= since)
    }

    /// The lease was released with its token: tells the stream that kept it, if there is one.
    pub(super) fn released(self) {
        if let Some(stream) = self.stream {
            let _ = stream.send(Displaced::Released);
        }
    }
}

// === impl KeeperEntry ===

impl KeeperEntry {
    /// Waits until the lease is displaced, which happens once. Safe to drop and call again.
    pub(super) async fn displaced(&mut self) -> Displaced {
        let Some(news) = &mut self.news else {
            return std::future::pending().await;
        };
        // Without a sender the lease is not listed any more.
        let displaced = news.await.unwrap_or(Displaced::Adopted);
        self.news = None;
        displaced
    }

    /// Whether the stream was displaced, and hears nothing more.
    pub(super) fn is_displaced(&self) -> bool {
        self.news.is_none()
    }
}

impl Drop for KeeperEntry {
    fn drop(&mut self) {
        let Some(news) = &mut self.news else { return };
        news.close();
        let mut shard = self.leases.shard(self.tag);
        if let Some(lease) = shard.lease_mut(&self.name, self.tag) {
            // A newer stream with the same lease has a sender that is open.
            lease.stream.take_if(|stream| stream.is_closed());
        }
    }
}

// === impl Shard ===

impl Shard {
    fn lease_mut(
        &mut self,
        name: &LockName,
        lease: impl Into<LeaseTag>,
    ) -> Option<&mut RegisteredLease> {
        self.leases.get_mut(&lease.into())?.named(name)
    }
}

// === impl LeaseEntry ===

impl LeaseEntry {
    /// Removes what is over, and passes its leases on. Whether anything is left.
    fn sweep(&mut self, now: Instant, mut over: impl FnMut(RegisteredLease)) -> bool {
        let is_over = |lease: &mut RegisteredLease| lease.until <= now;
        self.lease.take_if(is_over).into_iter().for_each(&mut over);
        self.others.extract_if(.., is_over).for_each(over);
        self.answers.take_if(|answers| answers.are_over(now));
        !self.is_empty()
    }

    fn leases(&self) -> impl Iterator<Item = &RegisteredLease> {
        self.lease.iter().chain(&self.others)
    }

    fn push(&mut self, lease: RegisteredLease) {
        if self.lease.is_none() {
            self.lease = Some(lease);
        } else {
            self.others.push(lease);
        }
    }

    fn named(&mut self, name: &LockName) -> Option<&mut RegisteredLease> {
        let mut leases = self.lease.iter_mut().chain(&mut self.others);
        leases.find(|lease| lease.name == *name)
    }

    fn remove(&mut self, name: &LockName) -> Option<RegisteredLease> {
        let first = self.lease.take_if(|lease| lease.name == *name);
        first.or_else(|| {
            let at = self.others.iter().position(|lease| lease.name == *name)?;
            Some(self.others.swap_remove(at))
        })
    }

    fn is_empty(&self) -> bool {
        self.lease.is_none() && self.others.is_empty() && self.answers.is_none()
    }
}

// === impl LeaseTag ===

impl From<&TokenHash> for LeaseTag {
    fn from(token: &TokenHash) -> Self {
        let first = token.as_bytes().first_chunk();
        Self(u64::from_be_bytes(*first.expect("a hash has 32 bytes")))
    }
}

// === impl TagHasher ===

impl Hasher for TagHasher {
    fn write(&mut self, _: &[u8]) {}

    fn write_u64(&mut self, tag: u64) {
        self.0 = tag;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::{
        engine::replies::PriorReply,
        engine::tests::scripted_store::{held, name},
        lock::Token,
    };

    fn listed(leases: &LeaseRegistry) -> usize {
        leases.shards.iter().map(|it| it.lock().leases.len()).sum()
    }

    fn lasting(seconds: u64) -> HeldLease {
        HeldLease {
            expires_in: Duration::from_secs(seconds),
            ..held()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn is_needed_until_the_last_lease_ends_that_was_not_removed() {
        let leases = LeaseRegistry::default();
        assert_eq!(leases.needed_until(), None);
        let begin = Instant::now();
        let [short, long] = [(); 2].map(|()| Token::random().hash());
        leases.insert(short, &name(), &lasting(10));
        leases.insert(long, &name(), &lasting(30));
        assert_eq!(leases.needed_until(), Some(begin + Duration::from_secs(30)));
        leases.remove(&name(), &long);
        assert_eq!(leases.needed_until(), Some(begin + Duration::from_secs(10)));
        leases.insert(short, &name(), &lasting(20));
        assert_eq!(leases.needed_until(), Some(begin + Duration::from_secs(20)));
        advance(Duration::from_secs(20)).await;
        assert_eq!(leases.needed_until(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_sent_away_is_waited_for_a_while_and_longer_when_they_renew() {
        let leases = LeaseRegistry::default();
        let begin = Instant::now();
        let token = Token::random().hash();
        let after = |seconds| Some(begin + Duration::from_secs(seconds));
        leases.insert(token, &name(), &lasting(30));
        let told = leases.shrunk();
        leases.wait_at_most(&name(), &token, Duration::from_secs(2));
        told.await;
        assert_eq!(leases.needed_until(), after(2));
        advance(Duration::from_secs(2)).await;
        assert_eq!(leases.needed_until(), None);
        assert!(leases.is_listed(&name(), &token), "its lease lives on");
        leases.wait_at_most(&name(), &token, Duration::from_secs(3));
        assert_eq!(
            leases.needed_until(),
            None,
            "it grows by nothing but a renewal"
        );
        leases.insert(token, &name(), &lasting(30));
        assert_eq!(leases.needed_until(), after(32));
    }

    #[tokio::test(start_paused = true)]
    async fn a_token_that_is_tried_on_another_lock_says_nothing_of_its_lease() {
        let leases = LeaseRegistry::default();
        let token = Token::random().hash();
        leases.insert(token, &name(), &lasting(10));
        let other = LockName::new("other").unwrap();
        assert!(leases.remove(&other, &token).is_none());
        assert!(leases.is_listed(&name(), &token));
        assert!(leases.remove(&name(), &token).is_some());
        assert!(!leases.is_listed(&name(), &token));
    }

    #[tokio::test(start_paused = true)]
    async fn the_leases_of_a_group_have_one_token_and_end_each_by_itself() {
        let leases = LeaseRegistry::default();
        let token = Token::random().hash();
        let names = ["a", "b", "c"].map(|name| LockName::new(name).unwrap());
        for (seconds, name) in (1..).zip(&names) {
            leases.insert_counted(token, name, &lasting(10 * seconds));
        }
        leases.insert(token, &names[1], &lasting(20));
        assert_eq!(leases.counted().all, 3);
        let lives = || names.each_ref().map(|it| leases.is_listed(it, &token));
        assert!(leases.remove(&names[0], &token).is_some());
        assert!(leases.remove(&names[0], &token).is_none());
        assert_eq!(lives(), [false, true, true]);
        leases.adopted(&names[2], &token);
        assert_eq!(leases.counted().all, 1);
        advance(Duration::from_secs(20)).await;
        assert_eq!(lives(), [false, false, true]);
        assert!(leases.remove(&names[2], &token).is_some());
        assert!(leases.remove(&names[1], &token).is_some());
        assert_eq!(listed(&leases), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_counts_where_it_was_granted_or_a_stream_keeps_it_and_nowhere_else() {
        let [granter, other] = [(); 2].map(|()| LeaseRegistry::default());
        let token = Token::random().hash();
        let sum = || granter.counted().all + other.counted().all;
        granter.insert_counted(token, &name(), &lasting(10));
        other.insert(token, &name(), &lasting(10));
        assert_eq!(sum(), 1);
        granter.insert(token, &name(), &lasting(10));
        assert_eq!((granter.counted().all, other.counted().all), (1, 0));
        // A stream of the other one adopts it, and the one that kept it hears of that.
        other.insert_counted(token, &name(), &lasting(10));
        granter.adopted(&name(), &token);
        assert_eq!((granter.counted().all, other.counted().all), (0, 1));
        assert!(
            granter.is_listed(&name(), &token),
            "its holder may come here"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_share_a_lock_are_counted_among_all() {
        let leases = LeaseRegistry::default();
        let shared = HeldLease {
            mode: Mode::Shared { slot: None },
            ..lasting(10)
        };
        for (held, is_counted) in [(&lasting(10), true), (&shared, true), (&shared, false)] {
            leases.insert_as(is_counted, Token::random().hash(), &name(), held);
        }
        let counted = leases.counted();
        assert_eq!((counted.all, counted.shared), (2, 1));
        advance(Duration::from_secs(10)).await;
        assert_eq!(leases.counted(), CountedLeases::default());
    }

    #[tokio::test(start_paused = true)]
    async fn does_not_grow_with_what_is_over() {
        let leases = LeaseRegistry::default();
        for _ in 0..10 {
            for _ in 0..SHARDS * SWEEP_FROM {
                leases.insert(Token::random().hash(), &name(), &lasting(1));
            }
            advance(Duration::from_secs(1)).await;
        }
        let listed = listed(&leases);
        assert!(listed <= 2 * SHARDS * SWEEP_FROM, "{listed} are listed");
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_run_out_is_taken_once_by_whoever_reports_its_end() {
        let leases = LeaseRegistry::default();
        leases.keep_run_out(true);
        let [early, late, renewed, asked, again, lost] = [(); 6].map(|()| Token::random().hash());
        leases.insert(early, &name(), &lasting(10));
        leases.insert(again, &name(), &lasting(10));
        advance(Duration::from_secs(5)).await;
        let heard_since = Some(Instant::now());
        // They would be swept if they were not kept.
        let others = [(); SHARDS * SWEEP_FROM].map(|()| Token::random().hash());
        for token in [late, renewed, asked].into_iter().chain(others) {
            leases.insert(token, &name(), &lasting(3));
        }
        leases.renewed_elsewhere(&name(), LeaseTag::from(&late));
        advance(Duration::from_secs(2)).await;
        leases.renewed_elsewhere(&name(), LeaseTag::from(&renewed));
        leases.broken(&name(), &asked);
        leases.insert(again, &name(), &lasting(1));
        leases.insert_counted(lost, &name(), &lasting(100));
        assert!(leases.lose(&name(), &lost).is_some());
        let lost_at = Instant::now();
        assert!(!leases.is_listed(&name(), &lost));
        advance(Duration::from_secs(10)).await;
        leases.lose(&name(), &lost);
        assert_eq!(leases.take_run_out(lost_at, heard_since).len(), 1);
        leases.insert(Token::random().hash(), &name(), &lasting(1));
        let taken = leases.take_run_out(Instant::now(), heard_since);
        let tags: Vec<_> = taken.iter().map(|lease| lease.tag).collect();
        let is_taken = |token: &TokenHash| tags.contains(&LeaseTag::from(token));
        assert_eq!([&late, &asked, &again].map(is_taken), [true; 3]);
        assert_eq!([&early, &renewed, &lost].map(is_taken), [false; 3]);
        assert_eq!(listed(&leases), 1);
        for lease in taken {
            leases.put_back(lease, Instant::now() + Duration::from_secs(1));
        }
        assert!(leases.is_listed(&name(), &late));
        assert_eq!(leases.counted().all, 0, "nobody keeps the lost one");
        assert_eq!(leases.take_run_out(Instant::now(), None).len(), 0);
    }

    fn first(token: TokenHash) -> LeaseReply {
        LeaseReply {
            keeper: KeeperId::of_attempt(&token),
            before: PriorReply::Nothing,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_of_which_somebody_has_heard_is_theirs_whatever_is_lost_later() {
        let (leases, token) = (LeaseRegistry::default(), Token::random().hash());
        let (one, ttl) = (first(token), Duration::from_secs(30));
        leases.reply_started(token, one, ttl);
        leases.reply_delivered(&token);
        let (keeper, before) = (KeeperId::random(), PriorReply::Reply(one.keeper));
        leases.reply_started(token, LeaseReply { keeper, before }, ttl);
        assert_eq!(leases.reply_lost(&token), None);
    }

    #[tokio::test(start_paused = true)]
    async fn does_not_grow_with_answers_of_what_is_over() {
        let leases = LeaseRegistry::default();
        for _ in 0..10 {
            for _ in 0..SHARDS * SWEEP_FROM {
                let token = Token::random().hash();
                leases.reply_started(token, first(token), Duration::from_secs(1));
            }
            advance(Duration::from_secs(1)).await;
        }
        let listed = listed(&leases);
        assert!(listed <= 2 * SHARDS * SWEEP_FROM, "{listed} are listed");
    }
}

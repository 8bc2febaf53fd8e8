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

/// The leases that were granted, renewed or answered by this gateway and, as far as it knows, live.
///
/// It decides nothing about a lock. It says how long a gateway that stops must stay, which releases are let
/// in although their address has sent too many wrong tokens, and whether a lease that was answered under an
/// idempotency key has reached any of its callers. It has the slot of the lease among those of its API key, and the
/// stream of this gateway that keeps the lease. A lease that ended elsewhere is listed until its time is over.
///
/// A lease that was answered again may be given back only if none of its answers arrived. Answers of other
/// gateways are not known here, but the store tells with each answer who kept the lease before, which is the
/// answer before it. So where the answers from the first to the last are all known here, there are no others.
#[derive(Debug, Default)]
pub(super) struct LeaseRegistry {
    shards: [Mutex<Shard>; SHARDS],
    /// Notified when a lease is removed, or is waited for less long, while `is_watched` is set.
    shrunk: Arc<Notify>,
    /// Set by the first call of `shrunk`, which only a gateway that stops makes: notifying takes a lock.
    is_watched: AtomicBool,
}

/// A lease that was granted or renewed here.
#[derive(Debug)]
pub(super) struct RegisteredLease {
    pub(super) token: TokenHash,
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
    token: TokenHash,
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
    leases: HashMap<TokenHash, LeaseEntry, BuildHasherDefault<HashOfHash>>,
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

/// The answers of one lease.
#[derive(Debug)]
struct LeaseReplies {
    /// In no order.
    given: Vec<LeaseReply>,
    /// How many of them are on their way.
    on_their_way: usize,
    /// When the lease is over.
    until: Instant,
}

/// One of them, by the attempt that was answered, which is the keeper from then on.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaseReply {
    pub(super) keeper: KeeperId,
    pub(super) before: PriorReply,
}

/// What came before an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PriorReply {
    /// Nothing: the lease was new to everybody.
    Nothing,
    /// The answer to this keeper.
    Reply(KeeperId),
    /// It is unknown.
    Unknown,
}

/// Takes a part of a token's hash, which is random already.
#[derive(Debug, Default)]
struct HashOfHash(u64);

/// Enough that two cores seldom want the same one.
const SHARDS: usize = 16;

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
            token,
            name: name.clone(),
            fence: held.fence,
            owner: held.owner.clone(),
            mode: held.mode,
            since: now.checked_sub(held_for).unwrap_or(now),
            until,
            is_counted: counts,
            needed_until: until,
            slot: None,
            stream: None,
        };
        let mut shard = self.shard(&token);
        let entry = shard.leases.entry(token).or_default();
        if let Some(listed) = entry.named(name) {
            lease.is_counted |= listed.is_counted;
            lease.slot = listed.slot.take();
            lease.stream = listed.stream.take();
            if let Some(slot) = &lease.slot {
                slot.extend_until(until);
            }
            *listed = lease;
        } else if entry.lease.is_none() {
            entry.lease = Some(lease);
        } else {
            entry.others.push(lease);
        }
        shard.sweep(now);
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
        if let Some(lease) = self.shard(&token).lease_mut(&name, &token)
            && let Some(older) = lease.stream.replace(sender)
        {
            // The stream may have ended at the same time, and then is not notified.
            let _ = older.send(Displaced::Adopted);
        }
        KeeperEntry {
            leases: Arc::clone(self),
            name,
            token,
            news: Some(news),
        }
    }

    /// A lease may have been broken: tells the stream that keeps it, if there is one.
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

    /// A lease has ended, or its token was never delivered. A token that was tried on another lock does not
    /// remove its own lease.
    pub(super) fn remove(&self, name: &LockName, token: &TokenHash) -> Option<RegisteredLease> {
        let mut shard = self.shard(token);
        let hash_map::Entry::Occupied(mut listed) = shard.leases.entry(*token) else {
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
    pub(super) fn is_listed(&self, name: &LockName, token: &TokenHash) -> bool {
        let mut shard = self.shard(token);
        let lease = shard.lease_mut(name, token);
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
        let until = now + left;
        let mut shard = self.shard(&token);
        let entry = shard.leases.entry(token).or_default();
        entry.answered = Some(now);
        let answers = entry.answers.get_or_insert_with(|| {
            Box::new(LeaseReplies {
                given: Vec::new(),
                on_their_way: 0,
                until,
            })
        });
        answers.given.push(answer);
        answers.on_their_way += 1;
        answers.until = answers.until.max(until);
        shard.sweep(now);
    }

    /// Whether a lease was answered under its idempotency key after this instant.
    pub(super) fn was_answered_since(&self, token: &TokenHash, since: Instant) -> bool {
        let shard = self.shard(token);
        let entry = shard.leases.get(token);
        entry.is_some_and(|entry| entry.answered > Some(since))
    }

    /// An answer of a lease with an idempotency key has arrived, so the lease is its caller's.
    pub(super) fn reply_delivered(&self, token: &TokenHash) {
        let mut shard = self.shard(token);
        if let hash_map::Entry::Occupied(mut listed) = shard.leases.entry(*token) {
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
        let answers = shard.leases.get_mut(token)?.answers.as_mut()?;
        answers.on_their_way = answers.on_their_way.saturating_sub(1);
        (answers.on_their_way == 0)
            .then(|| answers.last_known())
            .flatten()
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

    fn shard(&self, token: &TokenHash) -> MutexGuard<'_, Shard> {
        // Another byte than the one that the map hashes by.
        let last = token.as_bytes()[31];
        self.shards[usize::from(last) % SHARDS].lock()
    }
}

// === impl RegisteredLease ===

impl RegisteredLease {
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
        let mut shard = self.leases.shard(&self.token);
        if let Some(lease) = shard.lease_mut(&self.name, &self.token) {
            // A newer stream with the same lease has a sender that is open.
            lease.stream.take_if(|stream| stream.is_closed());
        }
    }
}

// === impl Shard ===

impl Shard {
    fn lease_mut(&mut self, name: &LockName, token: &TokenHash) -> Option<&mut RegisteredLease> {
        self.leases.get_mut(token)?.named(name)
    }

    /// Strikes off what is over, if the list has grown.
    fn sweep(&mut self, now: Instant) {
        if self.leases.len() > self.sweep_at.max(SWEEP_FROM) {
            self.leases.retain(|_, entry| entry.sweep(now));
            // Twice as many as live, so that sweeping costs a fixed share of granting.
            self.sweep_at = 2 * self.leases.len();
        }
    }
}

// === impl LeaseEntry ===

impl LeaseEntry {
    /// Strikes off what is over of a group. Whether anything is left.
    fn sweep(&mut self, now: Instant) -> bool {
        self.others.retain(|lease| lease.until > now);
        let leases = self.leases().map(|lease| lease.until).max();
        let answers = self.answers.as_ref().map(|answers| answers.until);
        leases.max(answers).is_some_and(|until| until > now)
    }

    fn leases(&self) -> impl Iterator<Item = &RegisteredLease> {
        self.lease.iter().chain(&self.others)
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

// === impl LeaseReplies ===

impl LeaseReplies {
    /// The last of the answers, if they are all known from the first one on.
    fn last_known(&self) -> Option<KeeperId> {
        let is_followed = |answer: &&LeaseReply| {
            let mut others = self.given.iter();
            others.any(|other| other.before == PriorReply::Reply(answer.keeper))
        };
        let mut last = self.given.iter().filter(|answer| !is_followed(answer));
        let (Some(last), None) = (last.next(), last.next()) else {
            return None;
        };
        let mut at = last;
        for _ in &self.given {
            let before = match at.before {
                PriorReply::Nothing => return Some(last.keeper),
                PriorReply::Reply(before) => before,
                PriorReply::Unknown => return None,
            };
            at = self.given.iter().find(|answer| answer.keeper == before)?;
        }
        None
    }
}

// === impl HashOfHash ===

impl Hasher for HashOfHash {
    fn write(&mut self, bytes: &[u8]) {
        if let Some(first) = bytes.first_chunk() {
            self.0 = u64::from_ne_bytes(*first);
        }
    }

    /// The length of the hash, which is always the same.
    fn write_usize(&mut self, _length: usize) {}

    fn finish(&self) -> u64 {
        self.0
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
        assert_eq!(
            leases.counted(),
            CountedLeases {
                all: 2,
                shared: 1,
                held_by_streams: 0
            }
        );
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

    const TTL: Duration = Duration::from_secs(30);

    fn first(token: TokenHash) -> LeaseReply {
        LeaseReply {
            keeper: KeeperId::of_attempt(&token),
            before: PriorReply::Nothing,
        }
    }

    fn after(answer: LeaseReply) -> LeaseReply {
        LeaseReply {
            keeper: KeeperId::random(),
            before: PriorReply::Reply(answer.keeper),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_of_the_answers_that_are_all_lost_keeps_the_lease() {
        let (leases, token) = (LeaseRegistry::default(), Token::random().hash());
        let one = first(token);
        let two = after(one);
        let three = after(two);
        // As they come by here, which is not the order in which the store gave them.
        for answer in [three, one] {
            leases.reply_started(token, answer, TTL);
        }
        assert_eq!(leases.reply_lost(&token), None, "one is on its way");
        assert_eq!(
            leases.reply_lost(&token),
            None,
            "the second is not known yet"
        );
        leases.reply_started(token, two, TTL);
        assert_eq!(leases.reply_lost(&token), Some(three.keeper));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_of_which_somebody_has_heard_is_theirs_whatever_is_lost_later() {
        let (leases, token) = (LeaseRegistry::default(), Token::random().hash());
        let one = first(token);
        leases.reply_started(token, one, TTL);
        leases.reply_delivered(&token);
        leases.reply_started(token, after(one), TTL);
        assert_eq!(leases.reply_lost(&token), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_known_here_may_have_been_heard() {
        for before in [PriorReply::Unknown, PriorReply::Reply(KeeperId::random())] {
            let (leases, token) = (LeaseRegistry::default(), Token::random().hash());
            leases.reply_started(token, first(token), TTL);
            let keeper = KeeperId::random();
            leases.reply_started(token, LeaseReply { keeper, before }, TTL);
            for _ in 0..2 {
                assert_eq!(leases.reply_lost(&token), None);
            }
        }
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

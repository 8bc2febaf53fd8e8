//! The registry of the leases that were granted, renewed or answered by this gateway.

use std::{
    collections::HashMap,
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
    lock::{FencingToken, HeldLease, LockName, Metadata, Mode, Owner, TokenHash},
    store::{AnyStore, Store, contract::Holder},
};

use super::history::{Actor, LeaseFacts};

/// The leases that were granted, renewed or answered by this gateway and, as far as it knows, live.
///
/// The registry decides nothing about a lock. It tells how long a stopping gateway must stay, which releases are
/// accepted although their address has sent too many wrong tokens, and whether a lease was answered again. It has the
/// lease's slot among the leases of its API key, and the stream of this gateway that keeps the lease. A lease that
/// ended elsewhere stays listed until its time is over, and for a while after that, so that a holder that comes back
/// late is recognized.
#[derive(Debug, Default)]
pub(super) struct LeaseRegistry {
    shards: [Mutex<Shard>; SHARDS],
    /// Notified, while `is_watched` is set, when a stopping gateway may be able to stop sooner: a lease was removed,
    /// or its holder needs this gateway for a shorter time.
    shrunk: Arc<Notify>,
    /// Whether `shrunk`, which only a stopping gateway calls, was called. Before that no time is lost on notifying,
    /// which takes a mutex.
    is_watched: AtomicBool,
    /// While this flag is set, a lease whose TTL has run out stays listed until the store has said what became of the
    /// lease.
    keeps_run_out: AtomicBool,
    /// Whether the history records leases: then a recorded lease stays listed until its end was seen.
    is_recorded: AtomicBool,
}

/// Tells leases apart: a part of the hash of the token, from which no token can be found. Tags are random, so no two
/// living leases of a lock have the same tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct LeaseTag(pub(super) u64);

/// The key of a listed lease. The tag alone does not suffice, because the leases of a group have one token.
type LeaseKey = (LeaseTag, LockName);

/// A lease that was granted or renewed here.
#[derive(Debug)]
pub(super) struct RegisteredLease {
    pub(super) fence: FencingToken,
    pub(super) owner: Option<Owner>,
    pub(super) mode: Mode,
    /// When the lease was granted, for metrics and statistics only.
    pub(super) since: Instant,
    /// When the lease expires.
    pub(super) until: Instant,
    /// Whether the lease counts in the metrics of this gateway: it was granted here, or a stream of this gateway
    /// keeps it.
    is_counted: bool,
    /// Until when a stopping gateway stays for the holder of the lease.
    needed_until: Instant,
    /// When the lease was last granted or renewed here.
    seen: Instant,
    /// When a request under the lease's idempotency key was last answered with the lease.
    answered: Option<Instant>,
    /// Whether another gateway reports the end of the lease: that gateway has renewed the lease after this gateway,
    /// as far as is known.
    ends_elsewhere: bool,
    end_check: EndCheck,
    /// What the history will show of the beginning of the lease; `None` once that is recorded, or if another gateway
    /// records it.
    opening: Option<Opening>,
    /// Whether the history has still to see how the lease ends.
    is_end_due: bool,
    /// The lease's slot among the leases of its API key, if the key has a limit.
    slot: Option<LeaseSlot>,
    /// Sends news to the stream of this gateway that keeps the lease; `None` without such a stream, or after the news
    /// was sent.
    stream: Option<oneshot::Sender<Displaced>>,
}

/// What the history shows of the beginning of a lease, and no other operation needs.
#[derive(Debug, Clone)]
pub(super) struct Opening {
    pub(super) by: Option<Actor>,
    pub(super) waited: Duration,
    pub(super) metadata: Metadata,
}

/// The data of a lease that the history records. The lease may be over for this gateway.
#[derive(Debug)]
pub(super) struct RecordedLease {
    pub(super) fence: FencingToken,
    /// When the lease was granted.
    pub(super) since: Instant,
    /// When the lease would have expired, as far as this gateway knew.
    pub(super) until: Instant,
    /// What the lease was; `None` if that is recorded, or if another gateway records it.
    pub(super) facts: Option<Box<LeaseFacts>>,
}

/// Whether the store was asked what became of a lease that has run out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndCheck {
    /// The store has not been asked yet.
    Due,
    /// The store is being asked.
    Asked,
    /// The store need not be asked again: the end was reported, or this gateway does not report it.
    Done,
}

/// A lease whose TTL has run out, for asking the store what became of it. The lease itself stays in the registry.
#[derive(Debug)]
pub(super) struct RunOutLease {
    pub(super) tag: LeaseTag,
    pub(super) name: LockName,
    pub(super) fence: FencingToken,
    /// When the lease has run out.
    pub(super) until: Instant,
}

/// The store's answer about a lease that has run out.
#[derive(Debug)]
pub(super) enum LeaseCheck {
    /// The lease lives, for this long.
    Living(Duration),
    /// The lease does not hold the lock.
    Gone,
    /// The lease is not among the holders that the store shows, because other leases end sooner. If the lease lives,
    /// it was renewed at another gateway, and the event of that renewal is on its way.
    NotShown,
    /// The store did not answer, so the state of the lease is unknown.
    Unknown,
}

/// Why a stream must stop keeping its lease, or ask the store about it: what another client did to the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Displaced {
    /// Another request released the lease with its token.
    Released,
    /// Another stream of this gateway may have adopted the lease, or the lease is not listed any more; the store
    /// decides.
    Adopted,
    /// The lease may have been broken; the store decides.
    Broken,
}

/// The registration of a stream that keeps a lease: tells the stream at once what it would otherwise learn from its
/// next renewal. Dropping the entry removes the stream from the registry.
#[derive(Debug)]
pub(super) struct KeeperEntry {
    leases: Arc<LeaseRegistry>,
    key: LeaseKey,
    /// Receives one message when the stream is displaced, that is, when the lease was released, broken or adopted;
    /// `None` after that.
    news: Option<oneshot::Receiver<Displaced>>,
}

/// How many leases count at this gateway, in the metrics.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct CountedLeases {
    pub(super) all: usize,
    /// The number of these leases that share their lock.
    pub(super) shared: usize,
    /// The number of leases that are kept by a stream of this gateway.
    pub(super) held_by_streams: usize,
}

#[derive(Debug, Default)]
struct Shard {
    leases: HashMap<LeaseKey, RegisteredLease, BuildHasherDefault<TagHasher>>,
    /// How many leases this shard may list before expired leases are removed.
    sweep_at: usize,
}

/// Hashes a lease key to its tag, which is random already. The lock name adds nothing, because a group is small.
#[derive(Debug, Default)]
struct TagHasher(u64);

/// The number of shards of the registry, each with its own mutex: enough that two cores seldom lock the same shard.
const SHARDS: usize = 16;

/// How late a message of another gateway about a lease may arrive. Two gateways that renew a lease within this time
/// may both report its end, because otherwise each might leave the report to the other.
const NEWS_DELAY: Duration = Duration::from_secs(1);

/// A shard of the registry with no more leases than this is not worth a sweep for expired leases.
const SWEEP_FROM: usize = 64;

// === impl LeaseRegistry ===

impl LeaseRegistry {
    /// Lists a lease that was granted here, or renewed by a stream of this gateway. The lease counts here.
    pub(super) fn insert_counted(&self, token: TokenHash, name: &LockName, held: &HeldLease) {
        self.insert_as(true, token, name, held, None);
    }

    /// Lists a lease that is answered to its caller. The lease counts here if `counts`, and the history will show
    /// `opening`.
    pub(super) fn insert_answered(
        &self,
        counts: bool,
        (token, name): (TokenHash, &LockName),
        held: &HeldLease,
        opening: Opening,
    ) {
        self.insert_as(counts, token, name, held, Some(opening));
    }

    /// Lists a lease that was renewed or answered again here. The lease may count at another gateway, and does not
    /// begin to count here.
    pub(super) fn insert(&self, token: TokenHash, name: &LockName, held: &HeldLease) {
        self.insert_as(false, token, name, held, None);
    }

    fn insert_as(
        &self,
        counts: bool,
        token: TokenHash,
        name: &LockName,
        held: &HeldLease,
        opening: Option<Opening>,
    ) {
        let now = Instant::now();
        let until = now + held.left_at(now);
        let held_for = held.held_for + now.saturating_duration_since(held.as_of);
        let mut lease = RegisteredLease {
            fence: held.fence,
            owner: held.owner.clone(),
            mode: held.mode,
            since: now.checked_sub(held_for).unwrap_or(now),
            until,
            is_counted: counts,
            needed_until: until,
            seen: now,
            answered: None,
            ends_elsewhere: false,
            end_check: EndCheck::Due,
            opening,
            is_end_due: true,
            slot: None,
            stream: None,
        };
        let key = key(name, &token);
        let mut shard = self.shard(&key);
        if let Some(listed) = shard.leases.remove(&key) {
            lease.is_counted |= listed.is_counted;
            lease.answered = listed.answered;
            (lease.slot, lease.stream) = (listed.slot, listed.stream);
            lease.opening = listed.opening.or(lease.opening);
            if let Some(slot) = &lease.slot {
                slot.extend_until(until);
            }
        }
        shard.leases.insert(key, lease);
        self.sweep(&mut shard, now);
    }

    /// Counts the lease against the lease limit of an API key from now on; `None` if the key has no limit of leases,
    /// or the caller has no key.
    pub(super) fn charge(&self, name: &LockName, token: &TokenHash, slot: Option<LeaseSlot>) {
        self.with_lease(name, token, |lease| {
            // A request that is repeated under its idempotency key keeps the slot that its lease already has.
            if let (Some(listed), Some(slot)) = (&lease.slot, &slot)
                && listed.has_same_account(slot)
            {
                return;
            }
            if let Some(slot) = &slot {
                slot.extend_until(lease.until);
            }
            lease.slot = slot;
        });
    }

    /// Records that the lease is about to be answered under its idempotency key. Returns the time that
    /// `was_answered_since` compares.
    pub(super) fn answered(&self, name: &LockName, token: &TokenHash) -> Instant {
        let now = Instant::now();
        self.with_lease(name, token, |lease| lease.answered = Some(now));
        now
    }

    /// Whether the lease was answered under its idempotency key after this instant.
    pub(super) fn was_answered_since(
        &self,
        name: &LockName,
        token: &TokenHash,
        since: Instant,
    ) -> bool {
        self.with_lease(name, token, |lease| lease.answered > Some(since))
            .unwrap_or(false)
    }

    /// Registers a stream of this gateway as the keeper of the lease, and displaces an older stream. If the lease is
    /// not listed, the new stream is told at once.
    pub(super) fn keep(self: &Arc<Self>, name: LockName, token: TokenHash) -> KeeperEntry {
        let (sender, news) = oneshot::channel();
        let key = (LeaseTag::from(&token), name);
        if let Some(lease) = self.shard(&key).leases.get_mut(&key)
            && let Some(older) = lease.stream.replace(sender)
        {
            // Sending fails if the older stream has just ended, and then that stream need not be told.
            let _ = older.send(Displaced::Adopted);
        }
        KeeperEntry {
            leases: Arc::clone(self),
            key,
            news: Some(news),
        }
    }

    /// Tells the stream that keeps the lease, if there is one, that the lease may have been broken, or that its
    /// release was requested.
    pub(super) fn broken(&self, name: &LockName, token: &TokenHash) {
        let stream = self.with_lease(name, token, |lease| lease.stream.take());
        if let Some(stream) = stream.flatten() {
            let _ = stream.send(Displaced::Broken);
        }
    }

    /// Stops counting the lease here, because another stream has adopted it: the lease counts where that stream is.
    pub(super) fn adopted(&self, name: &LockName, token: &TokenHash) {
        self.with_lease(name, token, |lease| lease.is_counted = false);
    }

    /// Removes a lease whose end this registry need not report. A token that was tried on another lock does not
    /// remove its own lease.
    pub(super) fn remove(
        &self,
        name: &LockName,
        lease: impl Into<LeaseTag>,
    ) -> Option<RegisteredLease> {
        let key = key(name, lease);
        let removed = self.shard(&key).leases.remove(&key)?;
        self.notify();
        Some(removed)
    }

    /// Marks a lease as over for this gateway, because the lease is lost or the reaper will release it. While ends are
    /// reported the lease stays listed as run out, so that the store is asked what became of it.
    pub(super) fn lose(&self, name: &LockName, token: &TokenHash) -> Option<RecordedLease> {
        let key = key(name, token);
        let mut shard = self.shard(&key);
        let lease = shard.leases.get_mut(&key)?;
        let lost = lease.recorded();
        if self.keeps_run_out.load(Ordering::Relaxed) && lease.end_check != EndCheck::Done {
            // The end must be reported even if this function is called again and again, so the earliest time stays.
            let now = Instant::now();
            (lease.until, lease.needed_until) = (lease.until.min(now), now);
            (lease.is_counted, lease.slot, lease.stream) = (false, None, None);
            lease.is_end_due = false;
        } else {
            shard.leases.remove(&key);
        }
        drop(shard);
        self.notify();
        Some(lost)
    }

    /// Prepares the release of a lease whose caller has gone: the lease counts for no API key, and the gateway does
    /// not stay for its holder. A stream that keeps the lease is told when the lease is released.
    pub(super) fn give_up(&self, name: &LockName, token: &TokenHash) {
        self.charge(name, token, None);
        self.wait_at_most(name, token, Duration::ZERO);
    }

    /// Limits how long the gateway stays for this lease when it stops, unless the lease is renewed here, and
    /// notifies `shrunk`.
    pub(super) fn wait_at_most(&self, name: &LockName, token: &TokenHash, at_most: Duration) {
        self.with_lease(name, token, |lease| {
            lease.needed_until = lease.needed_until.min(Instant::now() + at_most);
        });
        self.notify();
    }

    /// Records that another gateway has renewed the lease and reports its end, unless the lease was renewed here at
    /// about the same time.
    pub(super) fn renewed_elsewhere(&self, name: &LockName, tag: LeaseTag) {
        self.with_lease(name, tag, |lease| {
            lease.ends_elsewhere |= lease.seen.elapsed() > NEWS_DELAY;
        });
    }

    /// Sets whether a lease that has run out stays listed until the store has said what became of it.
    pub(super) fn keep_run_out(&self, keeps: bool) {
        self.keeps_run_out.store(keeps, Ordering::Relaxed);
        // No question to the store is under way now. A lease whose answer was lost is asked about again.
        for shard in self.shards.iter().filter(|_| keeps) {
            let is_asked = |lease: &&mut RegisteredLease| lease.end_check == EndCheck::Asked;
            for lease in shard.lock().leases.values_mut().filter(is_asked) {
                lease.end_check = EndCheck::Due;
            }
        }
    }

    /// Returns the leases that had run out at `before`, each once, whose end no other gateway reports and that
    /// were granted or renewed here after `seen_since`.
    pub(super) fn check_run_out(
        &self,
        before: Instant,
        seen_since: Option<Instant>,
    ) -> Vec<RunOutLease> {
        let mut run_out = Vec::new();
        for shard in &self.shards {
            for ((tag, name), lease) in &mut shard.lock().leases {
                if lease.until > before || lease.end_check != EndCheck::Due {
                    continue;
                }
                lease.end_check = EndCheck::Done;
                if lease.reports_end(seen_since) {
                    lease.end_check = EndCheck::Asked;
                    run_out.push(RunOutLease::new(*tag, name, lease));
                }
            }
        }
        run_out
    }

    /// Keeps watching a lease that, as the store says, lives until `until`, unless the lease was renewed here
    /// meanwhile. The gateway stays for its holder no longer than before.
    pub(super) fn extend_run_out(&self, run_out: &RunOutLease, until: Instant) {
        self.with_lease(&run_out.name, run_out.tag, |lease| {
            if lease.end_check == EndCheck::Asked {
                (lease.until, lease.end_check) = (until, EndCheck::Due);
            }
        });
    }

    /// Ends the questions about a lease that has run out. Returns its owner and mode if this gateway reports its end:
    /// the lease was not renewed here or removed since the store was asked, and this gateway has heard of all ends at
    /// other gateways.
    pub(super) fn end_run_out(
        &self,
        run_out: &RunOutLease,
        seen_since: Option<Instant>,
    ) -> Option<(Option<Owner>, Mode)> {
        let ended = self.with_lease(&run_out.name, run_out.tag, |lease| {
            if lease.end_check != EndCheck::Asked {
                return None;
            }
            lease.end_check = EndCheck::Done;
            let reports = lease.reports_end(seen_since);
            reports.then(|| (lease.owner.clone(), lease.mode))
        });
        ended.flatten()
    }

    /// Says that the history records leases from now on.
    pub(super) fn record(&self) {
        self.is_recorded.store(true, Ordering::Relaxed);
    }

    /// Takes the leases about which the history has something to record, each once: leases that have lasted `after`,
    /// and recorded leases that had run out at `before`.
    pub(super) fn take_recordable(
        &self,
        after: Duration,
        before: Instant,
    ) -> (Vec<(LockName, RecordedLease)>, Vec<RunOutLease>) {
        let now = Instant::now();
        let (mut opened, mut run_out) = (Vec::new(), Vec::new());
        for shard in &self.shards {
            for ((tag, name), lease) in &mut shard.lock().leases {
                if lease.opening.is_some() && lease.since + after <= now.min(lease.until) {
                    opened.push((name.clone(), lease.recorded()));
                } else if lease.opening.is_none() && lease.is_end_due && lease.until <= before {
                    lease.is_end_due = false;
                    run_out.push(RunOutLease::new(*tag, name, lease));
                }
            }
        }
        (opened, run_out)
    }

    /// Lets the history look at a lease again: when it has run out, if the store says that it lives until `until`; else
    /// at its next look.
    pub(super) fn await_end(&self, run_out: &RunOutLease, until: Option<Instant>) {
        self.with_lease(&run_out.name, run_out.tag, |lease| {
            lease.until = until.map_or(lease.until, |until| lease.until.max(until));
            lease.is_end_due = true;
        });
    }

    /// Whether the lease lives, as far as this gateway knows.
    pub(super) fn is_listed(&self, name: &LockName, lease: impl Into<LeaseTag>) -> bool {
        self.with_lease(name, lease, |lease| lease.until > Instant::now())
            .unwrap_or(false)
    }

    /// Counts the living leases that were granted here or are kept by a stream of this gateway, as far as it knows.
    /// No other gateway counts the same leases, so the counts of all gateways add up.
    pub(super) fn counted(&self) -> CountedLeases {
        let mut counted = CountedLeases::default();
        self.for_each_active(|_, lease| {
            counted.all += usize::from(lease.is_counted);
            counted.shared += usize::from(lease.is_counted && lease.mode.is_shared());
            counted.held_by_streams += usize::from(lease.stream.is_some());
        });
        counted
    }

    /// How long the oldest living lease has been held; `None` if no lease lives.
    pub(super) fn longest_hold(&self) -> Option<Duration> {
        let mut oldest = None;
        self.for_each_active(|_, lease| {
            oldest = Some(oldest.map_or(lease.since, |oldest| lease.since.min(oldest)));
        });
        Some(Instant::now().saturating_duration_since(oldest?))
    }

    /// Until when the gateway stays for a holder of a lease; `None` if it need not stay.
    pub(super) fn needed_until(&self) -> Option<Instant> {
        let mut last = None;
        self.for_each_active(|_, lease| last = last.max(Some(lease.needed_until)));
        last.filter(|&until| until > Instant::now())
    }

    /// Ends when, after this call, a lease has ended before its time, or the gateway need not wait for it as long.
    pub(super) fn shrunk(&self) -> impl Future<Output = ()> + use<> {
        // The flag is set before the caller reads the leases. A removal after that read sees the flag, because both
        // lock the same shard.
        self.is_watched.store(true, Ordering::Release);
        Arc::clone(&self.shrunk).notified_owned()
    }

    fn notify(&self) {
        if self.is_watched.load(Ordering::Acquire) {
            self.shrunk.notify_waiters();
        }
    }

    /// Calls `each` for every lease that lives, as far as this gateway knows.
    pub(super) fn for_each_active(&self, mut each: impl FnMut(&LeaseKey, &RegisteredLease)) {
        let now = Instant::now();
        self.for_each(|key, lease| {
            if lease.until > now {
                each(key, lease);
            }
        });
    }

    /// Calls `each` for every listed lease, also if its time is over.
    pub(super) fn for_each(&self, mut each: impl FnMut(&LeaseKey, &RegisteredLease)) {
        for shard in &self.shards {
            let leases = &shard.lock().leases;
            for (key, lease) in leases {
                each(key, lease);
            }
        }
    }

    fn with_lease<T>(
        &self,
        name: &LockName,
        lease: impl Into<LeaseTag>,
        then: impl FnOnce(&mut RegisteredLease) -> T,
    ) -> Option<T> {
        let key = key(name, lease);
        self.shard(&key).leases.get_mut(&key).map(then)
    }

    fn shard(&self, (tag, _): &LeaseKey) -> MutexGuard<'_, Shard> {
        // The byte that chooses the shard is not among the bits that matter most for the position in the map of the
        // shard.
        let bits = tag.0.to_be_bytes()[1];
        self.shards[usize::from(bits) % SHARDS].lock()
    }

    /// Removes expired leases from a shard of the registry, if the shard has grown enough.
    fn sweep(&self, shard: &mut Shard, now: Instant) {
        if shard.leases.len() > shard.sweep_at.max(SWEEP_FROM) {
            let keeps = self.keeps_run_out.load(Ordering::Relaxed);
            let is_recorded = self.is_recorded.load(Ordering::Relaxed);
            let stays = |lease: &RegisteredLease| {
                lease.until > now
                    || keeps && lease.end_check != EndCheck::Done
                    || is_recorded && lease.opening.is_none() && lease.is_end_due
            };
            shard.leases.retain(|_, lease| stays(lease));
            // The next sweep comes when the number of leases has doubled, so that sweeping costs a fixed share of
            // granting.
            shard.sweep_at = 2 * shard.leases.len();
        }
    }
}

// === impl RegisteredLease ===

impl RegisteredLease {
    /// Whether this gateway reports the end of the lease: no other gateway does, and the lease was granted or renewed
    /// here after `seen_since`. Since then this gateway hears of all ends at other gateways.
    fn reports_end(&self, seen_since: Option<Instant>) -> bool {
        !self.ends_elsewhere && seen_since.is_some_and(|since| self.seen >= since)
    }

    /// The data of the lease for the history, which takes over what was not recorded yet.
    pub(super) fn recorded(&mut self) -> RecordedLease {
        let facts = self.opening.take().map(|opening| {
            let facts = LeaseFacts::new(self.mode, self.owner.as_ref(), &opening.metadata);
            Box::new(LeaseFacts {
                waited: u64::try_from(opening.waited.as_millis()).ok(),
                acquired_by: opening.by.map(|by| by.to_string()),
                ..facts
            })
        });
        RecordedLease {
            fence: self.fence,
            since: self.since,
            until: self.until,
            facts,
        }
    }

    /// Tells the stream that kept the lease, if there is one, that the lease was released with its token.
    pub(super) fn released(self) {
        if let Some(stream) = self.stream {
            let _ = stream.send(Displaced::Released);
        }
    }
}

// === impl RunOutLease ===

impl RunOutLease {
    fn new(tag: LeaseTag, name: &LockName, lease: &RegisteredLease) -> Self {
        Self {
            tag,
            name: name.clone(),
            fence: lease.fence,
            until: lease.until,
        }
    }

    /// Asks the store what became of the lease.
    pub(super) async fn check(&self, store: &AnyStore) -> LeaseCheck {
        let Ok(inspection) = store.inspect(&self.name).await else {
            return LeaseCheck::Unknown;
        };
        let Some(holder) = inspection.holder else {
            return LeaseCheck::Gone;
        };
        let (mut leases, count) = (holder.leases().iter(), holder.count());
        let shown = leases.len() as u64;
        // A rest has the fence of the lease that has ended.
        match leases.find(|it| it.fence == self.fence && !it.is_resting) {
            Some(lease) => LeaseCheck::Living(lease.expires_in),
            None if matches!(holder, Holder::Shared(_)) && count > shown => LeaseCheck::NotShown,
            None => LeaseCheck::Gone,
        }
    }
}

// === impl KeeperEntry ===

impl KeeperEntry {
    /// Waits until the lease is displaced, which happens once. The future may be dropped and the method called again.
    pub(super) async fn displaced(&mut self) -> Displaced {
        let Some(news) = &mut self.news else {
            return std::future::pending().await;
        };
        // The sender was dropped because the lease is not listed any more.
        let displaced = news.await.unwrap_or(Displaced::Adopted);
        self.news = None;
        displaced
    }

    /// Whether the stream was told that it is displaced; it gets no further messages.
    pub(super) fn is_displaced(&self) -> bool {
        self.news.is_none()
    }
}

impl Drop for KeeperEntry {
    fn drop(&mut self) {
        let Some(news) = &mut self.news else { return };
        news.close();
        if let Some(lease) = self.leases.shard(&self.key).leases.get_mut(&self.key) {
            // The sender of a newer stream with the same lease is still open, and stays.
            lease.stream.take_if(|stream| stream.is_closed());
        }
    }
}

// === impl LeaseTag ===

impl From<&TokenHash> for LeaseTag {
    fn from(token: &TokenHash) -> Self {
        let first = token.as_bytes().first_chunk();
        Self(u64::from_be_bytes(*first.expect("a hash has 32 bytes")))
    }
}

fn key(name: &LockName, lease: impl Into<LeaseTag>) -> LeaseKey {
    (lease.into(), name.clone())
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
mod tests;

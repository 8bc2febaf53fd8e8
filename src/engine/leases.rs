//! The registry of the leases that were granted, renewed or answered by this gateway.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hasher},
    sync::{
        Arc, OnceLock,
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
    lock::{
        FencingToken, HeldLease, HistoryEntry, LockName, MinHold, Mode, Owner, RecipientId, Said,
        TokenHash,
    },
};

pub(super) use run_out::RunOutLease;

use super::history::{Actor, RecordedLease, UnheardRelease, entry};

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
    /// How long a lease must last to be recorded by the history, if it is on: then a recorded lease stays listed until
    /// the store has said what became of it.
    recorded_after: OnceLock<Duration>,
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
    /// The hash of the token of the lease.
    token: TokenHash,
    pub(super) fence: FencingToken,
    pub(super) owner: Option<Owner>,
    pub(super) mode: Mode,
    /// When the lease was granted, for metrics and statistics only.
    pub(super) since: Instant,
    /// When the lease expires.
    pub(super) until: Instant,
    origin: Origin,
    ending: Ending,
    /// Whether the lease counts in the metrics of this gateway: it was granted here, or a stream of this gateway
    /// keeps it.
    is_counted: bool,
    /// Until when a stopping gateway stays for the holder of the lease.
    needed_until: Instant,
    /// When the lease was last granted or renewed here.
    seen: Instant,
    /// When a request under the lease's idempotency key was last answered with the lease.
    answered: Option<Instant>,
    /// The recipient that has last adopted the lease here, and when; `None` if none has.
    adopter: Option<Box<(RecipientId, Instant)>>,
    /// Whether another gateway reports the end of the lease: that gateway has renewed the lease after this gateway,
    /// as far as is known.
    ends_elsewhere: bool,
    /// Whether the store need not be asked what became of the lease: the end was reported, or no task reports it.
    is_end_known: bool,
    recording: Recording,
    /// When the history records the beginning of the lease, unless the lease has ended: later than `recorded_after`, so
    /// that most leases have one record.
    opens_at: Instant,
    presence: Presence,
    /// A release of the lease was sent, by this caller if it is known, and the store has not answered.
    unheard: Option<UnheardRelease>,
    /// The lease's slot among the leases of its API key, if the key has a limit.
    slot: Option<LeaseSlot>,
    /// Sends news to the stream of this gateway that keeps the lease; `None` without such a stream, or after the news
    /// was sent.
    stream: Option<oneshot::Sender<Displaced>>,
}

/// What a lease lasts by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    /// Renewals.
    Renewed,
    /// The time of its reservation.
    Reserved,
}

/// Which gateway has granted a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// This gateway has granted the lease, or was the first to answer it.
    Here,
    /// Another gateway has granted the lease, or an earlier run of this gateway.
    Elsewhere,
}

/// Whether the store has a lease whose time is not over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    /// As far as this gateway knows, the store has the lease.
    Held,
    /// The store has answered once that the lease is gone, and remembers no release.
    SeemsLost,
    /// The lease was gone before its time.
    Lost,
    /// A renewal or a release has found that the lease had run out.
    Gone,
}

/// What the history shows of the beginning of a lease, and no other operation needs.
#[derive(Debug, Clone)]
pub(super) struct Opening {
    pub(super) by: Option<Actor>,
    /// How long its request has waited; `None` if another gateway has granted the lease.
    pub(super) waited: Option<Duration>,
    pub(super) said: Said,
    /// Whether the lock may rest after the lease, which is then recorded however short it is.
    pub(super) may_rest: bool,
}

/// What the history knows of a lease.
#[derive(Debug)]
enum Recording {
    /// Nothing so far: this is to be shown of the beginning of the lease.
    Pending(Opening),
    /// The beginning of the lease, so that its end must be recorded, too.
    Begun,
    /// The lease is too young to be recorded, and the gateway that granted it counts it if it stays so.
    Elsewhere,
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
pub(super) struct RecipientEntry {
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
        self.insert_as(true, (token, name), held, None);
    }

    /// Lists a lease that was renewed or answered again here. The lease may count at another gateway, and does not
    /// begin to count here.
    pub(super) fn insert(&self, token: TokenHash, name: &LockName, held: &HeldLease) {
        self.insert_as(false, (token, name), held, None);
    }

    /// Lists a lease that the gateway has found in its own store when it started. The history records how it ends.
    pub(super) fn insert_found(&self, token: TokenHash, name: &LockName, held: &HeldLease) {
        let opening = Opening::unknown(held);
        self.insert_as(false, (token, name), held, Some(opening));
        self.wait_at_most(name, &token, Duration::ZERO);
    }

    /// Lists a lease. It counts here if `counts`; `opening` is what the history will show of a lease that is answered.
    pub(super) fn insert_as(
        &self,
        counts: bool,
        (token, name): (TokenHash, &LockName),
        held: &HeldLease,
        opening: Option<Opening>,
    ) {
        let now = Instant::now();
        let until = now + held.left_at(now);
        let held_for = held.held_for + now.saturating_duration_since(held.as_of);
        let mut lease = RegisteredLease {
            token,
            fence: held.fence,
            owner: held.said.owner.clone(),
            mode: held.mode,
            since: now.checked_sub(held_for).unwrap_or(now),
            until,
            origin: if counts && opening.is_some() {
                Origin::Here
            } else {
                Origin::Elsewhere
            },
            ending: match held.reservation {
                Some(_) => Ending::Reserved,
                None => Ending::Renewed,
            },
            is_counted: counts,
            // Nobody renews a reservation, so a stopping gateway does not stay for one.
            needed_until: held.reservation.as_ref().map_or(until, |_| now),
            seen: now,
            answered: None,
            adopter: None,
            ends_elsewhere: false,
            is_end_known: false,
            recording: opening.map_or(Recording::Elsewhere, Recording::Pending),
            opens_at: now + (held.left_at(now) / 2).min(run_out::OPENS_WITHIN),
            presence: Presence::Held,
            unheard: None,
            slot: None,
            stream: None,
        };
        let key = key(name, &token);
        let mut shard = self.shard(&key);
        if let Some(listed) = shard.leases.remove(&key) {
            if listed.origin == Origin::Here {
                lease.origin = Origin::Here;
            }
            lease.opens_at = lease.opens_at.min(listed.opens_at);
            lease.is_counted |= listed.is_counted;
            (lease.answered, lease.adopter) = (listed.answered, listed.adopter);
            (lease.slot, lease.stream) = (listed.slot, listed.stream);
            lease.recording = match listed.recording {
                Recording::Elsewhere => lease.recording,
                recording => recording,
            };
            if let Some(slot) = &lease.slot {
                slot.extend_until(until);
            }
        }
        // The gateway that granted a lease may be gone before it has recorded the beginning of the lease.
        let is_long = |after: &Duration| held_for >= *after;
        if matches!(lease.recording, Recording::Elsewhere)
            && self.recorded_after.get().is_some_and(is_long)
        {
            lease.recording = Recording::Pending(Opening::unknown(held));
        }
        shard.leases.insert(key, lease);
        self.sweep(&mut shard, now);
    }

    /// The owner of the lease, if this gateway knows it.
    pub(super) fn owner(&self, name: &LockName, token: &TokenHash) -> Option<Owner> {
        self.with_lease(name, token, |lease| lease.owner.clone())
            .flatten()
    }

    /// Whether this gateway has granted the lease, as far as it knows.
    pub(super) fn is_granted_here(&self, name: &LockName, token: &TokenHash) -> bool {
        self.with_lease(name, token, |lease| lease.origin == Origin::Here)
            .unwrap_or(false)
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

    /// Sets for how long from its grant the lease counts for its API key at least, because the lock rests after a
    /// release; `None`: it leaves no rest.
    pub(super) fn rest(&self, name: &LockName, token: &TokenHash, min_hold: Option<MinHold>) {
        self.with_lease(name, token, |lease| {
            if let Some(slot) = &lease.slot {
                slot.rest_until(min_hold.map(|it| lease.since + it.duration()));
            }
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

    /// Records that this recipient has adopted the lease: a stream, or a request under the lease's idempotency key.
    pub(super) fn adopted_by(&self, name: &LockName, token: &TokenHash, recipient: RecipientId) {
        let adopter = Some(Box::new((recipient, Instant::now())));
        self.with_lease(name, token, |lease| {
            // A recipient that is known already has kept the lease since then.
            if lease.adopter.as_ref().is_none_or(|it| it.0 != recipient) {
                lease.adopter = adopter;
            }
        });
    }

    /// The recipient that the lease had at this instant, as far as this gateway knows.
    pub(super) fn recipient(&self, name: &LockName, token: &TokenHash, at: Instant) -> RecipientId {
        let adopter = self.with_lease(name, token, |lease| lease.adopter.as_deref().copied());
        let adopter = adopter.flatten().filter(|(_, since)| *since <= at);
        adopter.map_or_else(
            || RecipientId::of_attempt(token),
            |(recipient, _)| recipient,
        )
    }

    /// Registers a stream of this gateway as the recipient of the lease, and displaces an older stream. If the lease is
    /// not listed, the new stream is told at once.
    pub(super) fn keep(self: &Arc<Self>, name: LockName, token: TokenHash) -> RecipientEntry {
        let (sender, news) = oneshot::channel();
        let key = (LeaseTag::from(&token), name);
        if let Some(lease) = self.shard(&key).leases.get_mut(&key)
            && let Some(older) = lease.stream.replace(sender)
        {
            // Sending fails if the older stream has just ended, and then that stream need not be told.
            let _ = older.send(Displaced::Adopted);
        }
        RecipientEntry {
            leases: Arc::clone(self),
            key,
            news: Some(news),
        }
    }

    /// Tells the stream that keeps the lease, if there is one, that the lease may have been broken, or that its
    /// release was requested. Without a stream, returns the fencing token of an exclusive lease, about which the store
    /// must be asked.
    pub(super) fn broken(&self, name: &LockName, token: &TokenHash) -> Option<FencingToken> {
        let (stream, fence) = self.with_lease(name, token, |lease| {
            let is_asked = lease.stream.is_none() && !lease.mode.is_shared();
            (lease.stream.take(), is_asked.then_some(lease.fence))
        })?;
        if let Some(stream) = stream {
            let _ = stream.send(Displaced::Broken);
        }
        fence
    }

    /// When the lease ends, as far as this gateway knows.
    pub(super) fn until(&self, name: &LockName, token: &TokenHash) -> Option<Instant> {
        self.with_lease(name, token, |lease| lease.until)
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

    /// Marks a lease as over for this gateway, because the store does not have it any more (`is_gone`), or because the
    /// reaper will release it and then tell of the release. While ends are reported or recorded, a lease that is gone
    /// stays listed as run out, so that the store is asked what became of it.
    pub(super) fn lose(
        &self,
        name: &LockName,
        token: &TokenHash,
        is_gone: bool,
    ) -> Option<RecordedLease> {
        let key = key(name, token);
        let mut shard = self.shard(&key);
        let lease = shard.leases.get_mut(&key)?;
        let lost = lease.recorded();
        let is_watched = self.keeps_run_out.load(Ordering::Relaxed) || self.is_recorded();
        if !is_gone || is_watched && !lease.is_end_known {
            // The end must be reported even if this function is called again and again, so the earliest time stays.
            let now = Instant::now();
            if is_gone {
                lease.presence = if lease.until > now {
                    Presence::Lost
                } else {
                    Presence::Gone
                };
            }
            (lease.until, lease.needed_until) = (lease.until.min(now), now);
            (lease.is_counted, lease.slot, lease.stream) = (false, None, None);
        } else {
            shard.leases.remove(&key);
        }
        drop(shard);
        self.notify();
        Some(lost)
    }

    /// Whether a renewal or a release has found before that the lease is gone; `None` if the lease is not listed.
    pub(super) fn was_gone(&self, name: &LockName, token: &TokenHash) -> Option<bool> {
        let is_gone =
            |lease: &mut RegisteredLease| matches!(lease.presence, Presence::Lost | Presence::Gone);
        self.with_lease(name, token, is_gone)
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
    }

    /// Says that the history records the leases that last this long.
    pub(super) fn record(&self, after: Duration) {
        self.recorded_after.get_or_init(|| after);
    }

    /// Whether the history records leases.
    pub(super) fn is_recorded(&self) -> bool {
        self.recorded_after.get().is_some()
    }

    /// Remembers a release of a lease that the store did not answer.
    pub(super) fn released_unheard(&self, name: &LockName, token: &TokenHash, by: Option<Actor>) {
        self.with_lease(name, token, |lease| {
            lease.unheard = Some(UnheardRelease(by));
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
        self.oldest(|_| true)
    }

    /// How long the oldest living lease has been held that is no reservation.
    pub(super) fn longest_renewed_hold(&self) -> Option<Duration> {
        self.oldest(|lease| lease.ending == Ending::Renewed)
    }

    fn oldest(&self, counts: impl Fn(&RegisteredLease) -> bool) -> Option<Duration> {
        let mut oldest = None;
        self.for_each_active(|_, lease| {
            if counts(lease) {
                oldest = Some(oldest.map_or(lease.since, |oldest| lease.since.min(oldest)));
            }
        });
        Some(Instant::now().saturating_duration_since(oldest?))
    }

    /// Until when the gateway stays for a holder of a lease; `None` if it need not stay.
    pub(super) fn needed_until(&self) -> Option<Instant> {
        let mut last = None;
        self.for_each_active(|_, lease| last = last.max(Some(lease.needed_until)));
        last.filter(|&until| until > Instant::now())
    }

    /// When the last of the leases ends that live and end before this time.
    pub(super) fn last_end_before(&self, time: Instant) -> Option<Instant> {
        let mut last = None;
        self.for_each_active(|_, lease| {
            last = last.max(Some(lease.until).filter(|until| *until < time));
        });
        last
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
            let is_recorded = self.is_recorded();
            let stays = |lease: &RegisteredLease| {
                let is_watched = keeps || is_recorded && lease.is_watched();
                lease.until > now || is_watched && !lease.is_end_known
            };
            shard.leases.retain(|_, lease| {
                let stays = stays(lease);
                // A lease that has run out leaves no rest.
                if let (false, Some(slot)) = (stays, &lease.slot) {
                    slot.rest_until(None);
                }
                stays
            });
            // The next sweep comes when the number of leases has doubled, so that sweeping costs a fixed share of
            // granting.
            shard.sweep_at = 2 * shard.leases.len();
        }
    }
}

// === impl Opening ===

impl Opening {
    /// The beginning of a lease that this gateway has not seen.
    fn unknown(lease: &HeldLease) -> Self {
        Self {
            by: None,
            waited: None,
            said: lease.said.clone(),
            may_rest: false,
        }
    }
}

// === impl RegisteredLease ===

impl RegisteredLease {
    /// What the history records of the lease; what it was, only if that is not recorded yet.
    pub(super) fn recorded(&self) -> RecordedLease {
        let mut lease = RecordedLease::from(self.fence);
        (lease.since, lease.until) = (Some(self.since), self.until);
        lease.unheard.clone_from(&self.unheard);
        lease.is_lost = self.presence == Presence::Lost;
        lease.owner.clone_from(&self.owner);
        if let Recording::Pending(opening) = &self.recording {
            lease.even_if_short = opening.may_rest;
            lease.entry = HistoryEntry {
                waited_ms: opening
                    .waited
                    .and_then(|it| u64::try_from(it.as_millis()).ok()),
                acquired_by: opening.by.as_ref().map(Actor::to_string),
                ..entry(self.fence, self.mode, &opening.said)
            };
        }
        lease
    }

    /// Whether the history has still to record the beginning of the lease.
    pub(super) fn opens(&self) -> bool {
        matches!(self.recording, Recording::Pending(_))
    }

    /// Whether the history records the lease although it is short, because the lock may rest after it.
    pub(super) fn may_rest(&self) -> bool {
        matches!(&self.recording, Recording::Pending(opening) if opening.may_rest)
    }

    /// Tells the stream that kept the lease, if there is one, that the lease was released with its token.
    pub(super) fn released(self) {
        if let Some(stream) = self.stream {
            let _ = stream.send(Displaced::Released);
        }
    }
}

// === impl RecipientEntry ===

impl RecipientEntry {
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

impl Drop for RecipientEntry {
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

mod run_out;
#[cfg(test)]
mod tests;

//! The contract that every store keeps, and the values in which it speaks.

use std::time::Duration;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use tokio::sync::broadcast;

use crate::{
    lock::{
        BreakTarget, Fingerprint, ForeignMark, HeldLease, HoldLimit, IdempotencyHash, KeeperId,
        LockName, Metadata, Owner, ReleaseRequest, Salt, Sharing, TokenHash, Ttl,
    },
    telemetry::metrics::StoreFigures,
};

use super::{
    StoreError,
    cursor::Cursor,
    list_filter::ListFilter,
    parking::{Parking, Position},
    partition::Partition,
};

/// A place where leases live.
///
/// Every clause is a conformance case that every store runs.
///
/// 1. **Exclusion.** Between a grant and its expiry, release or break, no other token is granted the
///    name; of a shared lease, no token that does not share it. At a grant with a limit fewer than that many
///    other leases live.
/// 2. **Fences rise.** Each new grant of a name carries a fencing token greater than every earlier
///    one: over release, expiry, break and restart.
/// 3. **Replay.** The same idempotency key returns the same lease while it lives, and is refused for
///    [`TOMBSTONE`] after its end. Repeating any command after a lost reply does no harm: an
///    acquire with the token of the living lease answers that lease again, an acquire whose token
///    was given back is never granted.
/// 4. **The store keeps time.** No decision depends on a gateway's clock. Whatever is left of a
///    lease is told relative to an instant of this gateway that is no later than the decision
///    ([`HeldLease::as_of`]), however late the answer comes. News of a grant are counted from the command
///    that was answered with them, too.
/// 5. **Errors tell what is known.** [`StoreError::Unavailable`]: nothing happened and nothing will.
///    [`StoreError::Indeterminate`]: it may have happened, or may yet happen. What only reads leaves nothing in
///    doubt: [`AnyStore`](super::AnyStore), by which all stores are asked, answers `Unavailable` there
///    ([`StoreError::of_read`]).
/// 6. **Order.** Attempts that wait for a name are granted it in the order in which they were queued,
///    whichever gateway queued them. An attempt that finds a free lock with a queue is queued, and
///    the head is granted.
/// 7. **Nobody waits for the dead.** An attempt that has left costs the others nothing. When a
///    gateway dies, all who waited through it delay the others by at most a few seconds in all.
/// 8. **No orphan.** [`Store::give_back`] ends the grant of an attempt whatever has become of it: a
///    grant that exists ends now, one that is still on its way will not come about. A lease that was
///    answered again under its idempotency key has a caller who may have heard of it, and one that
///    was adopted has a keeper: from then on it is not given back. (Who was answered it last, and knows that
///    none of the others has heard of it, releases it as its keeper.)
/// 9. **One keeper.** A lease is kept by the attempt that it was granted to, until somebody adopts it
///    ([`Renewer::Adopter`]) or is answered it under its idempotency key: from then on by the last
///    who did. Whoever renews or releases it as a keeper that it is not any more changes nothing, and
///    is told so. Who only has the token renews and releases it whoever keeps it, and does not become
///    its keeper. A store may forget who keeps what when every keeper has gone with it.
/// 10. **A list misses nothing.** A lock that is held throughout a walk through all pages, however
///     often its lease is renewed or passes on, is on one of them at least, whichever gateways are
///     asked for the pages. What has ended is on none. The work for a page is bounded, so a page may
///     be short, or empty, and still have another behind it.
/// 11. **What is broken stays broken.** [`Store::break_lock`] ends whatever holds the lock, a foreign
///     client's hold included, and passes the lock on. With a fencing token it ends the lease with
///     this one and no other, with a mark what a foreign client has written that has this one. For [`TOMBSTONE`] its token is told that the lease was broken
///     ([`Loss::Broken`]), its idempotency key is refused, and a late copy of its acquire is not
///     granted. Repeated after a lost reply it ends no other lease.
///
/// 12. **Slots are distinct.** A lease of an attempt with a limit of its own has the smallest slot that no living
///     lease of the name has, below that limit.
///
/// 13. **A request to release is carried out.** A lease whose holder was asked ([`Store::request_release`]) ends when
///     the time for that is over (and [`ReleaseRequest::BACKSTOP`]), whoever renews it and whatever becomes of the
///     gateway that asked; the earliest end counts. It is told with the lease, at each renewal. After such an end its token is told that the lease was
///     broken.
///
/// Clauses 2 to 13 hold for shared leases as for exclusive ones: each has a token, a fencing token, a TTL, a
/// keeper and an idempotency key of its own. The queue is one, and strictly in order (clause 6): no attempt passes
/// the head, whatever either of them wants. Whatever frees a place, or removes the head, grants the next as long
/// as they may hold the lock.
///
/// The token is minted per attempt, so its hash is also the identity of the attempt.
///
/// A store resends a command whose reply was lost by itself, within a deadline of its own; callers
/// need not. Every method may be dropped half-way: the command is then carried out or not, as if
/// the reply had been lost.
pub trait Store: Send + Sync + 'static {
    /// Grants the lock to an attempt if it is free and nobody is queued for it.
    ///
    /// An attempt that waits must have its place in [`Store::parking`] before it is sent here; it is
    /// queued if it cannot be granted at once, and hears there what becomes of it. Sent again with
    /// the idempotency key of an attempt that is queued, it takes over that one's position.
    ///
    /// With an idempotency key: answers the lease that lives under this key, or says that the key
    /// has been used. One that does not wait and is not granted gives up the position that is kept
    /// under its key; whoever still waits there is told that it was superseded.
    fn acquire(
        &self,
        attempt: &Attempt,
    ) -> impl Future<Output = Result<Acquisition, StoreError>> + Send;

    /// Makes a provisional grant the attempt's own, with its full TTL, just before it is answered.
    fn confirm(
        &self,
        name: &LockName,
        token: &TokenHash,
    ) -> impl Future<Output = Result<Confirmation, StoreError>> + Send;

    /// Takes an attempt out of the queue because its wait is over.
    ///
    /// With `keep_for` (attempts with an idempotency key only) the position is kept for that long for
    /// a request that asks again; a grant that falls due meanwhile lasts no longer unless it does. The
    /// attempt itself is over then: a copy of one of its commands that arrives late neither makes the grant
    /// last longer nor takes the place.
    fn leave(
        &self,
        name: &LockName,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> impl Future<Output = Result<Leaving, StoreError>> + Send;

    /// Makes a living lease last for its TTL from now, and stores the TTL. Never resurrects an ended lease, never goes
    /// past its hold limit or beyond its release request, and never makes a lease end earlier: with a shorter TTL the
    /// lease keeps its end.
    ///
    /// `renewer` says who renews the lease, and so who keeps it from now on (clause 9).
    fn renew_as(
        &self,
        renewer: Renewer,
        name: &LockName,
        token: &TokenHash,
        ttl: RenewalTtl,
    ) -> impl Future<Output = Result<Renewal, StoreError>> + Send;

    /// Ends a living lease: with `keeper`, only if that one still keeps it (clause 9). Repeated within
    /// [`TOMBSTONE`] for a lease that was acquired with an idempotency key it answers
    /// [`Release::Released`] again.
    fn release_as(
        &self,
        keeper: Option<KeeperId>,
        name: &LockName,
        token: &TokenHash,
    ) -> impl Future<Output = Result<Release, StoreError>> + Send;

    /// Renews a lease by its token alone.
    fn renew(
        &self,
        name: &LockName,
        token: &TokenHash,
        ttl: Option<Ttl>,
    ) -> impl Future<Output = Result<Renewal, StoreError>> + Send {
        self.renew_as(Renewer::Bearer, name, token, ttl.into())
    }

    /// Ends a lease by its token alone.
    fn release(
        &self,
        name: &LockName,
        token: &TokenHash,
    ) -> impl Future<Output = Result<Release, StoreError>> + Send {
        self.release_as(None, name, token)
    }

    /// Makes sure that an attempt which nobody waits for any more holds nothing (clause 8).
    fn give_back(
        &self,
        name: &LockName,
        token: &TokenHash,
    ) -> impl Future<Output = Result<GiveBack, StoreError>> + Send;

    /// The same for an attempt whose grant was answered to nobody: its idempotency key stays usable, for an attempt
    /// with another token. Only its keeper may know that, so whether `keeper` is the one decides whether it is kept.
    fn give_back_unanswered(
        &self,
        name: &LockName,
        token: &TokenHash,
        keeper: KeeperId,
    ) -> impl Future<Output = Result<GiveBack, StoreError>> + Send;

    /// Shows who holds the lock.
    fn inspect(
        &self,
        name: &LockName,
    ) -> impl Future<Output = Result<Inspection, StoreError>> + Send;

    /// Shows locks that are held, in no order: a part of them at a time (clause 10).
    fn list(&self, query: &ListQuery) -> impl Future<Output = Result<Page, StoreError>> + Send;

    /// Whether a lock may be shared here. If not, no attempt that wants to share one is sent.
    fn shares(&self) -> bool {
        true
    }

    /// Takes a lock away from whoever holds it: with `target`, only if that is what holds it (clause 11). Of a lock
    /// that is shared the target must say which lease is meant, or all.
    fn break_lock(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
    ) -> impl Future<Output = Result<Breaking, StoreError>> + Send;

    /// Asks whoever holds the lock to release it within a time, and lets the lease end when that is over (clause 13).
    /// The target as for a break. A foreign client cannot be asked.
    ///
    /// May be repeated: of several requests the one with the earliest end counts.
    fn request_release(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
        request: &ReleaseRequest,
    ) -> impl Future<Output = Result<Requesting, StoreError>> + Send;

    /// Where this process hears which leases were broken, or are asked for; not at all if the word of it is lost.
    fn breaks(&self) -> &BreakFeed;

    /// Where the attempts of this process wait for news from the queue.
    fn parking(&self) -> &Parking;

    /// The part of the store that has a lock: what is away there holds up nothing at another.
    fn partition(&self, _name: &LockName) -> Partition {
        Partition::WHOLE
    }

    /// How to hear of events at other gateways on the store; `None` if there are none.
    fn relay(&self) -> Option<&dyn Relay> {
        None
    }

    /// Finds out whether the store can keep its promises now. Each finding has a name.
    fn check(&self) -> impl Future<Output = Vec<Check>> + Send;

    /// What there is to see of the store that nobody counts. Asks nobody.
    fn figures(&self) -> StoreFigures {
        StoreFigures::default()
    }

    /// Finishes what was accepted and lets go of files and connections. Later calls answer
    /// [`super::Unavailability::Closing`].
    fn close(&self) -> impl Future<Output = ()> + Send;

    /// What this store is, for the start-up message: never with a password.
    fn describe(&self) -> String;
}

/// How long the end of a lease with an idempotency key is remembered, and how long an attempt that
/// was given back is refused. Longer than any request is resent or any proxy retries.
pub const TOMBSTONE: Duration = Duration::from_mins(1);

/// One run of the acquire protocol.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The lock that is wanted.
    pub name: LockName,
    /// The hash of the token that a lease of its own will have; the identity of the attempt.
    pub token: TokenHash,
    /// How long the grant lasts.
    pub ttl: Ttl,
    /// How long the lease may be kept with renewals, from its grant.
    pub hold_limit: Option<HoldLimit>,
    /// How the attempt wants to share the lock; `None`: it wants to be alone.
    pub sharing: Option<Sharing>,
    /// Who asks.
    pub owner: Option<Owner>,
    /// What to attach.
    pub metadata: Metadata,
    /// Present if the request carried an idempotency key.
    pub idempotency: Option<Idempotency>,
    /// Present if the attempt wants to stand in the queue.
    pub wait: Option<Waiting>,
}

/// How an attempt wants to stand in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// For how long at most. The attempt leaves by itself then; a store may forget it soon after.
    pub max_wait: Duration,
    /// How many may be queued for the name, this attempt included.
    pub longest_queue: u64,
}

/// What a store keeps of an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// Recognises the key.
    pub hash: IdempotencyHash,
    /// Recognises the request that was made with it.
    pub fingerprint: Fingerprint,
    /// What the token of this attempt was derived with; kept with the lease.
    pub salt: Salt,
}

/// The answer to an acquire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquisition {
    /// This attempt holds the lock, by a new lease.
    Granted(HeldLease),
    /// This attempt holds the lock by the lease that already lived under its idempotency key. The
    /// lease's token is the one derived with this salt.
    Replayed(HeldLease, Salt),
    /// The lease with the token of this salt, of a lease that was granted to the place that was kept under the key, or through
    /// another gateway that has not confirmed it: nobody has heard of it before. And how long the place had stood in
    /// the queue by now, if the store knows that.
    Collected(HeldLease, Salt, Duration),
    /// Somebody else holds the lock, or is about to: those before us in the queue.
    Held(Contention),
    /// The attempt stands in the queue.
    Queued(QueuePosition),
    /// As many attempts are queued for this name as are allowed.
    QueueFull,
    /// A newer request with the same idempotency key has its place, or keeps its lease; or the attempt has
    /// left, and its place is kept for such a request.
    Superseded,
    /// A lease, or a place in the queue, was asked for under this idempotency key in other words.
    IdempotencyMismatch,
    /// The lease under this idempotency key has ended.
    IdempotencyExpired,
}

/// What stands between an attempt and a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contention {
    /// Who holds it; `None` in the moment in which it passes to the head of the queue.
    pub holder: Option<Holder>,
    /// How many attempts are queued for it.
    pub waiters: u64,
}

/// A position in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuePosition {
    /// How many are queued before this one.
    pub ahead: u64,
    /// How long the place has stood in the queue: longer than its attempt, if that has taken it over under its
    /// idempotency key.
    pub waited: Duration,
    /// What it waits for.
    pub contention: Contention,
}

/// The answer to a confirm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confirmation {
    /// The lease is the attempt's own.
    Confirmed(HeldLease),
    /// It came too late: the grant has passed on.
    Lost,
    /// A newer request with the same key was answered the lease, and keeps it.
    Superseded,
}

/// The answer to a leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leaving {
    /// The attempt is not queued any more, or keeps its position without anybody waiting.
    Left(Contention),
    /// It had been granted the lock already, and holds it.
    Granted(HeldLease),
    /// A newer request with the same idempotency key has its place, or keeps its lease.
    Superseded,
}

/// Who holds a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// A lease of ours.
    Lease(HeldLease),
    /// A client that took the lock in the store itself, without a gateway.
    Foreign {
        /// What is left of it; `None` if it has no expiry.
        expires_in: Option<Duration>,
        /// What it has written; `None` if that is nothing that a client writes into a lock.
        mark: Option<ForeignMark>,
    },
    /// Leases of ours that share it.
    Shared(SharedHolders),
}

/// The leases that share a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedHolders {
    /// At most [`SHOWN_HOLDERS`] of them, those first that end soonest. What was broken is shown whole. May be
    /// empty in the answer to an attempt that is queued.
    pub leases: Vec<HeldLease>,
    /// How many they are.
    pub count: u64,
}

/// How many of the leases that share a lock are shown.
pub const SHOWN_HOLDERS: usize = 100;

/// Who renews a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewer {
    /// Whoever has its token. Who keeps the lease stays as it is.
    Bearer,
    /// The keeper of the lease, if it still is that.
    Keeper(KeeperId),
    /// Somebody who keeps the lease from now on. Repeated with the same id it does nothing more, even
    /// where a copy arrives late: whoever has adopted the lease since goes on with it.
    Adopter(KeeperId),
}

/// The TTL that a renewal gives a lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RenewalTtl {
    /// The TTL that the caller asks for; `None`: the lease's own.
    pub asked: Option<Ttl>,
    /// The longest TTL that the caller may have. A longer one, the lease's own too, becomes this one.
    pub max: Option<Ttl>,
}

/// The answer to a renew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewal {
    /// The lease was renewed. The duration is what was left of the lease before.
    Renewed(HeldLease, Duration),
    /// Another keeper goes on with the lease, which is as it was. A bearer is never answered so.
    Adopted,
    /// The token does not hold the lock.
    Lost(Loss),
}

/// The answer to a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Release {
    /// The lease has ended, now or by an earlier copy of this command.
    Released,
    /// Another keeper goes on with the lease, which is as it was. Only a keeper is answered so.
    Adopted,
    /// The token does not hold the lock.
    Lost(Loss),
}

/// What is known of the lock that a token does not hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Somebody else holds it now.
    HeldByAnother,
    /// It is free.
    Free,
    /// Somebody broke the lease of this token, within [`TOMBSTONE`].
    Broken {
        /// Whether somebody else holds the lock now.
        held: bool,
    },
}

/// The answer to a give-back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GiveBack {
    /// The attempt held the lock; its lease has ended.
    GivenBack,
    /// The attempt holds nothing, and never will.
    NothingHeld,
    /// Somebody else keeps the lease of the attempt, or was answered it, and goes on with it.
    Kept,
}

/// The answer to an inspect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// Who holds the lock, if anybody does.
    pub holder: Option<Holder>,
    /// The queue, head first: at most [`INSPECTED_WAITERS`] of it.
    pub queue: Vec<Waiter>,
    /// How many are queued in all.
    pub waiters: u64,
}

/// How much of a queue an inspect shows.
pub const INSPECTED_WAITERS: usize = 100;

/// One of those who are queued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter {
    /// Who waits.
    pub owner: Option<Owner>,
    /// How it wants to share the lock; `None`: it wants to be alone.
    pub sharing: Option<Sharing>,
    /// For how long already.
    pub waited: Duration,
}

impl From<&QueuePosition> for Position {
    fn from(place: &QueuePosition) -> Self {
        Self {
            ahead: place.ahead,
            waiters: place.contention.waiters,
        }
    }
}

// === Breaks ===
//
// What becomes of a break, and the word of it for those of this process who keep the lease.

/// The answer to a break.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Breaking {
    /// This held the lock until now, as it was last seen.
    Broken(Holder),
    /// Something else holds the lock than what was to be broken.
    HolderChanged(Holder),
    /// Several may hold the lock, and it was not said which is meant.
    Ambiguous(SharedHolders),
    /// Nobody holds the lock.
    NotHeld,
}

/// The answer to a request to release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requesting {
    /// These were asked, and last as long as is told here.
    Requested(Holder),
    /// Something else holds the lock than what was meant.
    HolderChanged(Holder),
    /// Several may hold the lock, and it was not said which is meant.
    Ambiguous(SharedHolders),
    /// A client holds it that uses no gateway.
    Foreign(Holder),
    /// Nobody holds the lock.
    NotHeld,
}

/// Where the word goes that leases were broken, or that their holders are asked to release them. Cheap to clone.
///
/// It is a hint: it may be lost, and whoever hears it asks the store.
#[derive(Debug, Clone)]
pub struct BreakFeed {
    sender: broadcast::Sender<BrokenLease>,
}

/// A lease that was broken, or whose holder is asked to release it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenLease {
    /// The lock that it held.
    pub name: LockName,
    /// The hash of its token.
    pub token: TokenHash,
}

/// Hears of leases that are broken from now on.
#[derive(Debug)]
pub struct BreakListener {
    receiver: broadcast::Receiver<BrokenLease>,
}

/// How many may be broken before those are forgotten that were not heard of yet: as many as may share a lock by
/// default, and are broken at once.
const BACKLOG: usize = 1_024;

// === impl RenewalTtl ===

impl RenewalTtl {
    /// The TTL that a lease has after the renewal, given its own.
    pub fn applied_to(self, own: Ttl) -> Ttl {
        let ttl = self.asked.unwrap_or(own);
        self.max.map_or(ttl, |max| ttl.min(max))
    }
}

impl From<Option<Ttl>> for RenewalTtl {
    fn from(asked: Option<Ttl>) -> Self {
        Self { asked, max: None }
    }
}

// === impl Holder ===

impl Holder {
    /// Whether a list with this filter shows the lock, whose name begins as it says.
    pub fn is_shown(&self, name: &LockName, filter: &ListFilter) -> bool {
        match self {
            Self::Lease(lease) => shows_lease(filter, name, lease),
            // Any of those that are seen.
            Self::Shared(holders) => {
                let mut leases = holders.leases.iter();
                leases.any(|lease| shows_lease(filter, name, lease))
            }
            Self::Foreign { .. } => filter.shows(name, None, None),
        }
    }

    /// The leases that are seen to hold the lock.
    pub fn leases(&self) -> &[HeldLease] {
        match self {
            Self::Lease(lease) => std::slice::from_ref(lease),
            Self::Shared(holders) => &holders.leases,
            Self::Foreign { .. } => &[],
        }
    }

    /// The same, to change what is told of them.
    pub fn leases_mut(&mut self) -> &mut [HeldLease] {
        match self {
            Self::Lease(lease) => std::slice::from_mut(lease),
            Self::Shared(holders) => &mut holders.leases,
            Self::Foreign { .. } => &mut [],
        }
    }

    /// How many hold the lock.
    pub fn count(&self) -> u64 {
        match self {
            Self::Lease(_) | Self::Foreign { .. } => 1,
            Self::Shared(holders) => holders.count,
        }
    }
}

fn shows_lease(filter: &ListFilter, name: &LockName, lease: &HeldLease) -> bool {
    filter.shows(name, lease.owner.as_ref(), Some(&lease.metadata))
}

// === impl BreakFeed ===

impl BreakFeed {
    /// Tells those who listen now.
    pub fn publish(&self, broken: BrokenLease) {
        // An error: nobody listens.
        drop(self.sender.send(broken));
    }

    /// Listens from now on.
    pub fn listen(&self) -> BreakListener {
        let receiver = self.sender.subscribe();
        BreakListener { receiver }
    }
}

impl Default for BreakFeed {
    fn default() -> Self {
        let (sender, _nobody) = broadcast::channel(BACKLOG);
        Self { sender }
    }
}

// === impl BreakListener ===

impl BreakListener {
    /// The next one; `None` when there will be no more. Safe to drop and call again.
    pub async fn recv(&mut self) -> Option<BrokenLease> {
        loop {
            match self.receiver.recv().await {
                Ok(broken) => return Some(broken),
                // Those are found out with their next renewal.
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

// === Page ===
//
// A list of held locks, a page at a time.

/// Which locks are to be shown.
#[derive(Debug, Clone)]
pub struct ListQuery {
    /// What they must be like.
    pub filter: ListFilter,
    /// How many on one page, from 1 to [`LONGEST_PAGE`]. Below 20 a page of Redis may have a few more: a server shows some
    /// locks together.
    pub limit: usize,
    /// Where the page before ended. One that another kind of store gave, or a server that is not
    /// there any more, begins the walk anew.
    pub cursor: Option<Cursor>,
}

/// The most that may be asked for on one page.
pub const LONGEST_PAGE: usize = 1_000;

/// The answer to a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Locks that are held. One that was on an earlier page may come again.
    pub locks: Vec<HeldLock>,
    /// Where the next page begins; `None`: there is no more.
    pub next: Option<Cursor>,
}

/// A lock that somebody holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLock {
    /// The lock.
    pub name: LockName,
    /// Who holds it.
    pub holder: Holder,
    /// How many wait for it, as an inspect counts them. Not of the same instant as the rest.
    pub waiters: u64,
}

// === Check ===
//
// What a store finds out about whether it can keep its promises.

/// One finding of [`Store::check`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What was looked at, as a stable name in lower case: `connection`, `permissions`, ..
    pub name: &'static str,
    /// What was found.
    pub health: Health,
    /// What else there is to know, where all is as it should be.
    pub note: Option<String>,
    /// For how long at least locks are granted to nobody because of it; `None` if that is not known, or
    /// they are.
    pub refuses_for: Option<Duration>,
}

impl Check {
    /// A check of which there is nothing else to know.
    pub fn new(name: &'static str, health: Health) -> Self {
        Self {
            name,
            health,
            note: None,
            refuses_for: None,
        }
    }
}

/// The outcome of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// As it should be.
    Passing,
    /// Locks are safe, but somebody should look.
    Warning(String),
    /// The store does not answer. A gateway stays in service through this: every other gateway on
    /// the store would see the same.
    Outage(String),
    /// The store is not configured so that it can keep its promises.
    Misconfigured(String),
}

// === Relay ===
//
// How the gateways on one store tell each other what has happened.

/// Carries news between the gateways on one store, as far as it can: what is on its way when a
/// connection is lost is lost with it, and nothing is sent twice.
///
/// Nothing is decided by such news. A gateway sends them only while somebody has asked for them.
#[async_trait]
pub trait Relay: Send + Sync {
    /// Asks all other gateways to send their news for as long as this.
    async fn ask(&self, lasts: Duration) -> Result<(), StoreError>;

    /// Ends when another gateway has asked for news, with for how long. Calls before the first wait
    /// miss nothing but what is asked again.
    async fn asked(&self) -> Duration;

    /// Sends a batch of news to all other gateways that listen.
    async fn send(&self, batch: &str) -> Result<(), StoreError>;

    /// Listens to the batches of all other gateways, until the stream ends because the connection
    /// was lost.
    async fn listen(&self) -> Result<BoxStream<'static, String>, StoreError>;
}

#[cfg(test)]
mod tests {
    use crate::lock::Token;

    use super::*;

    fn broken(name: &str) -> BrokenLease {
        BrokenLease {
            name: LockName::new(name).unwrap(),
            token: Token::random().hash(),
        }
    }

    #[tokio::test]
    async fn whoever_listens_hears_what_is_broken_from_then_on_but_the_oldest_of_too_many() {
        let breaks = BreakFeed::default();
        breaks.publish(broken("before"));
        let mut listener = breaks.listen();
        let all: Vec<_> = (0..=BACKLOG).map(|n| broken(&n.to_string())).collect();
        for one in &all {
            breaks.publish(one.clone());
        }
        drop(breaks);
        for expected in &all[1..] {
            assert_eq!(listener.recv().await.as_ref(), Some(expected));
        }
        assert_eq!(listener.recv().await, None);
    }
}

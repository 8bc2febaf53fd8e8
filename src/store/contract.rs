//! The contract that every store keeps, and the types of its commands and answers.

use std::time::Duration;

use async_trait::async_trait;
use tokio::{sync::OwnedSemaphorePermit, time::Instant};

use crate::{
    lock::{
        BreakTarget, FencingToken, Fingerprint, ForeignMark, HeldLease, IdempotencyHash, LockName,
        Metadata, Owner, RecipientId, ReleaseRequest, Salt, Sharing, Terms, TokenHash, Ttl,
    },
    telemetry::{metrics::StoreFigures, trace::SpanKind},
};

pub use super::break_feed::{BreakFeed, BreakListener, BrokenLease};
pub use super::check::{Check, Health};
pub use super::feature::StoreFeature;
pub use super::order::{GrantedOrder, OrderChange, OrderGrant, OrderSetting, Superseding};

use super::{
    StoreError,
    cursor::Cursor,
    history::{EndedLease, HistoryBatch, StoredHistory},
    list_filter::{Found, ListFilter, Shown},
    parking::{Parking, Position},
    partition::Partition,
    relay::Relay,
};

/// A store of leases: the embedded store, Redis, or a quorum of Redis servers.
///
/// Each clause has conformance cases that every store runs.
///
/// 1. **Exclusion.** Between a grant and its expiry, release or break, no other token is granted the name; if
///    the lease is shared, no token that does not share the lock. An attempt with a limit is granted only while
///    fewer other leases than that limit live.
/// 2. **Fences rise.** Each new grant of a name carries a fencing token greater than every earlier
///    one: over release, expiry, break and restart.
/// 3. **Replay.** The same idempotency key returns the same lease while the lease lives, and is refused for
///    [`TOMBSTONE`] after its end. Repeating any command after a lost reply does no harm: an acquire with the
///    token of the living lease is answered that lease again, an acquire whose token was given back is never
///    granted.
/// 4. **The store keeps time.** No decision depends on a gateway's clock. The remaining time of a lease is
///    given relative to an instant of this gateway that is no later than the decision ([`HeldLease::as_of`]),
///    however late the answer arrives. The same holds for a grant that arrives as news: its times count from
///    the command whose answer carried the news.
/// 5. **Errors tell what is known.** [`StoreError::Unavailable`]: the command was not carried out and never
///    will be. [`StoreError::Indeterminate`]: the command may have been carried out, or may yet be. A command
///    that only reads is never in doubt: [`AnyStore`](super::AnyStore), through which all stores are called,
///    answers `Unavailable` for it ([`StoreError::of_read`]).
/// 6. **Order.** Attempts that wait for a name are granted the lock in the order in which they were queued,
///    whichever gateway queued them. An attempt that finds a free lock with a queue is queued, and the head of
///    the queue is granted the lock.
/// 7. **Nobody waits for the dead.** An attempt that has left the queue costs the other waiters nothing. When a
///    gateway dies, all waiters of that gateway delay the others by at most a few seconds in all.
/// 8. **No orphan.** [`Store::give_back`] ends the grant of an attempt in every state: a grant that exists ends
///    now, a grant that is still on its way never comes about. Two kinds of leases are not given back: a lease
///    that was answered again under its idempotency key, because a caller may know of it, and a lease that was
///    adopted, because it has another recipient. (The caller that was answered the lease last, and knows that no
///    other caller was told of it, releases it as its recipient.)
/// 9. **One recipient.** The recipient of a lease is the attempt that was granted it. When the lease is adopted
///    ([`Renewer::Adopter`]), or answered again under its idempotency key, the adopter or the new attempt
///    becomes the recipient; the last of them counts. A former recipient that renews or releases the lease as its
///    recipient changes nothing, and is told so. A caller that has only the token renews and releases the lease
///    in every case, and does not become its recipient. If all recipients end together with a store (a store in the
///    same process), the store may forget them.
/// 10. **A list misses nothing.** A lock that is held throughout a walk through all pages is on at least one of
///     them, however often its lease is renewed or passes on, and whichever gateways are asked for the pages. A
///     lease that has ended is on no page. The work for a page is bounded, so a page may be short, or empty,
///     and still have another page after it.
/// 11. **What is broken stays broken.** [`Store::break_lock`] ends every lease that holds the lock, or the hold
///     of a foreign client, and passes the lock on. With a fencing token it ends only the lease with this
///     fencing token, with a mark only the value of a foreign client that has this mark. For [`TOMBSTONE`] the
///     token of the lease is told that the lease was broken ([`Loss::Broken`]), its idempotency key is refused,
///     and a late copy of its acquire is not granted. A break that is repeated after a lost reply ends no other
///     lease.
/// 12. **Slots are distinct.** The lease of a shared attempt with a limit of its own has the smallest slot that
///     no living lease of the name has, below that limit.
/// 13. **A request to release is carried out.** A lease whose holder was asked to release it
///     ([`Store::request_release`]) ends when the time of the request is over (and [`ReleaseRequest::BACKSTOP`]),
///     even if the lease is renewed or the gateway that asked is gone; the earliest end counts. Each renewal
///     answers the request with the lease. After such an end the token of the lease is told that the lease was
///     broken.
/// 14. **A check proves a living lease.** [`Store::check_fence`] answers [`FenceCheck::Held`] for the fencing token
///     of every lease that a caller has been answered and that lives, and for no other number: not for a lease that
///     has ended, for a rest, for a provisional grant, for a grant to a kept position, or for the lock of a foreign
///     client. A check changes nothing.
/// 15. **A lock rests for its minimum hold.** If a lease with a minimum hold ([`Terms::min_hold`]) is released
///     before this time is over, its token is dead like that of any released lease, and a *rest* takes the place of the
///     lease: the lock, or the slot, counts as held by a lease with the same fencing token until the time is over. Only
///     a break or a release request ends a rest earlier. No rest is left by a lease that was given back or released as
///     undelivered or unused ([`Releaser::may_rest`]), or whose holder was asked to release it. The idempotency key of
///     the lease is refused for [`TOMBSTONE`] after the end of the rest.
/// 16. **A reservation ends at its time.** The lease of an attempt for a reservation
///     ([`Ends::At`](crate::lock::Ends::At)) lasts until that time of the store's clock, however long the attempt was
///     queued, and however often the lease is renewed. Only its release, a break or a release request ends it
///     earlier. At that time or later the attempt is granted nothing, and waiters behind it do not wait for it.
/// 17. **A lock never goes back.** A lock remembers the highest order ([`Said::order`](crate::lock::Said::order)) for which
///     it was granted. An attempt with a lower order is granted nothing, and is not queued; a waiter whose order has
///     become lower leaves the queue, no fencing token is drawn for it, and the waiters behind it do not wait for it.
///     A rollback is neither compared nor remembered. An attempt that already has its lease is not compared again. The
///     order of a grant counts from the moment in which a caller may be told of it, and no longer if the lease is given
///     back or released as undelivered or unused. Only [`Store::set_order`] lowers it otherwise.
///
/// Clauses 2 to 14 hold for shared leases as for exclusive ones: each has a token, a fencing token, a TTL, a
/// recipient and an idempotency key of its own. A lock has one queue, strictly in order (clause 6): no attempt
/// passes the head, whether either of them shares the lock or not. When a lease ends, or the head of the queue
/// leaves, the store grants the lock to the next waiters for as long as they may hold it together.
///
/// The token is created for each attempt, so its hash is also the identity of the attempt.
///
/// A store itself resends a command whose reply was lost, within a deadline of its own; callers need not. Every
/// method may be dropped half-way: the command is then carried out or not, as if the reply had been lost.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// Grants a lock to an attempt if the lock is free and has no waiters.
    ///
    /// An attempt that waits must be registered in [`Store::parking`] before it is sent here. If it cannot be
    /// granted at once, it is queued, and its news arrive there. An attempt with the idempotency key of a
    /// queued attempt takes over the position of that attempt.
    ///
    /// With an idempotency key: answers the lease that lives under this key, or says that the key has been
    /// used. An attempt that does not wait and is not granted removes the position that is kept under its key;
    /// an attempt that still waits at that position is told that it was replaced.
    async fn acquire(&self, attempt: &Attempt) -> Result<Acquisition, StoreError>;

    /// Confirms a provisional grant just before it is answered to the caller: the lease then has its full TTL.
    async fn confirm(&self, name: &LockName, token: &TokenHash)
    -> Result<Confirmation, StoreError>;

    /// Takes an attempt out of the queue because its wait is over.
    ///
    /// With `keep_for` (attempts with an idempotency key only) the position is kept for that long for a later
    /// request with the same key. If the lock is granted to the kept position, the lease ends with that time
    /// unless such a request arrives: its TTL, hold limit and minimum hold count from that request. The attempt itself
    /// is over: a late copy of one of its commands neither extends the grant nor takes the position.
    async fn leave(
        &self,
        name: &LockName,
        token: &TokenHash,
        keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError>;

    /// Renews a living lease for its TTL from now, and stores the TTL. A renewal never resurrects an ended
    /// lease, never goes past the hold limit or the release request of the lease, and never makes it end
    /// earlier: with a shorter TTL the lease keeps its end.
    ///
    /// `renewer` says who renews the lease, and therefore which recipient the lease has afterwards (clause 9).
    async fn renew_as(
        &self,
        renewer: Renewer,
        name: &LockName,
        token: &TokenHash,
        ttl: RenewalTtl,
    ) -> Result<Renewal, StoreError>;

    /// Ends the living lease of a token: if a recipient releases it, only if that recipient still keeps the lease
    /// (clause 9). For a lease that was acquired with an idempotency key, a release that is repeated within
    /// [`TOMBSTONE`] answers [`Release::Released`] again. The lock may rest afterwards (clause 15).
    ///
    /// If another gateway has granted the lease (`granted_here` is false), a store of several gateways remembers the
    /// release until that gateway asks [`Store::check_fence`], and answers a repetition of the release from there.
    async fn release_as(
        &self,
        releaser: Releaser,
        name: &LockName,
        token: &TokenHash,
        granted_here: bool,
    ) -> Result<Release, StoreError>;

    /// Renews a lease by its token alone.
    async fn renew(
        &self,
        name: &LockName,
        token: &TokenHash,
        ttl: Option<Ttl>,
    ) -> Result<Renewal, StoreError> {
        self.renew_as(Renewer::Bearer, name, token, ttl.into())
            .await
    }

    /// Ends a lease by its token alone.
    async fn release(&self, name: &LockName, token: &TokenHash) -> Result<Release, StoreError> {
        self.release_as(Releaser::Bearer, name, token, true).await
    }

    /// Ends the grant of an attempt whose caller no longer waits for it, and refuses the attempt from now on
    /// (clause 8). With the id of an adopter ([`RecipientId::attempt`]) it refuses the adoption.
    ///
    /// With `unanswered`, the grant was answered to no caller: the idempotency key stays usable for an attempt with
    /// another token. Only the recipient of the lease can know this, so the lease ends only if this recipient keeps it.
    async fn give_back(
        &self,
        name: &LockName,
        token: &TokenHash,
        unanswered: Option<RecipientId>,
    ) -> Result<GiveBack, StoreError>;

    /// Shows the holder and the queue of a lock.
    async fn inspect(&self, name: &LockName) -> Result<Inspection, StoreError>;

    /// Says whether a lease with this fencing token holds the lock (clause 14).
    async fn check_fence(&self, query: &FenceQuery) -> Result<FenceCheck, StoreError>;

    /// Shows one page of the locks that are held, in no order (clause 10).
    async fn list(&self, query: &ListQuery) -> Result<Page, StoreError>;

    /// Adds to the histories of locks, and cuts each history to its bounds now or later. Repeating it does no harm,
    /// except that shorter leases and dropped records count again. Answers the positions of the batches that could not
    /// be written although others could.
    async fn record_history(&self, _batches: &[HistoryBatch]) -> Result<Vec<usize>, StoreError> {
        Ok(Vec::new())
    }

    /// Reads the history of a lock. What was recorded before, at any gateway, is in the answer.
    async fn history(&self, _name: &LockName) -> Result<StoredHistory, StoreError> {
        Ok(StoredHistory::default())
    }

    /// The living leases that a store in this process has found when it was opened, with the hashes of their tokens.
    fn found(&self) -> Vec<(LockName, TokenHash, HeldLease)> {
        Vec::new()
    }

    /// Whether this store supports a feature. If not, no attempt that asks for the feature is sent to the store.
    fn supports(&self, _feature: StoreFeature) -> bool {
        true
    }

    /// Ends the leases that hold a lock; with `target`, only if the target holds it (clause 11). For a shared
    /// lock the target must name one lease, or all.
    async fn break_lock(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
    ) -> Result<Breaking, StoreError>;

    /// Asks the holder of a lock to release the lock within a time, and ends the lease when that time is over (clause
    /// 13). `target` is as for a break. A foreign client cannot be asked.
    ///
    /// A request may be repeated: of several requests the one with the earliest end counts.
    async fn request_release(
        &self,
        name: &LockName,
        target: Option<BreakTarget>,
        request: &ReleaseRequest,
    ) -> Result<Requesting, StoreError>;

    /// Sets the order that a lock remembers, if it is still the one that the caller has seen (clause 17). Repeating it
    /// does no harm. A store that does not support orders remembers none.
    async fn set_order(
        &self,
        _name: &LockName,
        _change: OrderChange,
    ) -> Result<OrderSetting, StoreError> {
        Ok(OrderSetting::Changed(None))
    }

    /// The feed of leases that were broken or requested to be released; an entry may be lost.
    fn breaks(&self) -> &BreakFeed;

    /// The attempts of this process that wait for news from the queue of their lock.
    fn parking(&self) -> &Parking;

    /// The partition of the store that holds a lock: an outage of one partition does not delay commands to another.
    fn partition(&self, _name: &LockName) -> Partition {
        Partition::WHOLE
    }

    /// The channel for events of the other gateways on the same store; `None` if this store has no other gateways.
    fn relay(&self) -> Option<&dyn Relay> {
        None
    }

    /// Makes a backup of the embedded store, as a file; `None` for any other store.
    async fn backup(&self) -> Option<Result<StoreBackup, StoreError>> {
        None
    }

    /// Checks whether the store can keep its promises now. Each finding has a name.
    async fn check(&self) -> Vec<Check>;

    /// The current state of the store, for the metrics. Reading this state sends no request to a server.
    fn figures(&self) -> StoreFigures {
        StoreFigures::default()
    }

    /// Finishes the accepted commands, then closes the store's files and connections. Later calls answer
    /// [`super::Unavailability::Closing`].
    async fn close(&self);

    /// The name of the store's system in a trace, and who carries out the commands: this process or a server.
    fn system(&self) -> (&'static str, SpanKind) {
        ("other", SpanKind::Internal)
    }

    /// Text that names the store in the gateway's start-up message, without a password.
    fn describe(&self) -> String;
}

/// How long the store remembers that a lease with an idempotency key has ended or that an attempt was given
/// back. Longer than any request is resent or any proxy retries.
pub const TOMBSTONE: Duration = Duration::from_mins(1);

/// One request for a lock, as it is sent to the store.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The name of the lock that the attempt wants.
    pub name: LockName,
    /// The hash of the token that the attempt's own lease will have; the identity of the attempt.
    pub token: TokenHash,
    /// The terms of the lease that the attempt asks for.
    pub terms: Terms,
    /// The idempotency key of the attempt; `None` if the request carried none.
    pub idempotency: Option<Idempotency>,
    /// How the attempt waits in the queue when the lock is held; `None` if it does not wait.
    pub wait: Option<Waiting>,
}

/// How an attempt waits in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// The longest time that the attempt waits before it leaves the queue. A store may forget the attempt soon after.
    pub max_wait: Duration,
    /// How many attempts may be queued for the name, this attempt included.
    pub longest_queue: u64,
    /// With a hash, the attempt takes an older waiter with this hash out of the queue when it is queued.
    pub supersedes: Option<Superseding>,
}

/// The idempotency key of an attempt, as the store keeps it with the lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idempotency {
    /// Hash over the caller, the lock name and the idempotency key.
    pub hash: IdempotencyHash,
    /// Fingerprint of the request that was made with the key: another request under the same key has another
    /// fingerprint.
    pub fingerprint: Fingerprint,
    /// The salt from which the token of this attempt was derived; kept with the lease.
    pub salt: Salt,
}

/// The answer to an acquire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Acquisition {
    /// This attempt holds the lock, by a lease that is granted now.
    Granted(HeldLease),
    /// This attempt holds the lock by the lease that already lived under its idempotency key. The token of the
    /// lease is the token derived with this salt.
    Replayed(HeldLease, Salt),
    /// This attempt holds the lock by a lease that no caller has been told of yet. The lease was granted to the
    /// position kept under the idempotency key, or provisionally through another gateway that has not confirmed
    /// the grant. With the salt of the lease's token, and how long the position has been queued, as far as the
    /// store knows.
    Collected(HeldLease, Salt, Duration),
    /// Another holder has the lock, or a waiter in the queue is about to be granted it.
    Held(Contention),
    /// The attempt is in the queue, at this position.
    Queued(QueuePosition),
    /// The queue of this name already has as many attempts as are allowed.
    QueueFull,
    /// A newer request with the same idempotency key has taken over the position or the lease of this attempt;
    /// or the attempt has left the queue, and its position is kept for such a request.
    Replaced,
    /// The idempotency key already has a lease or a position in the queue, for a request with other parameters.
    IdempotencyMismatch,
    /// The lease under this idempotency key has ended.
    IdempotencyExpired,
    /// A newer waiter has taken this attempt, or an attempt with this idempotency key, out of the queue
    /// ([`Waiting::supersedes`]).
    NewerWaiter,
    /// The time until which the attempt would reserve the lock has come.
    ReservationOver,
    /// The lock was granted for a higher order than that of the attempt.
    OutdatedOrder(GrantedOrder),
    /// The store remembers orders of as many locks as it may, and none of this lock.
    TooManyOrders,
}

/// The holder and the queue that stand between an attempt and a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contention {
    /// The holder of the lock; `None` while the lock passes to the head of the queue.
    pub holder: Option<Holder>,
    /// How many attempts are queued for the lock.
    pub waiters: u64,
}

/// The position of an attempt in the queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuePosition {
    /// How many attempts are queued before the attempt.
    pub ahead: u64,
    /// How long the position has been queued: longer than the attempt itself, if the attempt has taken over the
    /// position under its idempotency key.
    pub waited: Duration,
    /// The holder of the lock, and the length of the queue.
    pub contention: Contention,
}

/// The answer to a confirm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Confirmation {
    /// The grant is confirmed: the attempt holds the lock by this lease.
    Confirmed(HeldLease),
    /// The confirm came too late: the grant has ended, and the lock has passed on.
    Lost,
    /// A newer request with the same idempotency key was answered the lease, and is its recipient now.
    Replaced,
}

/// The answer to a leave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Leaving {
    /// The attempt is not in the queue any more; its position may be kept for a later request with the same
    /// key.
    Left(Contention),
    /// The attempt had already been granted the lock before it could leave, and holds the lock.
    Granted(HeldLease),
    /// A newer request with the same idempotency key has taken over the position or the lease of this attempt.
    Replaced,
    /// A newer waiter has taken the attempt out of the queue.
    NewerWaiter,
}

/// The holder of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Holder {
    /// An exclusive lease that a gateway granted.
    Lease(HeldLease),
    /// A foreign client, which took the lock in the store itself, without a gateway.
    Foreign {
        /// The remaining time of the foreign lock; `None` if it has no expiry.
        expires_in: Option<Duration>,
        /// The mark of the value that the foreign client wrote; `None` if no client writes such a value as a lock.
        mark: Option<ForeignMark>,
    },
    /// Shared leases that gateways granted.
    Shared(SharedHolders),
}

/// The leases that share a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SharedHolders {
    /// At most [`SHOWN_HOLDERS`] leases, those that end soonest first, and holders first if rests would hide a holder.
    /// After a break, all broken leases. May be empty in the answer to an attempt that is queued.
    pub leases: Vec<HeldLease>,
    /// How many leases share the lock, shown or not, rests included.
    pub count: u64,
    /// How many of these are rests. Not counted in the answer to an attempt that is queued.
    pub resting: u64,
    /// The first waiter, in an answer that refuses an attempt: the limit of this waiter may keep slots free.
    pub first: Option<Waiter>,
}

/// How many leases of a shared lock an answer shows at most.
pub const SHOWN_HOLDERS: usize = 100;

/// The party that renews a lease: a bearer of its token, its recipient, or a new recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Renewer {
    /// A caller that has the token. The recipient of the lease does not change.
    Bearer,
    /// The recipient of the lease. If another recipient has the lease now, the renewal changes nothing.
    Recipient(RecipientId),
    /// A new recipient, which adopts the lease. Repeated with the same id this changes nothing, even if a copy
    /// arrives late: a recipient that has adopted the lease since then stays its recipient.
    Adopter(RecipientId),
}

/// The party that releases a lease: a bearer of its token, or its recipient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Releaser {
    /// A caller that has the token.
    Bearer,
    /// The recipient of the lease. If another recipient has the lease now, the release changes nothing.
    Recipient(RecipientId),
    /// As `Recipient`, for a lease that was delivered to no caller or not used: the lock does not rest.
    Undelivered(RecipientId),
    /// As `Bearer`, for a lease that its caller has not used, because it withdrew the acquire: the lock does not rest.
    Unused,
}

/// The TTL that a renewal gives a lease.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RenewalTtl {
    /// The TTL that the caller asks for; `None` for the lease's own TTL.
    pub asked: Option<Ttl>,
    /// The longest TTL that the caller may have. A longer TTL, even the lease's own, is cut to this TTL.
    pub max: Option<Ttl>,
}

/// The answer to a renew.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Renewal {
    /// The lease was renewed. The duration is what was left of the lease before the renewal.
    Renewed(HeldLease, Duration),
    /// Another recipient has the lease, which is unchanged. A bearer never gets this answer.
    Adopted,
    /// The token does not hold the lock, for this reason.
    Lost(Loss),
}

/// The answer to a release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Release {
    /// The lease has ended, now or by an earlier copy of this command. With the lease, for the history of the lock:
    /// `None` if the store does not know the lease, or if an earlier copy has ended it.
    Released(Option<EndedLease>),
    /// This other recipient has the unchanged lease. Only a recipient gets this answer.
    Adopted(RecipientId),
    /// The token does not hold the lock, for this reason.
    Lost(Loss),
}

/// The state of a lock whose lease the token does not hold, or no longer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Another lease or a foreign client holds the lock of the token now.
    HeldByAnother,
    /// The lock of the token is free.
    Free,
    /// The lease of this token was broken, within [`TOMBSTONE`].
    Broken {
        /// Whether another lease or a foreign client holds the lock now.
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
    /// The lease of the attempt was adopted, or answered to a newer request, and lives on.
    Kept,
}

/// The answer to an inspect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspection {
    /// The holder of the lock; `None` if the lock is free.
    pub holder: Option<Holder>,
    /// The first waiters of the queue, head first: at most [`INSPECTED_WAITERS`].
    pub queue: Vec<Waiter>,
    /// How many waiters are queued in all, shown or not.
    pub waiters: u64,
    /// The highest order for which the lock was granted, if it remembers one.
    pub granted_order: Option<GrantedOrder>,
}

/// Which fencing token is checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FenceQuery {
    /// The lock.
    pub name: LockName,
    /// The fencing token of the lease that should hold the lock.
    pub fence: FencingToken,
    /// The hash of the token of the lease, to learn also how the lease has ended.
    pub token: Option<TokenHash>,
}

/// The answer to a check of a fencing token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FenceCheck {
    /// A lease with this fencing token holds the lock.
    Held {
        /// How long the lease lasts, counted from `as_of`.
        left: Duration,
        /// An instant that is no later than the decision of the store.
        as_of: Instant,
    },
    /// No lease with this fencing token holds the lock, or its grant was not confirmed or collected yet.
    Stale {
        /// Whether a lease with a larger fencing token holds the lock.
        is_outrun: bool,
    },
    /// As `Stale`, if the query has the token: the lease was broken.
    Broken,
    /// As `Stale`, if the query has the token: the lease was released, this long ago if the store knows.
    Released(Option<Duration>),
}

/// How many waiters of a queue an inspect shows at most.
pub const INSPECTED_WAITERS: usize = 100;

/// One waiter in the queue of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiter {
    /// The owner text of the waiter, if the caller gave one.
    pub owner: Option<Owner>,
    /// The metadata of the waiter.
    pub metadata: Metadata,
    /// How the waiter wants to share the lock; `None` for an exclusive lease.
    pub sharing: Option<Sharing>,
    /// How long the waiter has been queued.
    pub waited: Duration,
}

// === impl Waiter ===

impl Waiter {
    /// What the waiter has said of itself, for a search.
    pub fn said(&self) -> (Option<&Owner>, &Metadata) {
        (self.owner.as_ref(), &self.metadata)
    }
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
// The outcome of a break or of a request to release.

/// The answer to a break.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Breaking {
    /// The leases or the foreign client that held the lock until now, as last seen before the break.
    Broken(Holder),
    /// Another holder has the lock than the target of the break. Nothing was broken.
    HolderChanged(Holder),
    /// Several leases may share the lock, and the break does not name one of them. Nothing was broken.
    Ambiguous(SharedHolders),
    /// The lock has no holder.
    NotHeld,
}

/// The answer to a request to release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Requesting {
    /// The leases whose holders were asked to release them, with the ends that the leases have now.
    Requested(Holder),
    /// Another holder has the lock than the target of the request. No holder was asked to release.
    HolderChanged(Holder),
    /// Several leases may share the lock, and the request does not name one of them. No holder was asked to release.
    Ambiguous(SharedHolders),
    /// A foreign client holds the lock, and cannot be asked to release it.
    Foreign(Holder),
    /// The lock has no holder.
    NotHeld,
}

// === impl Releaser ===

impl Releaser {
    /// The recipient that releases the lease, if a recipient does.
    pub fn recipient(self) -> Option<RecipientId> {
        match self {
            Self::Bearer | Self::Unused => None,
            Self::Recipient(recipient) | Self::Undelivered(recipient) => Some(recipient),
        }
    }

    /// As this releaser, but only if the recipient still keeps the lease.
    #[must_use]
    pub fn kept_by(self, recipient: RecipientId) -> Self {
        if self.may_rest() {
            Self::Recipient(recipient)
        } else {
            Self::Undelivered(recipient)
        }
    }

    /// Whether the lock rests if the minimum hold of the lease is not over.
    pub fn may_rest(self) -> bool {
        matches!(self, Self::Bearer | Self::Recipient(_))
    }
}

// === impl RenewalTtl ===

impl RenewalTtl {
    /// The TTL of a lease after the renewal; `own` is the TTL of the lease before.
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
    /// Whether a list with this filter shows the lock, as far as its holder decides. The caller has already compared
    /// the prefix with the name.
    pub fn shown_by(&self, name: &LockName, filter: &ListFilter) -> Shown {
        let leases = self.leases().iter().map(|lease| Some(&lease.said));
        let foreign = matches!(self, Self::Foreign { .. }).then_some(None);
        filter.shows(name, leases.chain(foreign))
    }

    /// The leases of this holder that the answer shows; none for a foreign client.
    pub fn leases(&self) -> &[HeldLease] {
        match self {
            Self::Lease(lease) => std::slice::from_ref(lease),
            Self::Shared(holders) => &holders.leases,
            Self::Foreign { .. } => &[],
        }
    }

    /// The leases of this holder that the answer shows, so that the answer can change them.
    pub fn leases_mut(&mut self) -> &mut [HeldLease] {
        match self {
            Self::Lease(lease) => std::slice::from_mut(lease),
            Self::Shared(holders) => &mut holders.leases,
            Self::Foreign { .. } => &mut [],
        }
    }

    /// Whether the lock has no holder and only rests, as far as the answer shows it.
    pub fn is_resting(&self) -> bool {
        let leases = self.leases();
        !leases.is_empty() && leases.iter().all(|lease| lease.is_resting)
    }

    /// How many leases or foreign clients hold the lock, rests included.
    pub fn count(&self) -> u64 {
        match self {
            Self::Lease(_) | Self::Foreign { .. } => 1,
            Self::Shared(holders) => holders.count,
        }
    }

    /// How many leases or foreign clients hold the lock, without its rests.
    pub fn holders(&self) -> u64 {
        match self {
            Self::Lease(lease) => u64::from(!lease.is_resting),
            Self::Foreign { .. } => 1,
            Self::Shared(holders) => holders.count.saturating_sub(holders.resting),
        }
    }
}

// === Page ===
//
// A list of held locks, a page at a time.

/// Which locks a page of a list shows.
#[derive(Debug, Clone)]
pub struct ListQuery {
    /// The filter that a lock must match to be shown.
    pub filter: ListFilter,
    /// How many locks are on one page, from 1 to [`LONGEST_PAGE`]. Below 20 a page of Redis may have a few
    /// more, because a server returns some locks together.
    pub limit: usize,
    /// Where the previous page ended. If the cursor comes from another kind of store, or from a server that no
    /// longer exists, the walk starts again from the beginning.
    pub cursor: Option<Cursor>,
}

/// How many locks a caller may request at most on one page of a list.
pub const LONGEST_PAGE: usize = 1_000;

/// The answer to a list: one page of held locks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Locks that are held. A lock of an earlier page may appear again.
    pub locks: Vec<HeldLock>,
    /// Where the next page of the list begins; `None` after the last page.
    pub next: Option<Cursor>,
}

/// A lock that is held, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLock {
    /// The name of the lock.
    pub name: LockName,
    /// The holder of the lock.
    pub holder: Holder,
    /// How many waiters are queued for the lock, as in an inspect. This number is not read at the same instant as the
    /// holder.
    pub waiters: u64,
    /// Where the list's search text is, if it is not in the name.
    pub found: Option<Found>,
}

/// A backup in memory. Only one backup exists at a time.
#[derive(Debug)]
pub struct StoreBackup {
    /// The bytes of the backup file, in the format of a log file.
    pub bytes: Vec<u8>,
    /// The permit for a backup, released when this backup is dropped.
    pub room: OwnedSemaphorePermit,
}

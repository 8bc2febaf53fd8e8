//! `POST /locks/{name}`: acquire a lock.

use std::{sync::Arc, time::Duration};

use axum::extract::State;

use crate::{
    audit::Reserved,
    auth::{Access, LimitSlot, Permission, Refusal, scope},
    clock::parse_time,
    config::LimitsConfig,
    engine::{AcquireError, AcquireRequest, Engine, Granted},
    http::{
        edge::RequestContext,
        extract::{
            AcceptsJson, ApiJson, ApiPath, Caller, Field, Fields, Form, IdempotencyKeyHeader,
            NoQuery, PreferredWait, Provenance, RequestBody, body_schema, declare_fields,
        },
        problem::Problem,
        serve::Connection,
        state::AppState,
    },
    lock::{
        Ends, ExplicitTerms, HoldLimit, IdempotencyHash, IdempotencyKey, Limit, LockName, Metadata,
        MinHold, Order, OrderNumber, Owner, Reason, Reservation, Said, Sharing, SupersedeKey,
        Supersedes, Terms, Ttl,
    },
};

use super::{
    answer::{Acquired, Annotated, Notes},
    break_lock::audited,
    lease_view::LeaseBody,
    order::order,
};

/// Acquire a lock
///
/// Grants a lease of the lock if it is free, and answers 423 with the holder if it is not. An empty
/// body takes all defaults, with any content type: `curl -X POST localhost:7420/locks/deploy` works
/// as it stands.
///
/// `"mode": "shared"` shares the lock with other shared leases: readers beside readers, while a writer
/// (`exclusive`) is alone. `"limit": 3` allows at most three holders. All requests stand in one queue, in
/// order.
///
/// `"min_hold_ms": 600000` lets the lock rest until ten minutes after this grant if the lease is released earlier:
/// a job runs once in that time, or a limit allows so many callers in that time. A lease that ends because its
/// holder was asked to release it, or whose grant was not delivered, leaves no rest.
///
/// `"reserve": {"until": "2026-12-04T18:00:00Z", "reason": "load test"}` holds the lock alone until that time,
/// without a renewal: for people. The request queues like every other, and the lease ends at that time however
/// long it was queued. The API key also needs the permission `reserve`; its `max_ttl_ms` does not count. No renewal
/// changes the end. The same key ends the reservation with `/break`.
///
/// With `wait_ms` (or `Prefer: wait=N`) a request for a held lock joins the queue of that lock. The answer
/// comes when the lock is granted or when the wait is over. All gateways on a store share the queue and serve
/// it in order; no request overtakes another. The connection must stay open during the wait. A lease that is
/// granted after a wait has at least half of its TTL left when it is answered, unless the store is so slow,
/// or `max_hold_ms` so short, that there is less.
///
/// If the connection breaks before the answer has been sent, the request leaves the queue, and a lease that
/// it was granted is released. With an `Idempotency-Key` the position and the lease are kept for a few
/// seconds: the same request, sent again in time, continues where the broken request was. The same holds
/// after a 423: a chain of short waits with one key keeps its position in the queue. To give the position up,
/// ask once more with the key and without `wait_ms`: the answer is 423, or the lease if it was granted
/// meanwhile, which you must then release. A request that still waits at that position is answered 409
/// `request-replaced`.
///
/// Of two requests with one key, the request that reaches the store last has the position; the other is
/// answered 409 `request-replaced`. A request that was given up and delayed on its way can come after the request
/// that replaced it: if you are told `request-replaced` and sent no newer request, ask again.
///
/// If an answer that repeats a lease under its `Idempotency-Key` (200) is lost, the lease is not released:
/// the first answer may have arrived. The lease ends when it is released, or with its TTL. A stream that held
/// the lease (`/locks/{name}/hold`) ends without releasing it.
#[utoipa::path(
    post,
    path = "/locks/{name}",
    operation_id = "acquireLock",
    tag = "locks",
    params(ApiPath<LockName>, IdempotencyKeyHeader, PreferredWait),
    request_body(
        content = AcquireJson,
        description = "The terms of the lease. The body may be left out."
    ),
    responses(
        (status = 200, body = LeaseBody,
         description = "The lease that an earlier request with this `Idempotency-Key` acquired.",
         headers(("Location", description = "URL at which the lock can be inspected."),
                 ("Preference-Applied", description = "`wait=N`, if the request preferred it."),
                 ("Latchgate-Warning", description = "Only with a short `Idempotency-Key`."))),
        (status = 201, body = LeaseBody, description = "A new lease.",
         headers(("Location", description = "URL at which the lock can be inspected."),
                 ("Preference-Applied", description = "`wait=N`, if the request preferred it."),
                 ("Latchgate-Warning", description = "Only with a short `Idempotency-Key`."))),
    )
)]
pub(in crate::http) async fn acquire(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::Acquire>,
    _: AcceptsJson,
    ApiPath(name): ApiPath<LockName>,
    (_, context, connection): (NoQuery, RequestContext, Connection),
    (preferred, IdempotencyKeyHeader(key)): (PreferredWait, IdempotencyKeyHeader),
    ApiJson(mut body): ApiJson<AcquireBody>,
) -> Annotated<Acquired> {
    // If the caller hangs up from here on, the engine removes the attempt from the queue and releases an
    // undelivered lease.
    let sees_holder = caller.views(&name);
    let mut notes = Notes::has_short(key.as_ref());
    notes.wait = body.prefer(preferred, &gateway.config.limits);
    let declared = gateway.declared(&name);
    let begun = || {
        body.reserve(&name, key.is_some(), &caller, &gateway)?;
        body.complete(&name, declared.as_deref(), &gateway)?;
        let request = body.into_request(name, key, &caller)?;
        let waits = !request.wait.is_zero();
        let permit = waits.then(|| connection.take_for_long(false)).transpose()?;
        let waiter = WaiterCount::count_request(&gateway.engine, &caller, &request)?;
        let granted = gateway
            .engine
            .acquire_with_queued_hook(request, || context.wait());
        Ok::<_, Problem>((permit, waiter, granted))
    };
    let answer = match begun() {
        Err(problem) => Err(problem),
        Ok((_permit, mut waiter, granted)) => {
            let granted = granted.await;
            if !matches!(granted, Err(AcquireError::Held { .. })) {
                waiter.finish();
            }
            granted
                .map_err(|error| Problem::for_acquire(error, sees_holder))
                .map_err(|problem| problem.described_by(declared.as_deref()))
                .inspect(|granted| {
                    audit_reservation(granted, &caller, (&context, &connection), &gateway);
                })
                .map(|granted| Acquired::new(granted, connection, &gateway))
        }
    };
    Annotated { answer, notes }
}

/// Records a new reservation in the audit log. Ordinary leases have no line there.
fn audit_reservation(
    Granted {
        lease, delivery, ..
    }: &Granted,
    caller: &Caller<scope::Acquire>,
    (context, connection): (&RequestContext, &Connection),
    gateway: &AppState,
) {
    let reservation = lease.held.reservation.as_deref();
    let Some(reservation) = reservation.filter(|_| !delivery.is_replay()) else {
        return;
    };
    let provenance = Provenance {
        request_id: context.request_id(),
        remote: connection.peer(),
    };
    gateway.audit.reserved(&Reserved {
        requester: provenance.requester(caller.name()),
        name: &lease.name,
        lease: audited(&lease.held),
        until: reservation.until(),
        reason: reservation.reason.as_str(),
    });
}

// === Waiter count ===
//
// How a request that may wait counts against the limits of its API key.

/// Count of one request that may wait, against the limits of its API key. Dropping it ends the count, unless
/// the request has an idempotency key and was not granted the lock: its position is kept for a while, and
/// counts for that long.
pub(super) struct WaiterCount {
    slot: Option<LimitSlot>,
    /// Engine and key for which a position is kept on drop. Boxed, because most requests have no key and
    /// should not pay for its room.
    keeps: Option<Box<(Engine, IdempotencyHash)>>,
}

// === impl WaiterCount ===

impl WaiterCount {
    /// Counts a request. If a position was kept under its idempotency key, the request replaces the count of
    /// that position.
    pub(super) fn count_request(
        engine: &Engine,
        caller: &Access,
        request: &AcquireRequest,
    ) -> Result<Self, Problem> {
        let key = request.idempotency_key.as_ref();
        let key = key.map(|key| key.hash(&request.caller, &request.name));
        if let Some(key) = &key {
            engine.resume_position(key);
        }
        let mut count = Self::without_position(engine, caller, request)?;
        if !request.wait.is_zero() {
            count.keeps = key.map(|key| Box::new((engine.clone(), key)));
        }
        Ok(count)
    }

    /// Counts a request for which no position is kept, even if it has an idempotency key.
    pub(super) fn without_position(
        engine: &Engine,
        caller: &Access,
        request: &AcquireRequest,
    ) -> Result<Self, Problem> {
        let slot = if request.wait.is_zero() {
            None
        } else {
            caller.waiter().or_else(|_| {
                engine.remove_expired_positions();
                caller.waiter()
            })?
        };
        Ok(Self { slot, keeps: None })
    }

    /// Ends the count without keeping a position: the request was granted the lock, or failed.
    pub(super) fn finish(&mut self) {
        self.slot = None;
        self.keeps = None;
    }
}

impl Drop for WaiterCount {
    fn drop(&mut self) {
        if let Some(keeps) = self.keeps.take() {
            let (engine, key) = *keeps;
            engine.reserve_position(key, self.slot.take());
        }
    }
}

/// Body of an acquire or hold request, with checked fields.
#[derive(Clone)]
pub(in crate::http) struct AcquireBody {
    /// The terms of the lease, before [`AcquireBody::reserve`] makes it a reservation.
    pub(super) terms: Terms,
    /// Whether the request says that it wants the lock alone, and does not only leave the mode out.
    pub(super) says_alone: bool,
    /// The minimum hold that the request names, in milliseconds; 0 for none.
    pub(super) min_hold: Option<u64>,
    wait: Option<Duration>,
    reserve: Option<ReserveBody>,
    pub(super) order: Option<OrderNumber>,
    /// Why the caller goes back to an older order; only with an order.
    rollback: Option<Reason>,
    /// Whether the order is for those locks of a group that are held alone, and for no shared one.
    is_order_for_all: bool,
}

/// Until when a lock is reserved, in milliseconds since 1970, and why. `None`: missing or invalid, and the request is
/// refused.
#[derive(Clone)]
struct ReserveBody(Option<(u64, Reason)>);

/// Body of an acquire or hold request in the OpenAPI document.
pub(in crate::http) type AcquireJson = ApiJson<AcquireBody>;

declare_fields! {
    /// Terms of the requested lease. Every field may be left out; null is the same as leaving it out.
    const ACQUIRE: "AcquireBody" => Form::TEXT.example(r#"{
        "ttl_ms": 30000, "wait_ms": 10000, "owner": "ci-runner-7", "metadata": {"job": "4711"}
    }"#);
    /// For how long the lease is granted, in milliseconds. Without a renewal the lease ends then: there is no
    /// lock without an expiry.
    pub(super) const TTL: "ttl_ms" => TTL_MS.or_else(|limits| limits.default_ttl_ms.0);
    /// How long to wait for a lock that is held, in milliseconds. 0, or left out: no wait. Your own timeout
    /// must be longer, and so must that of every proxy on the way.
    const WAIT: "wait_ms" => Form::millis(|limits| (0, limits.max_wait_ms.0));
    /// The longest time that the lease may be kept with renewals, in milliseconds from its grant. Not less
    /// than `ttl_ms`. Left out: the lease can be renewed without end.
    pub(super) const MAX_HOLD: "max_hold_ms" => Form::millis(|limits| (100, limits.max_hold_limit_ms.0));
    /// For how long after its grant the lock is granted to no other caller, in milliseconds, even if the lease is
    /// released earlier: then the lock rests for what is left of that time, or of a shared lock the place of the
    /// lease. Not more than `ttl_ms`; without a `ttl_ms`, the lease has at least this TTL. 0, or left out: the lock
    /// does not rest.
    pub(super) const MIN_HOLD: "min_hold_ms" => Form::millis(|limits| (0, limits.max_ttl_ms.0));
    /// `exclusive`, to hold the lock alone, or `shared`. Left out: `shared` if there is a `limit` or if the lock is
    /// declared as shared, otherwise `exclusive`.
    pub(super) const MODE: "mode" => Form::text(0, usize::MAX, "^(exclusive|shared)$");
    /// With `shared`: the lock is granted while fewer leases than this limit hold it, and the lease has a
    /// `slot`. The limit binds at this grant only, so use one limit per name.
    pub(super) const LIMIT: "limit" => Form::whole(|limits| (1, limits.max_holders));
    /// When this request is queued, it takes an older waiter of the same lock with the same text here, asked for
    /// with the same API key, out of the queue: the older request is answered 409 `newer-waiter`. No control
    /// characters. A request that does not wait takes nobody out.
    const SUPERSEDES: "supersedes" => Form::prose(SupersedeKey::MAX_CHARS);
    /// For how long earlier requests of yours have waited for this lock, in milliseconds, if this request continues their
    /// wait. Only waiters with the same `supersedes` are compared by it: this request counts as so much older. An hour
    /// at most.
    const WAITING_SINCE: "waiting_since_ms" => Form::millis(|_| (0, 3_600_000));
    /// A number of your own that is higher for newer work: the number of a run, the time of a commit. The lock
    /// remembers the highest order for which it was granted, and a request with a lower one is answered 409
    /// `outdated-order`, even if it waits already. An equal one passes. Only for a lock that is held alone.
    pub(super) const ORDER: "order" => Form::whole(|_| (0, OrderNumber::MAX.get()));
    /// Why you go back to older work on purpose: the `order` is not compared and not remembered. Needs the permission
    /// `order`. No control characters.
    pub(super) const ROLLBACK: "rollback" => Form::prose(Reason::MAX_CHARS);
    /// Reserves the lock until a time. Not together with `ttl_ms`, `max_hold_ms`, `min_hold_ms`, `limit` or the
    /// mode `shared`.
    const RESERVE: "reserve" => Form::object(body_schema::<ReserveBody>);
    /// Until when a person holds the lock, and why.
    const ABOUT_RESERVE: "ReserveBody" => Form::TEXT.example(
        r#"{"until": "2026-12-04T18:00:00Z", "reason": "load test"}"#
    );
    /// When the lease ends, as RFC 3339 with an offset: in the future, and at most `limits.max_reserve_ms` ahead.
    const UNTIL: "until" => Form::text(1, usize::MAX, "").required();
    /// Why the lock is reserved, for people to read. No control characters.
    const RESERVE_REASON: "reason" => Form::prose(Reason::MAX_CHARS).required();
    /// Owner text, for people to read: shown to callers that find the lock held, never trusted. No control
    /// characters.
    const OWNER: "owner" => Form::prose(Owner::MAX_CHARS);
    /// Small facts to attach to the lease, shown like the owner: at most 16 texts, names and values
    /// together at most 2048 bytes. No empty names, no control characters.
    const METADATA: "metadata" => Form::texts(Metadata::MAX_ENTRIES, Metadata::MAX_BYTES);
}

/// Form of a field with a TTL, between `limits.min_ttl_ms` and `limits.max_ttl_ms`.
pub(super) const TTL_MS: Form = Form::millis(|limits| (limits.min_ttl_ms.0, limits.max_ttl_ms.0));

/// Hold limit of a lease that a stream holds, if the request has none. Without a limit, a frozen client
/// behind a buffering proxy would keep the lock for ever: the gateway cannot tell it from a client that
/// listens.
const DEFAULT_HOLD_LIMIT: Duration = Duration::from_hours(24);

// === impl AcquireBody ===

impl AcquireBody {
    /// Sets the wait from the header `Prefer` if the body has no `wait_ms`. Returns the wait that was set.
    pub(super) fn prefer(
        &mut self,
        preferred: PreferredWait,
        limits: &LimitsConfig,
    ) -> Option<Duration> {
        if self.wait.is_some() {
            return None;
        }
        let applied = preferred.applied(limits)?;
        self.wait = Some(applied);
        Some(applied)
    }

    /// Refuses an order of a stream that adopts a lease: the lease was granted before, and is not compared again.
    pub(super) fn refuse_adopting(&self) -> Result<(), Problem> {
        let reason =
            "does not go with Lock-Token: the lease has the order with which it was granted";
        let refused = self.order.is_some() || self.rollback.is_some();
        (!refused)
            .then_some(())
            .ok_or_else(|| Problem::invalid_field(ORDER.name, reason))
    }

    /// Takes the terms that one lock of a group has for itself: its mode, as [`sharing`] reads it, and its order.
    pub(super) fn become_part(
        &mut self,
        mode: Option<(Option<Sharing>, bool)>,
        order: Option<OrderNumber>,
    ) {
        if let Some(own) = mode {
            (self.terms.sharing, self.says_alone) = own;
        }
        self.is_order_for_all = order.is_none();
        self.order = order.or(self.order);
    }

    /// Refuses the order, or the rollback, of a request of which no lock has an order.
    pub(super) fn refuse_untaken(&self) -> Result<(), Problem> {
        let (field, why) = match (self.order, &self.rollback) {
            (Some(_), _) => (ORDER.name, NOT_SHARED),
            (None, Some(_)) => (ROLLBACK.name, "goes with an order: send both"),
            (None, None) => return Ok(()),
        };
        Err(Problem::invalid_field(field, why))
    }

    /// Makes the acquire request of a hold stream. Unlike a plain acquire, it always has a hold limit.
    pub(super) fn into_hold_request(
        mut self,
        name: LockName,
        idempotency_key: Option<IdempotencyKey>,
        limits: &LimitsConfig,
        caller: &Caller<impl Sized>,
    ) -> Result<AcquireRequest, Problem> {
        if self.reserve.is_some() {
            let reason = "is not for a stream: acquire the lock without one";
            return Err(Problem::invalid_field(RESERVE.name, reason));
        }
        if self.terms.hold_limit().is_none() {
            let ttl = self.terms.ttl();
            let default = DEFAULT_HOLD_LIMIT
                .min(limits.max_hold_limit_ms.duration())
                .max(ttl.duration());
            let ms = u64::try_from(default.as_millis()).unwrap_or(u64::MAX);
            let limit = HoldLimit::from_millis(ms, ttl);
            let limit = limit.expect("a day is a hold limit, and no TTL is longer");
            self.terms.set_hold_limit(limit);
        }
        self.into_request(name, idempotency_key, caller)
    }

    /// Makes the request that of a reservation, if the body has one: the permission and the end are checked, and the
    /// request waits no longer than until that end.
    ///
    /// An end in the past is refused here only if the request `may_repeat` no other. Under an idempotency key the store
    /// decides: it may know the key, and grants nothing after that end.
    fn reserve(
        &mut self,
        name: &LockName,
        may_repeat: bool,
        caller: &Access,
        gateway: &AppState,
    ) -> Result<(), Problem> {
        let Some((until_ms, reason)) = self.reserve.take().and_then(|it| it.0) else {
            return Ok(());
        };
        if !caller.permits(Permission::Reserve, Some(name)) {
            return Err(Problem::forbidden(Permission::Reserve, Some(name)));
        }
        let reservation = Reservation {
            until_ms,
            reason,
            by: caller.mark().cloned(),
        };
        let most = gateway.config.limits.max_reserve_ms;
        let refuse = |reason: String| Err(Problem::invalid_field("reserve.until", reason));
        let left = reservation.until().duration_since(gateway.clock.wall());
        if left.is_err() && !may_repeat {
            return refuse("is in the past".to_owned());
        }
        let left = left.unwrap_or_default();
        if left > most.duration() {
            let most = most.0;
            return refuse(format!(
                "is too far ahead; allowed are {most} ms (limits.max_reserve_ms)"
            ));
        }
        self.terms.ends = Ends::At(Box::new(reservation));
        self.wait = self.wait.map(|wait| wait.min(left));
        Ok(())
    }

    pub(super) fn into_request(
        mut self,
        name: LockName,
        idempotency_key: Option<IdempotencyKey>,
        caller: &Caller<impl Sized>,
    ) -> Result<AcquireRequest, Problem> {
        // A hold admits callers that may only keep a lease.
        if caller.has_ended() {
            return Err(Refusal::ExchangeOver.into());
        }
        let declared = caller.declare(&mut self.terms.said);
        declared.map_err(|why| {
            let reason = format!("{why}, together with what the API key adds");
            Problem::invalid_field(METADATA.name, reason)
        })?;
        // Only a TTL from the body can be too long, or one that the minimum hold has raised: the default was capped for
        // the API key when the body was read. A reservation has none.
        if let Ends::Ttl { ttl, .. } = self.terms.ends {
            let is_asked = self.terms.explicit.ttl == Some(ttl);
            let field = if is_asked { &TTL } else { &MIN_HOLD };
            Problem::check_ttl(field, ttl, caller)?;
        }
        if let Some(limit) = self.terms.hold_limit() {
            let limit = HoldLimit::from_millis(limit.as_millis(), self.terms.ttl());
            limit.map_err(|why| Problem::invalid_field(MAX_HOLD.name, why.to_string()))?;
        }
        // The mode may be that of a declaration.
        let order = self.order.filter(|_| self.terms.sharing.is_none());
        if order.is_none() && !self.is_order_for_all {
            self.refuse_untaken()?;
        }
        if let Some(number) = order {
            if self.rollback.is_some() && !caller.permits(Permission::Order, Some(&name)) {
                return Err(Problem::forbidden(Permission::Order, Some(&name)));
            }
            self.terms.said.order = Some(Box::new(Order {
                number,
                by: caller.name().cloned(),
                rollback: self.rollback,
            }));
        }
        Ok(AcquireRequest {
            terms: self.terms,
            wait: self.wait.unwrap_or_default(),
            authorization: caller.authorization(&name),
            name,
            caller: caller.id(),
            idempotency_key,
            by: caller.actor(),
        })
    }
}

impl RequestBody for AcquireBody {
    const ABOUT: Field = ACQUIRE;

    fn read(fields: &mut Fields<'_>) -> Self {
        let reserves = fields.has(&RESERVE);
        let beside = [&TTL, &MAX_HOLD, &MIN_HOLD, &LIMIT, &ORDER];
        let beside = beside.map(|field| (field, fields.has(field)));
        let mut body = Self::of_any(fields);
        let waited_before = fields.whole(&WAITING_SINCE).unwrap_or_default();
        let supersedes = fields.parsed(&SUPERSEDES, SupersedeKey::not_blank);
        body.terms.supersedes = supersedes.map(|key| Supersedes {
            key,
            waited_before: Duration::from_millis(waited_before),
        });
        body.reserve = fields.object(&RESERVE, |fields| Some(ReserveBody::read(fields)));
        let is_shared = body.terms.sharing.is_some() && !beside[3].1;
        for (field, is_there) in beside.into_iter().chain([(&MODE, is_shared)]) {
            if reserves && is_there {
                fields.refuse(field, "does not go with reserve: leave one of the two out");
            }
        }
        body
    }
}

/// Why a shared lock has no order: of two leases that share a lock, the lower order may end last.
const NOT_SHARED: &str = "is for a lock that is held alone: leave out order, or mode and limit";

// === impl ReserveBody ===

impl RequestBody for ReserveBody {
    const ABOUT: Field = ABOUT_RESERVE;

    fn read(fields: &mut Fields<'_>) -> Self {
        let until = fields.text(&UNTIL).unwrap_or_default();
        let until = parse_time(&until).and_then(|it| u64::try_from(it.as_millisecond()).ok());
        let expected =
            "is missing or no time such as 2026-12-04T18:00:00Z or 2026-12-04T18:00:00+01:00";
        let until = fields.check(&UNTIL, until.ok_or(expected));
        let reason = fields.text(&RESERVE_REASON).unwrap_or_default();
        let reason = fields.check(&RESERVE_REASON, Reason::not_blank(&reason));
        Self(until.zip(reason))
    }
}

impl AcquireBody {
    /// Reads the fields that a request for several locks has, too.
    pub(super) fn of_any(fields: &mut Fields<'_>) -> Self {
        let asked_ttl = ttl(fields, &TTL);
        let wait = fields.whole(&WAIT).map(Duration::from_millis);
        let hold_limit = fields.whole(&MAX_HOLD);
        let asked_min_hold = fields.whole(&MIN_HOLD);
        let min_hold = asked_min_hold.filter(|&ms| ms > 0);
        // No TTL is shorter than the minimum hold, and no minimum hold that was accepted is longer than a TTL may be.
        let default = fields.limits.default_ttl_ms.0.max(min_hold.unwrap_or(0));
        let default = Ttl::from_millis(default)
            .expect("the default TTL was checked when the configuration was read");
        let ttl = asked_ttl.unwrap_or(default);
        // A declaration may lower a TTL that the request does not name.
        let least = asked_ttl.unwrap_or(Ttl::MIN);
        let hold_limit =
            hold_limit.and_then(|ms| fields.check(&MAX_HOLD, HoldLimit::from_millis(ms, least)));
        let min_hold =
            min_hold.and_then(|ms| fields.check(&MIN_HOLD, MinHold::from_millis(ms, ttl)));
        let explicit = ExplicitTerms {
            ttl: asked_ttl,
            hold_limit,
        };
        let (sharing, says_alone) = sharing(fields);
        let owner = fields.parsed(&OWNER, Owner::new);
        let metadata = fields.texts(&METADATA);
        let metadata = metadata.and_then(|texts| fields.check(&METADATA, Metadata::new(texts)));
        let terms = Terms {
            ends: Ends::Ttl { ttl, hold_limit },
            explicit,
            min_hold,
            sharing,
            supersedes: None,
            said: Said {
                owner,
                metadata: metadata.unwrap_or_default(),
                group: None,
                order: None,
            },
            undeclared: None,
        };
        Self {
            terms,
            says_alone,
            min_hold: asked_min_hold,
            wait,
            reserve: None,
            order: order(fields, &ORDER),
            rollback: fields.parsed(&ROLLBACK, Reason::not_blank),
            is_order_for_all: false,
        }
    }
}

/// Reads a field with a TTL. `None`: the field was left out or refused.
pub(super) fn ttl(fields: &mut Fields<'_>, field: &'static Field) -> Option<Ttl> {
    let ms = fields.whole(field)?;
    fields.check(field, Ttl::from_millis(ms))
}

/// Reads the fields with the mode and the limit: how the request wants to share the lock, and whether it says that it wants
/// the lock alone. No sharing: the lock is asked for alone, or a field was refused.
pub(super) fn sharing(fields: &mut Fields<'_>) -> (Option<Sharing>, bool) {
    let mode = fields.text(&MODE);
    let limit = fields.whole(&LIMIT);
    match mode.as_deref() {
        None if limit.is_none() => return (None, false),
        None | Some("shared") => {}
        Some("exclusive") => {
            if limit.is_some() {
                let reason = "is of a shared lock; leave it out, or ask for the mode shared";
                fields.refuse(&LIMIT, reason);
            }
            return (None, true);
        }
        Some(_) => {
            fields.refuse(&MODE, "is not known; the modes are exclusive and shared");
            return (None, false);
        }
    }
    let asked = limit.unwrap_or(fields.limits.max_holders);
    let asked = fields.check(&LIMIT, Limit::new(asked));
    let has_slot = limit.is_some();
    (asked.map(|limit| Sharing { limit, has_slot }), false)
}

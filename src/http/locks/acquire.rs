//! `POST /locks/{name}`: acquire a lock.

use std::{sync::Arc, time::Duration};

use axum::extract::State;

use crate::{
    auth::{Access, LimitSlot, scope},
    config::LimitsConfig,
    engine::{AcquireError, AcquireRequest, Engine, ExplicitTerms},
    http::{
        edge::RequestContext,
        extract::{
            AcceptsJson, ApiJson, ApiPath, Caller, Field, Fields, Form, IdempotencyKeyHeader,
            NoQuery, PreferredWait, RequestBody, declare_fields,
        },
        problem::Problem,
        serve::Connection,
        state::AppState,
    },
    lock::{
        HoldLimit, IdempotencyHash, IdempotencyKey, Limit, LockName, Metadata, Owner, Sharing, Ttl,
    },
};

use super::{
    answer::{Acquired, Annotated, Notes},
    lease_view::LeaseBody,
};

/// Acquire a lock
///
/// Grants a lease of the lock if it is free, and answers 423 with the holder if it is not. An empty
/// body takes all defaults, with any content type: `curl -X POST localhost:7420/locks/deploy` works
/// as it stands.
///
/// `"mode": "shared"` asks for the lock beside others that share it: readers beside readers, a writer
/// (`exclusive`) alone. `"limit": 3` is for at most three. All stand in one queue, in order.
///
/// With `wait_ms` (or `Prefer: wait=N`) a request for a held lock stands in the queue of that lock, and is answered when
/// it is served or when its wait is over. All gateways on a store share the queue; it is served in
/// order, and nobody passes it. The connection must last as long. Whoever waited is answered at least half of the TTL, unless the store is so slow, or `max_hold_ms` so short, that there is less.
///
/// If the connection breaks before the answer has been sent, the request leaves the queue, and a
/// lease that it was granted is released. With an `Idempotency-Key` the place and the lease are
/// kept for a few seconds: the same request, sent again in time, goes on where the broken one was.
/// So does a request that comes after a 423: a chain of short waits with one key keeps its place
/// in the queue. To give the place up, ask once more with the key and without `wait_ms`: the answer
/// is 423, or the lease if it was granted meanwhile, which is then yours to release. A request that
/// still waits there is answered 409 `superseded`.
///
/// Of two requests with one key the one that reaches the store last has the place; the other is
/// answered 409 `superseded`. A request that was given up, and held up on its way, can come after the one
/// that was sent in its stead: if you are told `superseded` and sent no newer request, ask again.
///
/// A lease that is answered again under its `Idempotency-Key` (200) is not released when that
/// answer is lost: the first one may have arrived. It ends when it is released, or with its TTL. A
/// stream that held it (`/locks/{name}/hold`) ends without releasing it.
#[utoipa::path(
    post,
    path = "/locks/{name}",
    operation_id = "acquireLock",
    tag = "locks",
    params(ApiPath<LockName>, IdempotencyKeyHeader, PreferredWait),
    request_body(
        content = AcquireJson,
        description = "What is asked for. It may be left out."
    ),
    responses(
        (status = 200, body = LeaseBody,
         description = "The lease that lives under this `Idempotency-Key` already.",
         headers(("Location", description = "Where the lock can be inspected."),
                 ("Preference-Applied", description = "`wait=N`, if that was preferred."),
                 ("Latchgate-Warning", description = "That the `Idempotency-Key` is short."))),
        (status = 201, body = LeaseBody, description = "A new lease.",
         headers(("Location", description = "Where the lock can be inspected."),
                 ("Preference-Applied", description = "`wait=N`, if that was preferred."),
                 ("Latchgate-Warning", description = "That the `Idempotency-Key` is short."))),
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
    // A caller that hangs up from here on: the engine leaves the queue and gives the lease back.
    let sees_holder = caller.views(&name);
    let mut notes = Notes::has_short(key.as_ref());
    notes.wait = body.prefer(preferred, &gateway.config.limits);
    let begun = || {
        let request = body.into_request(name, key, &caller)?;
        let waits = !request.wait.is_zero();
        let permit = waits.then(|| connection.take_for_long(false)).transpose()?;
        let waiter = WaiterCount::of(&gateway.engine, &caller, &request)?;
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
                .map(|granted| Acquired::new(granted, connection, &gateway))
        }
    };
    Annotated { answer, notes }
}

// === Waiter count ===
//
// What a request that may wait counts as among the limits of its API key.

/// A request that may wait. Dropped, it counts no more, but for one with an idempotency key that was
/// not granted the lock: its place is kept for a while, and counts for that long.
pub(super) struct WaiterCount {
    slot: Option<LimitSlot>,
    /// In a box: most have no key, and no room for it.
    keeps: Option<Box<(Engine, IdempotencyHash)>>,
}

// === impl WaiterCount ===

impl WaiterCount {
    /// Counts a request, in the place of an earlier one under its key.
    pub(super) fn of(
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

    /// Counts a request for which no position is kept, whatever its key.
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

    /// It was granted the lock, or nothing is kept for it.
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

/// What is asked for, as it was sent.
#[derive(Clone)]
pub(in crate::http) struct AcquireBody {
    ttl: Ttl,
    explicit: ExplicitTerms,
    wait: Option<Duration>,
    hold_limit: Option<HoldLimit>,
    sharing: Option<Sharing>,
    owner: Option<Owner>,
    metadata: Metadata,
}

/// The body in the OpenAPI document.
pub(in crate::http) type AcquireJson = ApiJson<AcquireBody>;

declare_fields! {
    /// What is asked for. Every field may be left out; null is the same as leaving it out.
    const ACQUIRE: "AcquireBody" => Form::TEXT.example(r#"{
        "ttl_ms": 30000, "wait_ms": 10000, "owner": "ci-runner-7", "metadata": {"job": "4711"}
    }"#);
    /// For how long the lease is granted, in milliseconds. It ends by itself then, unless it is
    /// renewed before: there is no lock without an expiry.
    const TTL: "ttl_ms" => TTL_MS.or_else(|limits| limits.default_ttl_ms.0);
    /// How long to wait for a lock that is held, in milliseconds. 0, or left out: not at all. Your own
    /// time-out must be longer, and so must that of every proxy on the way.
    const WAIT: "wait_ms" => Form::millis(|limits| (0, limits.max_wait_ms.0));
    /// The longest time that the lease may be kept with renewals, in milliseconds from its grant.
    /// Not less than `ttl_ms`. Left out: renewals may go on for ever.
    const MAX_HOLD: "max_hold_ms" => Form::millis(|limits| (100, limits.max_hold_limit_ms.0));
    /// `exclusive`, to hold the lock alone, or `shared`. Left out: `exclusive`, or with a `limit` `shared`.
    const MODE: "mode" => Form::text(0, usize::MAX, "^(exclusive|shared)$");
    /// With `shared`: the lock is granted while fewer than so many hold it, and the lease has a `slot`. It binds
    /// at this grant only, so use one limit per name.
    const LIMIT: "limit" => Form::whole(|limits| (1, limits.max_holders));
    /// Who asks, for people to read: shown to those who find the lock held, never trusted. No
    /// control characters.
    const OWNER: "owner" => Form::prose(Owner::MAX_CHARS);
    /// Small facts to attach to the lease, shown like the owner: at most 16 texts, names and values
    /// together at most 2048 bytes. No empty names, no control characters.
    const METADATA: "metadata" => Form::texts(Metadata::MAX_ENTRIES, Metadata::MAX_BYTES);
}

/// A TTL that the limits allow.
pub(super) const TTL_MS: Form = Form::millis(|limits| (limits.min_ttl_ms.0, limits.max_ttl_ms.0));

/// The hold limit of a lock that is held by a stream, if none is asked for: a client that is frozen
/// and a proxy that buffers cannot be told from a client that listens.
const DEFAULT_HOLD_LIMIT: Duration = Duration::from_hours(24);

// === impl AcquireBody ===

impl AcquireBody {
    /// Lets the request wait for as long as its header prefers, if the body does not say. Answers for how long
    /// that is.
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

    /// What a stream asks for: the same, but never without a hold limit.
    pub(super) fn into_hold_request(
        mut self,
        name: LockName,
        idempotency_key: Option<IdempotencyKey>,
        limits: &LimitsConfig,
        caller: &Access,
    ) -> Result<AcquireRequest, Problem> {
        if self.hold_limit.is_none() {
            let default = DEFAULT_HOLD_LIMIT
                .min(limits.max_hold_limit_ms.duration())
                .max(self.ttl.duration());
            let ms = u64::try_from(default.as_millis()).unwrap_or(u64::MAX);
            let limit = HoldLimit::from_millis(ms, self.ttl);
            self.hold_limit = Some(limit.expect("a day is a hold limit, and no TTL is longer"));
        }
        self.into_request(name, idempotency_key, caller)
    }

    pub(super) fn into_request(
        self,
        name: LockName,
        idempotency_key: Option<IdempotencyKey>,
        caller: &Access,
    ) -> Result<AcquireRequest, Problem> {
        // One that was not asked for is no longer than that.
        Problem::check_ttl(self.ttl, caller)?;
        Ok(AcquireRequest {
            ttl: self.ttl,
            hold_limit: self.hold_limit,
            sharing: self.sharing,
            explicit: self.explicit,
            wait: self.wait.unwrap_or_default(),
            owner: self.owner,
            metadata: self.metadata,
            authorization: caller.authorization(&name),
            name,
            caller: caller.id(),
            idempotency_key,
        })
    }
}

impl RequestBody for AcquireBody {
    const ABOUT: Field = ACQUIRE;

    fn read(fields: &mut Fields<'_>) -> Self {
        let default = Ttl::from_millis(fields.limits.default_ttl_ms.0)
            .expect("the default TTL was checked when the configuration was read");
        let asked_ttl = ttl(fields, &TTL);
        let ttl = asked_ttl.unwrap_or(default);
        let wait = fields.whole(&WAIT).map(Duration::from_millis);
        let hold_limit = fields.whole(&MAX_HOLD);
        let hold_limit =
            hold_limit.and_then(|ms| fields.check(&MAX_HOLD, HoldLimit::from_millis(ms, ttl)));
        let explicit = ExplicitTerms {
            ttl: asked_ttl,
            hold_limit,
        };
        let sharing = sharing(fields);
        let owner = fields.parsed(&OWNER, Owner::new);
        let metadata = fields.texts(&METADATA);
        let metadata = metadata.and_then(|texts| fields.check(&METADATA, Metadata::new(texts)));
        Self {
            ttl,
            explicit,
            wait,
            hold_limit,
            sharing,
            owner,
            metadata: metadata.unwrap_or_default(),
        }
    }
}

/// A field with a TTL.
pub(super) fn ttl(fields: &mut Fields<'_>, field: &'static Field) -> Option<Ttl> {
    let ms = fields.whole(field)?;
    fields.check(field, Ttl::from_millis(ms))
}

fn sharing(fields: &mut Fields<'_>) -> Option<Sharing> {
    let mode = fields.text(&MODE);
    let limit = fields.whole(&LIMIT);
    match mode.as_deref() {
        None => _ = limit?,
        Some("shared") => {}
        Some("exclusive") => {
            if limit.is_some() {
                let reason = "is of a shared lock; leave it out, or ask for the mode shared";
                fields.refuse(&LIMIT, reason);
            }
            return None;
        }
        Some(_) => {
            fields.refuse(&MODE, "is not known; the modes are exclusive and shared");
            return None;
        }
    }
    let asked = limit.unwrap_or(fields.limits.max_holders);
    Some(Sharing {
        limit: fields.check(&LIMIT, Limit::new(asked))?,
        has_slot: limit.is_some(),
    })
}

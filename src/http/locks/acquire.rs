//! `POST /locks/{name}`: acquire a lock.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::extract::State;
use utoipa::{
    IntoResponses, ToSchema,
    openapi::{
        Object, ObjectBuilder, RefOr, Response,
        schema::{SchemaType, Type},
    },
};

use crate::{
    auth::{Access, LimitSlot, scope},
    config::LimitsConfig,
    engine::{AcquireError, AcquireRequest, Engine, ExplicitTerms},
    http::{
        edge::RequestContext,
        extract::{
            AcceptsJson, ApiJson, ApiPath, AppliedWait, Caller, Fields, IdempotencyKeyHeader,
            NoQuery, PreferredWait, RequestBody,
        },
        problem::{Problem, ProblemCode as Code, problem_responses},
        serve::{AnsweredOn, LongRequests},
        state::AppState,
    },
    lock::{
        HoldLimit, IdempotencyHash, IdempotencyKey, Limit, LockName, Metadata, Owner, Sharing, Ttl,
    },
};

use super::{
    annotated::{Annotated, Notes},
    delivered::Acquired,
    header_params::{KeyHeader, LockPath, PreferHeader},
    lease_body::LeaseBody,
};

/// The problems of acquire.
pub(super) struct AcquireProblems;

/// Acquire a lock
///
/// Grants a lease of the lock if it is free, and answers 423 with the holder if it is not. An empty
/// body takes all defaults, with any content type: `curl -X POST localhost:7420/locks/deploy` works
/// as it stands.
///
/// With `wait_ms` (or `Prefer: wait=N`) a request for a held lock stands in the queue of that lock, and is answered when
/// it is served or when its wait is over. All gateways on a store share the queue; it is served in
/// order, and nobody passes it. The wait costs nothing while it lasts, but the connection must
/// last: keep the time-out of the HTTP client longer than `wait_ms`.
///
/// Count `expires_in_ms` from when you *received* the answer, and leave the time that the answer may have travelled. What
/// passed since the gateway asked the store is subtracted, however long the gateway stood still. Whoever waited
/// is answered at least half of the TTL, unless the store is so slow, or `max_hold_ms` so short, that there is less.
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
/// answered 409 `superseded`. That is by arrival, not by when they were sent: a request that was
/// given up, and held up on its way, can come after the one that was sent in its stead. If you are
/// told `superseded` and sent no newer request, ask again.
///
/// A lease that is answered again under its `Idempotency-Key` (200) is not released when that
/// answer is lost: the first one may have arrived. It ends when it is released, or with its TTL. A
/// stream that held it (`/locks/{name}/hold`) ends without releasing it.
#[utoipa::path(
    post,
    path = "/locks/{name}",
    operation_id = "acquireLock",
    tag = "locks",
    params(LockPath, KeyHeader, PreferHeader),
    request_body(
        content = AcquireBody,
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
        AcquireProblems,
    )
)]
pub(in crate::http) async fn acquire(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::Acquire>,
    _: AcceptsJson,
    ApiPath(name): ApiPath<LockName>,
    (_, context, long_requests, connection): (NoQuery, RequestContext, LongRequests, AnsweredOn),
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
        let permit = waits.then(|| long_requests.acquire()).transpose()?;
        let waiter = WaiterCount::of(&gateway.engine, &caller, &request)?;
        let slot = caller.lease(&request.name, request.idempotency_key.as_ref())?;
        let granted = gateway
            .engine
            .acquire_with_queued_hook(request, || context.wait());
        Ok::<_, Problem>((permit, waiter, slot, granted))
    };
    let answer = match begun() {
        Err(problem) => Err(problem),
        Ok((_permit, mut waiter, slot, granted)) => {
            let granted = granted.await;
            if !matches!(granted, Err(AcquireError::Held { .. })) {
                waiter.finish();
            }
            granted
                .map_err(|error| Problem::for_acquire(error, sees_holder))
                .map(|granted| Acquired::new(granted, slot, connection, &gateway))
        }
    };
    Annotated { answer, notes }
}

// === impl AcquireProblems ===

impl IntoResponses for AcquireProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problem_responses(&[
            Code::InvalidRequest,
            Code::Unauthorized,
            Code::Forbidden,
            Code::LimitExceeded,
            Code::OriginRefused,
            Code::RequestTimeout,
            Code::IdempotencyMismatch,
            Code::IdempotencyExpired,
            Code::Superseded,
            Code::TooLarge,
            Code::UnsupportedMediaType,
            Code::Locked,
            Code::RateLimited,
            Code::TooManyWaiters,
            Code::TooManyLeases,
            Code::Internal,
            Code::ForeignData,
            Code::StoreUnavailable,
            Code::Overloaded,
            Code::Draining,
            Code::UnsupportedByStore,
            Code::FenceExhausted,
            Code::OutcomeUnknown,
        ])
    }
}

// === Acquire body ===
//
// What acquire takes.

/// What is asked for. Every field may be left out; null is the same as leaving it out.
#[derive(Clone, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"ttl_ms": 30_000, "wait_ms": 10_000, "owner": "ci-runner-7", "metadata": {"job": "4711"}}))]
pub(in crate::http) struct AcquireBody {
    /// For how long the lease is granted, in milliseconds. It ends by itself then, unless it is
    /// renewed before: there is no lock without an expiry. Left out: 30000.
    #[schema(
        rename = "ttl_ms", value_type = Option<u64>,
        minimum = 100, maximum = 86_400_000
    )]
    ttl: Ttl,
    #[schema(ignore)]
    explicit: ExplicitTerms,
    /// How long to wait for a lock that is held, in milliseconds. 0, or left out: not at all. Your own
    /// time-out must be longer, and so must that of every proxy on the way: stay at or below 25000
    /// behind an API gateway that gives up after 29 s.
    #[schema(
        rename = "wait_ms", value_type = Option<u64>,
        minimum = 0, maximum = 55_000
    )]
    wait: Option<Duration>,
    /// The longest time that the lease may be kept with renewals, in milliseconds from its grant.
    /// Not less than `ttl_ms`. Left out: renewals may go on for ever.
    #[schema(
        rename = "max_hold_ms", value_type = Option<u64>,
        minimum = 100, maximum = 604_800_000
    )]
    hold_limit: Option<HoldLimit>,
    /// `exclusive`: to hold the lock alone. `shared`: beside others that share it. Left out: `exclusive`, or with
    /// a `limit` `shared`.
    #[schema(rename = "mode", value_type = Option<String>, pattern = "^(exclusive|shared)$")]
    sharing: Option<Sharing>,
    /// With `shared`: the lock is granted as long as fewer than so many hold it, so at most so many do if all
    /// requests name the same limit. The lease then has a `slot`. Left out: as many as the gateway allows.
    #[schema(rename = "limit", value_type = Option<u64>, minimum = 1, maximum = 9999)]
    #[expect(
        dead_code,
        reason = "it is a part of `sharing`; here the document describes it"
    )]
    limit: (),
    /// Who asks, for people to read: shown to those who find the lock held, never trusted. No
    /// control characters.
    #[schema(
        value_type = Option<String>,
        min_length = 1, max_length = 128, pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$"
    )]
    owner: Option<Owner>,
    /// Small facts to attach to the lease, shown like the owner: at most 16 texts, names and values
    /// together at most 2048 bytes. No empty names, no control characters.
    #[schema(schema_with = metadata_schema, required = false)]
    metadata: Metadata,
}

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
    ) -> Option<AppliedWait> {
        if self.wait.is_some() {
            return None;
        }
        let applied = preferred.applied(limits)?;
        self.wait = Some(applied.duration());
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
    fn read(fields: &mut Fields<'_>, limits: &LimitsConfig) -> Self {
        let default = Ttl::from_millis(limits.default_ttl_ms.0)
            .expect("the default TTL was checked when the configuration was read");
        let asked_ttl = ttl(fields, limits);
        let ttl = asked_ttl.unwrap_or(default);
        let wait = wait(fields, limits);
        let hold_limit = hold_limit(fields, limits, ttl);
        let explicit = ExplicitTerms {
            ttl: asked_ttl,
            hold_limit,
        };
        Self {
            ttl,
            explicit,
            wait,
            hold_limit,
            sharing: sharing(fields, limits),
            limit: (),
            owner: owner(fields),
            metadata: metadata(fields),
        }
    }
}

/// The field `ttl_ms`, which renew has too.
pub(super) fn ttl(fields: &mut Fields<'_>, limits: &LimitsConfig) -> Option<Ttl> {
    let ms = fields.whole("ttl_ms")?;
    let (least, most) = (limits.min_ttl_ms.0, limits.max_ttl_ms.0);
    if !(least..=most).contains(&ms) {
        let reason = format!("is {ms}; allowed are {least} to {most} milliseconds");
        fields.refuse("ttl_ms", reason);
        return None;
    }
    fields.check("ttl_ms", Ttl::from_millis(ms))
}

fn wait(fields: &mut Fields<'_>, limits: &LimitsConfig) -> Option<Duration> {
    let ms = fields.whole("wait_ms")?;
    let most = limits.max_wait_ms.0;
    if ms > most {
        let reason = format!("is {ms}; at most {most} milliseconds are allowed");
        fields.refuse("wait_ms", reason);
    }
    Some(Duration::from_millis(ms))
}

fn hold_limit(fields: &mut Fields<'_>, limits: &LimitsConfig, ttl: Ttl) -> Option<HoldLimit> {
    let ms = fields.whole("max_hold_ms")?;
    let most = limits.max_hold_limit_ms.0;
    if ms > most {
        let reason = format!("is {ms}; at most {most} milliseconds are allowed");
        fields.refuse("max_hold_ms", reason);
        return None;
    }
    fields.check("max_hold_ms", HoldLimit::from_millis(ms, ttl))
}

fn sharing(fields: &mut Fields<'_>, limits: &LimitsConfig) -> Option<Sharing> {
    let mode = fields.text("mode");
    let limit = fields.whole("limit");
    let is_shared = match mode.as_deref() {
        None => limit.is_some(),
        Some("shared") => true,
        Some("exclusive") => {
            if limit.is_some() {
                fields.refuse(
                    "limit",
                    "is of a shared lock; leave it out, or ask for \"mode\": \"shared\"",
                );
            }
            false
        }
        Some(_) => {
            fields.refuse("mode", "is neither exclusive nor shared");
            false
        }
    };
    let most = limits.max_holders;
    if let Some(limit) = limit.filter(|limit| !(1..=most).contains(limit)) {
        fields.refuse("limit", format!("is {limit}; allowed are 1 to {most}"));
        return None;
    }
    let bound = Limit::new(limit.unwrap_or(most));
    let limit_of = fields.check("limit", bound)?;
    is_shared.then_some(Sharing {
        limit: limit_of,
        has_slot: limit.is_some(),
    })
}

fn owner(fields: &mut Fields<'_>) -> Option<Owner> {
    let text = fields.text("owner")?;
    fields.check("owner", Owner::new(&text))
}

fn metadata(fields: &mut Fields<'_>) -> Metadata {
    let Some(texts) = fields.texts("metadata") else {
        return Metadata::default();
    };
    fields
        .check("metadata", Metadata::new(texts))
        .unwrap_or_default()
}

fn metadata_schema() -> Object {
    let text = |least, most| {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .min_length(least)
            .max_length(Some(most))
            .pattern(Some(r"^[^\u0000-\u001f\u007f-\u009f]*$"))
    };
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::Object, Type::Null]))
        .description(Some(
            "Small facts to attach to the lease, shown like the owner: at most 16 texts, names and \
             values together at most 2048 bytes. No empty names, no control characters.",
        ))
        .max_properties(Some(Metadata::MAX_ENTRIES))
        .property_names(Some(text(Some(1), Metadata::MAX_BYTES)))
        .additional_properties(Some(text(None, Metadata::MAX_BYTES)))
        .build()
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
        if request.wait.is_zero() {
            return Ok(Self {
                slot: None,
                keeps: None,
            });
        }
        let slot = caller.waiter().or_else(|_| {
            engine.remove_expired_positions();
            caller.waiter()
        })?;
        Ok(Self {
            slot,
            keeps: key.map(|key| Box::new((engine.clone(), key))),
        })
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

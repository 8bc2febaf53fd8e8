//! `POST /locks/{name}`: acquire a lock.

use std::sync::Arc;

use axum::extract::State;

use crate::{
    auth::{Access, LimitSlot, scope},
    engine::{AcquireError, AcquireRequest, Engine},
    http::{
        edge::RequestContext,
        extract::{
            AcceptsJson, ApiJson, ApiPath, Caller, IdempotencyKeyHeader, NoQuery, PreferredWait,
        },
        problem::Problem,
        serve::{AnsweredOn, LongRequests},
        state::AppState,
    },
    lock::{IdempotencyHash, LockName},
};

use super::{
    acquire_body::{AcquireBody, AcquireJson},
    annotated::{Annotated, Notes},
    delivered::Acquired,
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

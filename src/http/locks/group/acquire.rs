//! `POST /locks`: acquire several locks, all or none.

use std::sync::Arc;

use axum::extract::State;

use crate::{
    auth::scope,
    engine::GroupRequest,
    http::{
        edge::RequestContext,
        extract::{
            AcceptsJson, ApiJson, Caller, Field, Fields, Form, IdempotencyKeyHeader, NoQuery,
            PreferredWait, RequestBody, declare_fields,
        },
        problem::Problem,
        serve::{AnsweredOn, LongRequests},
        state::AppState,
    },
    lock::GroupNames,
};

use super::{
    super::{
        acquire::WaiterCount,
        acquire_body::AcquireBody,
        annotated::{Annotated, Notes},
        delivered::Acquired,
        group_body::GroupLeaseBody,
    },
    names::{check_permission, missing_names, names},
};

/// Acquire several locks
///
/// Grants a lease of each of these locks, or of none. All have one token; each is an ordinary lease besides, which
/// can be inspected, renewed, released and broken by itself. If a lock is held the answer is 423, and `name` says which
/// one.
///
/// The locks are taken in the order of their names, so requests for several locks never wait for each other in a circle. With
/// `wait_ms` the request waits in the queue of one lock at a time while it holds those before it; the wait is for all
/// together. What it has taken is given back if the rest cannot be had, and if the caller hangs up.
///
/// Others see the locks taken one after the other. While they are taken each lease lasts at most 10 s and is renewed; all get
/// their whole TTL just before the answer. So if the gateway is killed meanwhile, what it had taken is free after
/// 10 s at most.
///
/// With an `Idempotency-Key` the request can be repeated as that for one lock: the key covers all of the names. (With other
/// names it is 409 `idempotency-mismatch` if the last in sorted order is the same, and else another request.) No place in a
/// queue is kept for who comes back: a request that is repeated before it was answered goes on with locks that were all
/// taken, or begins anew.
#[utoipa::path(
    post,
    path = "/locks",
    operation_id = "acquireLocks",
    tag = "locks",
    params(IdempotencyKeyHeader, PreferredWait),
    request_body(content = AcquireGroupJson, description = "What is asked for."),
    responses(
        (status = 200, body = GroupLeaseBody,
         description = "The leases that live under this `Idempotency-Key` already.",
         headers(("Preference-Applied", description = "`wait=N`, if that was preferred."),
                 ("Latchgate-Warning", description = "That the `Idempotency-Key` is short."))),
        (status = 201, body = GroupLeaseBody, description = "New leases.",
         headers(("Preference-Applied", description = "`wait=N`, if that was preferred."),
                 ("Latchgate-Warning", description = "That the `Idempotency-Key` is short."))),
    )
)]
pub(in crate::http) async fn acquire_group(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::Acquire>,
    _: AcceptsJson,
    (_, context, long_requests, connection): (NoQuery, RequestContext, LongRequests, AnsweredOn),
    (preferred, IdempotencyKeyHeader(key)): (PreferredWait, IdempotencyKeyHeader),
    ApiJson(AcquireGroupBody { names, mut terms }): ApiJson<AcquireGroupBody>,
) -> Annotated<Acquired> {
    // A caller that hangs up from here on: the engine gives back what it has taken.
    let mut notes = Notes::has_short(key.as_ref());
    notes.wait = terms.prefer(preferred, &gateway.config.limits);
    let begun = || {
        let names = names.ok_or_else(missing_names)?;
        check_permission(&caller, &names)?;
        // Each name counts; that there was room for one was found when the caller was admitted.
        caller.count_further_requests(names.as_slice().len() - 1);
        let request = GroupRequest::new(names, |name| {
            terms
                .clone()
                .into_request(name.clone(), key.clone(), &caller)
        })?;
        let waits = !request.keyed().wait.is_zero();
        let permit = waits.then(|| long_requests.acquire()).transpose()?;
        // It waits for one lock at a time, and no position is kept for it.
        let waiter = WaiterCount::without_position(&gateway.engine, &caller, request.keyed())?;
        let granted = gateway.engine.acquire_group(request, || context.wait());
        Ok::<_, Problem>((permit, waiter, granted))
    };
    let answer = match begun() {
        Err(problem) => Err(problem),
        Ok((_permit, waiter, granted)) => {
            let granted = granted.await;
            drop(waiter);
            granted
                .map_err(|error| Problem::for_group(error, |name| caller.views(name)))
                .map(|granted| Acquired::all(granted, connection, &gateway))
        }
    };
    Annotated { answer, notes }
}

// === Acquire group body ===
//
// What it takes.

/// Which locks, and what is asked for.
pub(in crate::http) struct AcquireGroupBody {
    /// `None`: they are wrong.
    names: Option<GroupNames>,
    terms: AcquireBody,
}

/// The body in the OpenAPI document.
pub(in crate::http) type AcquireGroupJson = ApiJson<AcquireGroupBody>;

declare_fields! {
    /// Which locks are asked for, and how: every field but `names` is as for one lock, and counts for each of them.
    const ACQUIRE: "AcquireGroupBody" => Form::TEXT.example(r#"{
        "names": ["database", "cluster:eu"], "ttl_ms": 30000, "wait_ms": 10000, "owner": "ci-runner-7"
    }"#);
}

// === impl AcquireGroupBody ===

impl RequestBody for AcquireGroupBody {
    const ABOUT: Field = ACQUIRE;

    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            names: names(fields),
            terms: AcquireBody::read(fields),
        }
    }
}

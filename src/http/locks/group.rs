//! `POST`, `PUT` and `DELETE /locks`: several locks as one.

use std::{sync::Arc, time::Duration};

use axum::extract::State;
use futures_util::future::join_all;
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::{
    auth::{Access, Permission, scope},
    engine::{GroupRequest, RenewError},
    http::{
        edge::RequestContext,
        extract::{
            AcceptsJson, ApiJson, ApiQuery, Caller, Field, Fields, Form, IdempotencyKeyHeader,
            LockToken, NAME, NoQuery, OnlyToken, PreferredWait, Query, RequestBody,
            UnrefusedCaller, declare_fields,
        },
        json_response::JsonResponse,
        problem::{Extra, PartResult, Problem, ProblemCode},
        serve::{Connection, UnansweredReleases},
        state::AppState,
    },
    lock::{GroupNames, GroupNamesError, HeldLease, LockName},
};

use super::{
    acquire::{AcquireBody, WaiterCount},
    answer::{Acquired, Annotated, Notes},
    lease::{ReleaseAnswer, RenewBody, RenewJson, explain, is_guessed},
    lease_view::{GroupLeaseBody, millis},
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
    (_, context, connection): (NoQuery, RequestContext, Connection),
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
        let permit = waits.then(|| connection.take_for_long(false)).transpose()?;
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

/// Release several leases
///
/// Ends the living leases of this token, each as if it were released by itself. It is carried out even if the caller hangs
/// up. The answer is 200 if one of them was released at least: look at `results`, where a lost one has the `code`
/// `lease-lost`. It is 410 if the token holds none of these locks. Of a group that was acquired with an
/// `Idempotency-Key` only the release of the last name is remembered: repeated, that one is done again, and the others
/// are `lease-lost`. What has the `code` `store-unavailable` or `outcome-unknown` can be released once more.
///
/// The token is sent in the header `Lock-Token`: there is no body, because proxies drop that of a DELETE.
#[utoipa::path(
    delete,
    path = "/locks",
    operation_id = "releaseLocks",
    tag = "locks",
    params(ApiQuery<GroupQuery>, OnlyToken),
    responses(
        (status = 200, body = ReleasedGroupBody, description = "What came of each lease."),
    )
)]
pub(in crate::http) async fn release_group(
    State(gateway): State<Arc<AppState>>,
    who: UnrefusedCaller,
    _: AcceptsJson,
    ApiQuery(query): ApiQuery<GroupQuery>,
    token: LockToken,
) -> Result<ReleaseAnswer<JsonResponse<ReleasedGroupBody>>, Problem> {
    let names = query.names()?;
    let token = token.required()?.hash();
    // One that was granted here can always be released.
    let mut known = names.iter();
    let known = known.find(|name| gateway.engine.has_lease(name, &token));
    let charge = who.charge(&gateway, known.unwrap_or(&names.as_slice()[0]), &token)?;
    // A caller that hangs up from here on still wants it: the engine sees the commands through.
    let commands = names
        .iter()
        .map(|name| gateway.engine.release(name.clone(), token));
    let since = Instant::now();
    let released = join_all(commands).await;
    let (mut outcomes, mut is_guess) = (Outcomes::default(), true);
    let mut unanswered = UnansweredReleases {
        gateway: Arc::clone(&gateway),
        token,
        names: Vec::new(),
        since,
    };
    for (name, release) in names.iter().zip(released) {
        is_guess &= release.as_ref().is_err_and(is_guessed);
        match release {
            Ok(()) => outcomes.add_done(name, None),
            Err(error) => {
                if error.may_pass() {
                    unanswered.names.push(name.clone());
                }
                outcomes.add_failed(name, explain(&gateway, error));
            }
        }
    }
    charge.settle(is_guess);
    let answer = outcomes.results();
    let answer = answer.map(|results| JsonResponse(ReleasedGroupBody { results }));
    Ok((unanswered.extension(), answer))
}

/// What came of the release of several leases.
#[derive(Serialize, ToSchema)]
#[schema(as = ReleasedGroup)]
pub(in crate::http) struct ReleasedGroupBody {
    /// What came of each, in the order of the names.
    #[schema(min_items = 2, max_items = 16)]
    results: Vec<PartResult>,
}

/// Renew several leases
///
/// Makes the living leases of this token last longer, each as if it were renewed by itself. The answer is 200 if one of them
/// was renewed at least: look at `results`, where a lost one has the `code` `lease-lost`. It is 410 if the token
/// holds none of these locks.
#[utoipa::path(
    put,
    path = "/locks",
    operation_id = "renewLocks",
    tag = "locks",
    params(ApiQuery<GroupQuery>, LockToken),
    request_body(
        content = RenewJson,
        description = "How the leases are renewed. It may be left out."
    ),
    responses(
        (status = 200, body = RenewedGroupBody, description = "What came of each lease."),
    )
)]
pub(in crate::http) async fn renew_group(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::Keep>,
    _: AcceptsJson,
    ApiQuery(query): ApiQuery<GroupQuery>,
    token: LockToken,
    ApiJson(body): ApiJson<RenewBody>,
) -> Result<JsonResponse<RenewedGroupBody>, Problem> {
    let names = query.names()?;
    check_permission(&caller, &names)?;
    let ttl = body.renewal_ttl(&caller);
    let (token, ttl) = (token.or(body.token)?, ttl?);
    let charge = caller.charge();
    let renewals = names.iter().map(|name| {
        let engine = &gateway.engine;
        engine.renew(name.clone(), token.clone(), ttl)
    });
    let renewed = join_all(renewals).await;
    let (mut outcomes, mut held, mut all_lost) = (Outcomes::default(), Vec::new(), true);
    for (name, renewal) in names.iter().zip(renewed) {
        all_lost &= matches!(renewal, Err(RenewError::Lost(_)));
        match renewal {
            Ok(lease) => {
                let lease = lease.held.at(Instant::now());
                outcomes.add_done(name, Some(&lease));
                held.push(lease);
            }
            Err(error) => outcomes.add_failed(name, error.into()),
        }
    }
    charge.settle(all_lost);
    let least =
        |time: fn(&HeldLease) -> Duration| millis(held.iter().map(time).min().unwrap_or_default());
    Ok(JsonResponse(RenewedGroupBody {
        results: outcomes.results()?,
        expires_in_ms: least(HeldLease::good_for),
        renew_after_ms: least(HeldLease::renew_after),
    }))
}

/// What came of the renewal of several leases.
#[derive(Serialize, ToSchema)]
#[schema(as = RenewedGroup)]
pub(in crate::http) struct RenewedGroupBody {
    /// What came of each, in the order of the names.
    #[schema(min_items = 2, max_items = 16)]
    results: Vec<PartResult>,
    /// What is left of the renewed lease that ends first.
    expires_in_ms: u64,
    /// After how long to renew them again: a third of what is left.
    renew_after_ms: u64,
}

/// What came of each of several leases.
#[derive(Default)]
struct Outcomes {
    results: Vec<PartResult>,
    is_any_done: bool,
    /// Why one was not done that may not be lost.
    failure: Option<Problem>,
}

// === impl Outcomes ===

impl Outcomes {
    fn add_done(&mut self, name: &LockName, lease: Option<&HeldLease>) {
        self.is_any_done = true;
        self.results.push(PartResult::done(name, lease));
    }

    fn add_failed(&mut self, name: &LockName, problem: Problem) {
        self.results.push(problem.of_part(name));
        if problem.code != ProblemCode::LeaseLost {
            self.failure = Some(problem);
        }
    }

    /// What is told of them. If none was done, the request has failed.
    fn results(self) -> Result<Vec<PartResult>, Problem> {
        match (self.is_any_done, self.failure) {
            (true, _) => Ok(self.results),
            (false, Some(problem)) => Err(problem),
            (false, None) => {
                let detail = "This token holds none of these locks.";
                let lost = Problem::new(ProblemCode::LeaseLost, detail);
                Err(lost.with(Extra::Parts(self.results)))
            }
        }
    }
}

/// The locks that a query names.
pub(in crate::http) struct GroupQuery(pub(super) Option<GroupNames>);

declare_fields! {
    /// The locks, with a comma between: 2 to 16, each once, in any order.
    const IN_QUERY: "names" => Form::text(
        0,
        GroupNames::MAX * (LockName::MAX_LEN + 1) - 1,
        "^[A-Za-z0-9._:@~-]+(,[A-Za-z0-9._:@~-]+){1,15}$",
    )
    .required()
    .example("cluster:eu,database");
    /// The locks: 2 to 16, each once, in any order. They are taken in the order of their names.
    const NAMES: "names" => NAME.list(GroupNames::MIN, GroupNames::MAX).required();
}

// === impl GroupQuery ===

impl GroupQuery {
    pub(super) fn names(self) -> Result<GroupNames, Problem> {
        self.0.ok_or_else(|| {
            let reason = "is missing; it has 2 to 16 names with a comma between";
            Problem::invalid_field("query.names", reason)
        })
    }
}

impl Query for GroupQuery {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self(fields.parsed(&IN_QUERY, |text| GroupNames::parse(text.split(','))))
    }
}

/// The field `names`.
pub(super) fn names(fields: &mut Fields<'_>) -> Option<GroupNames> {
    let texts = fields.list(&NAMES)?;
    // Which one is wrong is said by its place.
    for (at, text) in texts.iter().enumerate().take(GroupNames::MAX) {
        if let Err(error) = LockName::new(text) {
            fields.refuse_at(format!("{}[{at}]", NAMES.name), error.to_string());
        }
    }
    match GroupNames::parse(texts.iter().map(AsRef::as_ref)) {
        Ok(names) => Some(names),
        // It was said above.
        Err(GroupNamesError::Name(..)) => None,
        Err(error @ (GroupNamesError::Count(_) | GroupNamesError::Repeated(_))) => {
            fields.refuse(&NAMES, error.to_string());
            None
        }
    }
}

/// Whether the caller may acquire each of them.
pub(super) fn check_permission(caller: &Access, names: &GroupNames) -> Result<(), Problem> {
    let permission = Permission::Acquire;
    let refused = names
        .iter()
        .find(|name| !caller.permits(permission, Some(name)));
    refused.map_or(Ok(()), |name| {
        Err(Problem::forbidden(permission, Some(name)))
    })
}

/// A body without names.
pub(super) fn missing_names() -> Problem {
    Problem::invalid_field(NAMES.name, "is missing; it has 2 to 16 names of locks")
}

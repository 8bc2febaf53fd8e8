//! `POST`, `PUT` and `DELETE /locks`: acquire, renew and release several locks with one request.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::extract::State;
use futures_util::future::join_all;
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::{
    auth::{Access, Permission, scope},
    engine::{GroupAcquireError, GroupRequest, RenewError},
    http::{
        edge::RequestContext,
        extract::{
            AcceptsJson, ApiJson, ApiQuery, Caller, Field, Fields, Form, IdempotencyKeyHeader,
            LockToken, NAME, NAMES_PATTERN, NoQuery, OnlyToken, PreferredWait, Query, RequestBody,
            UnrefusedCaller, declare_fields,
        },
        json_response::JsonResponse,
        problem::{Extra, PartResult, Problem, ProblemCode},
        serve::{Connection, UnansweredReleases},
        state::AppState,
    },
    lock::{GroupNames, GroupNamesError, HeldLease, LockName, OrderNumber, Sharing},
};

use super::{
    acquire::{AcquireBody, LIMIT, MODE, ORDER, WaiterCount, sharing},
    answer::{Acquired, Annotated, Notes},
    lease::{ReleaseAnswer, ReleaseQuery, RenewBody, RenewJson, explain, is_guessed},
    lease_view::{GroupLeaseBody, millis},
    order::order,
};

/// Acquire several locks
///
/// Grants a lease of each of these locks, or none. All leases have one token; each is otherwise an ordinary
/// lease, which can be inspected, renewed, released and broken alone. If a lock is held the answer is 423,
/// and `name` says which lock.
///
/// `"names": ["deploy", {"name": "openai", "mode": "shared", "limit": 20}]` takes `deploy` alone, and one of
/// the twenty places of `openai`. A `mode` or `limit` beside `names` is for all of the locks.
///
/// The locks are taken in the order of their names, so requests for several locks never wait for each other
/// in a circle. With `wait_ms` the request waits in the queue of one lock at a time while it holds the locks
/// before it; the wait is for all together. The locks it has taken are released if the rest cannot be had,
/// and if the caller hangs up.
///
/// Other callers see the locks taken one after the other. While they are taken each lease lasts at most 10 s
/// and is renewed; all get their whole TTL just before the answer. So if the gateway is killed meanwhile, the
/// locks it had taken are free after 10 s at most.
///
/// With an `Idempotency-Key` the request can be repeated like a request for one lock: the key covers all of
/// the names, with the mode and the limit of each. (With other names the answer is 409
/// `idempotency-mismatch` if the last name in sorted order is the same; otherwise it is another request.) No
/// position in a queue is kept: a request that is repeated before it was answered continues with the locks if
/// all were taken, or begins again.
#[utoipa::path(
    post,
    path = "/locks",
    operation_id = "acquireLocks",
    tag = "locks",
    params(IdempotencyKeyHeader, PreferredWait),
    request_body(content = AcquireGroupJson, description = "The locks, and the terms of the \
                                                            leases."),
    responses(
        (status = 200, body = GroupLeaseBody,
         description = "The leases that an earlier request with this `Idempotency-Key` acquired.",
         headers(("Preference-Applied", description = "`wait=N`, if the request preferred it."),
                 ("Latchgate-Warning", description = "Only with a short `Idempotency-Key`."))),
        (status = 201, body = GroupLeaseBody, description = "New leases.",
         headers(("Preference-Applied", description = "`wait=N`, if the request preferred it."),
                 ("Latchgate-Warning", description = "Only with a short `Idempotency-Key`."))),
    )
)]
pub(in crate::http) async fn acquire_group(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::Acquire>,
    _: AcceptsJson,
    (_, context, connection): (NoQuery, RequestContext, Connection),
    (preferred, IdempotencyKeyHeader(key)): (PreferredWait, IdempotencyKeyHeader),
    ApiJson(AcquireGroupBody { locks, mut terms }): ApiJson<AcquireGroupBody>,
) -> Annotated<Acquired> {
    // If the caller hangs up from here on, the engine releases the locks it has taken.
    let mut notes = Notes::has_short(key.as_ref());
    notes.wait = terms.prefer(preferred, &gateway.config.limits);
    let begun = || {
        let GroupLocks { names, own } = locks.ok_or_else(missing_names)?;
        check_permission(&caller, &names)?;
        // Each name counts as a request. The first name was counted, and had to fit the rate, when the caller
        // was admitted.
        caller.count_further_requests(names.as_slice().len() - 1);
        let request = GroupRequest::new(names, |name| {
            let mut part = terms.clone();
            let own = own.get(name).copied().unwrap_or_default();
            part.become_part(own.mode, own.order);
            part.complete(name, gateway.declared(name).as_deref(), &gateway)?;
            part.into_request(name.clone(), key.clone(), &caller)
        })?;
        let mut parts = request.parts().iter();
        if parts.all(|part| part.terms.said.order.is_none()) {
            terms.refuse_untaken()?;
        }
        let waits = !request.keyed().wait.is_zero();
        let permit = waits.then(|| connection.take_for_long(false)).transpose()?;
        // The request waits for one lock at a time, and no position is kept for it.
        let waiter = WaiterCount::without_position(&gateway.engine, &caller, request.keyed())?;
        let granted = gateway.engine.acquire_group(request, || context.wait());
        Ok::<_, Problem>((permit, waiter, granted))
    };
    let answer = match begun() {
        Err(problem) => Err(problem),
        Ok((_permit, waiter, granted)) => {
            let granted = granted.await;
            drop(waiter);
            let explain = |error: GroupAcquireError| {
                let declared = error.name.as_ref().and_then(|name| gateway.declared(name));
                let problem = Problem::for_group(error, |name| caller.views(name));
                problem.described_by(declared.as_deref())
            };
            granted
                .map_err(explain)
                .map(|granted| Acquired::all(granted, connection, &gateway))
        }
    };
    Annotated { answer, notes }
}

// === Acquire group body ===
//
// Body of a request for several locks.

/// The locks, and the terms of each lease.
pub(in crate::http) struct AcquireGroupBody {
    /// The locks. `None`: they are missing or invalid, and the request is refused.
    locks: Option<GroupLocks>,
    terms: AcquireBody,
}

/// The locks of a group.
struct GroupLocks {
    names: GroupNames,
    /// The terms of the locks that are objects in the list.
    own: BTreeMap<LockName, OwnTerms>,
}

/// The terms that one lock of a group has for itself.
#[derive(Clone, Copy, Default)]
struct OwnTerms {
    /// As [`sharing`] reads it; `None` for a lock that is only named.
    mode: Option<(Option<Sharing>, bool)>,
    order: Option<OrderNumber>,
}

/// One lock of a group as the list `names` has it: its name, and the terms that only this lock has.
pub(in crate::http) struct LockOfGroup {
    /// `None`: the name is missing or invalid, and the request is refused.
    name: Option<LockName>,
    own: OwnTerms,
}

/// Body of a request for several locks in the OpenAPI document.
pub(in crate::http) type AcquireGroupJson = ApiJson<AcquireGroupBody>;

declare_fields! {
    /// The locks and the terms of their leases: every field but `names` is as for one lock, and applies to
    /// each of them.
    const ACQUIRE: "AcquireGroupBody" => Form::TEXT.example(r#"{
        "names": ["database", {"name": "cluster:eu", "mode": "shared"}],
        "ttl_ms": 30000, "wait_ms": 10000, "owner": "ci-runner-7"
    }"#);
    /// One lock of a group: its name, and the mode, the limit and the order that only this lock has. Null is the same as
    /// leaving a field out.
    const LOCK: "LockOfGroup" => Form::TEXT.example(r#"{"name": "openai", "mode": "shared", "limit": 20}"#);
    /// The name of the lock.
    const LOCK_NAME: "name" => NAME.required();
}

// === impl AcquireGroupBody ===

impl RequestBody for AcquireGroupBody {
    const ABOUT: Field = ACQUIRE;

    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            locks: locks(fields),
            terms: AcquireBody::of_any(fields),
        }
    }
}

// === impl LockOfGroup ===

impl RequestBody for LockOfGroup {
    const ABOUT: Field = LOCK;

    fn read(fields: &mut Fields<'_>) -> Self {
        if !fields.has(&LOCK_NAME) {
            fields.refuse(&LOCK_NAME, "is missing");
        }
        let (name, mode) = (fields.parsed(&LOCK_NAME, LockName::new), sharing(fields));
        let own = OwnTerms {
            mode: Some(mode),
            order: order(fields, &ORDER),
        };
        Self { name, own }
    }
}

/// Release several leases
///
/// Ends the living leases of this token, each as if it were released alone. The release is carried out even
/// if the caller hangs up. The answer is 200 if at least one lease was released: look at `results`, where a
/// lost lease has the `code` `lease-lost`. It is 410 if the token holds none of these locks. For a group that
/// was acquired with an `Idempotency-Key` only the release of the last name is remembered: repeated, that
/// release succeeds again, and the others are `lease-lost`. A lease with the `code` `store-unavailable` or
/// `outcome-unknown` can be released once more.
///
/// The token is sent in the header `Lock-Token`: there is no body, because proxies drop that of a DELETE.
#[utoipa::path(
    delete,
    path = "/locks",
    operation_id = "releaseLocks",
    tag = "locks",
    params(ApiQuery<(GroupQuery, ReleaseQuery)>, OnlyToken),
    responses(
        (status = 200, body = ReleasedGroupBody, description = "The outcome for each lease."),
    )
)]
pub(in crate::http) async fn release_group(
    State(gateway): State<Arc<AppState>>,
    who: UnrefusedCaller,
    _: AcceptsJson,
    ApiQuery((query, ReleaseQuery(bearer))): ApiQuery<(GroupQuery, ReleaseQuery)>,
    token: LockToken,
) -> Result<ReleaseAnswer<JsonResponse<ReleasedGroupBody>>, Problem> {
    let names = query.names()?;
    let token = token.required()?.hash();
    // If this gateway knows one of the leases, `charge` refuses nothing: a lease granted here can always be
    // released.
    let mut known = names.iter();
    let known = known.find(|name| gateway.engine.has_lease(name, &token));
    let by = who.actor();
    let charge = who.charge(&gateway, known.unwrap_or(&names.as_slice()[0]), &token)?;
    // If the caller hangs up from here on, the engine still completes the commands.
    let releases = names.iter().map(|name| {
        let engine = &gateway.engine;
        engine.begin_release(bearer, name.clone(), token)
    });
    let releases: Vec<_> = releases.collect();
    let commands = releases
        .iter()
        .map(|release| gateway.engine.carry_out(release.clone(), by.clone()));
    let answers = join_all(commands).await;
    let (mut outcomes, mut is_guess) = (Outcomes::default(), true);
    let mut unanswered = UnansweredReleases {
        gateway: Arc::clone(&gateway),
        releases: Vec::new(),
    };
    for ((name, release), answer) in names.iter().zip(releases).zip(answers) {
        is_guess &= answer.as_ref().is_err_and(is_guessed);
        match answer {
            Ok(()) => outcomes.add_done(name, None),
            Err(error) => {
                if error.may_pass() {
                    unanswered.releases.push(release);
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

/// The answer to a release of several leases.
#[derive(Serialize, ToSchema)]
#[schema(as = ReleasedGroup)]
pub(in crate::http) struct ReleasedGroupBody {
    /// The outcome for each lock, in the order of the names.
    #[schema(min_items = 2, max_items = 16)]
    results: Vec<PartResult>,
}

/// Renew several leases
///
/// Makes the living leases of this token last longer, each as if it were renewed alone. The answer is 200 if
/// at least one lease was renewed: look at `results`, where a lost lease has the `code` `lease-lost`. It is
/// 410 if the token holds none of these locks.
#[utoipa::path(
    put,
    path = "/locks",
    operation_id = "renewLocks",
    tag = "locks",
    params(ApiQuery<GroupQuery>, LockToken),
    request_body(
        content = RenewJson,
        description = "The new TTL. The body may be left out."
    ),
    responses(
        (status = 200, body = RenewedGroupBody, description = "The outcome for each lease."),
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
        engine.renew(
            name.clone(),
            token.clone(),
            gateway.bounded_renewal(name, ttl),
        )
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

/// The answer to a renewal of several leases.
#[derive(Serialize, ToSchema)]
#[schema(as = RenewedGroup)]
pub(in crate::http) struct RenewedGroupBody {
    /// The outcome for each lock, in the order of the names.
    #[schema(min_items = 2, max_items = 16)]
    results: Vec<PartResult>,
    /// Time left of the renewed lease that ends first.
    expires_in_ms: u64,
    /// After how long to renew the leases again: a third of what is left.
    renew_after_ms: u64,
}

/// Collects the outcomes of a command for each of several leases.
#[derive(Default)]
struct Outcomes {
    results: Vec<PartResult>,
    is_any_done: bool,
    /// The problem of the last lease whose command failed for another reason than a lost lease.
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

    /// Returns the outcomes for the answer. If the command succeeded for no lease, the whole request fails.
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

/// Query of a command on several leases: the names of the locks. `None`: they are missing or invalid.
pub(in crate::http) struct GroupQuery(pub(super) Option<GroupNames>);

declare_fields! {
    /// The names of the locks, with commas between: 2 to 16, each once, in any order.
    const IN_QUERY: "names" => Form::text(
        0,
        GroupNames::MAX * (LockName::MAX_LEN + 1) - 1,
        NAMES_PATTERN,
    )
    .required()
    .example("cluster:eu,database");
    /// The locks: 2 to 16, each once, in any order. A lock is a name, or an object with its name, `mode`, `limit`
    /// and `order`. Beside an object, a name alone has the mode that is declared for it, or is exclusive, and a `mode`
    /// or `limit` for all locks is refused. An `order` beside `names` is for the locks that are held alone.
    /// The locks are taken in the order of their names.
    const NAMES: "names" => NAME.list(LOCK.name, GroupNames::MIN, GroupNames::MAX).required();
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

/// Reads the field `names`.
fn locks(fields: &mut Fields<'_>) -> Option<GroupLocks> {
    let (mut all, mut has_terms) = (BTreeMap::new(), false);
    let names = fields.list(&NAMES, LockName::new, |fields| {
        has_terms = true;
        let LockOfGroup { name, own } = LockOfGroup::read(fields);
        all.extend(name.clone().map(|name| (name, own)));
        name
    })?;
    for field in [&MODE, &LIMIT] {
        if has_terms && fields.has(field) {
            fields.refuse(
                field,
                "stands beside an object in names; give each of the locks its own",
            );
        }
    }
    let names = if (GroupNames::MIN..=GroupNames::MAX).contains(&names.len()) {
        // If a name is invalid, it was refused with its index.
        GroupNames::new(names.into_iter().collect::<Option<Vec<_>>>()?)
    } else {
        Err(GroupNamesError::Count(names.len()))
    };
    let names = fields.check(&NAMES, names)?;
    Some(GroupLocks { names, own: all })
}

/// Refuses the request unless the caller may acquire each of the locks.
fn check_permission(caller: &Access, names: &GroupNames) -> Result<(), Problem> {
    let permission = Permission::Acquire;
    let refused = names
        .iter()
        .find(|name| !caller.permits(permission, Some(name)));
    refused.map_or(Ok(()), |name| {
        Err(Problem::forbidden(permission, Some(name)))
    })
}

/// The problem of a body without `names`.
fn missing_names() -> Problem {
    Problem::invalid_field(NAMES.name, "is missing; it has 2 to 16 names of locks")
}

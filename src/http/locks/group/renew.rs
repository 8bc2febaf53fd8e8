//! `PUT /locks`: keep several locks.

use std::{sync::Arc, time::Duration};

use axum::extract::State;
use futures_util::future::join_all;
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::{
    auth::scope,
    engine::RenewError,
    http::{
        extract::{AcceptsJson, ApiJson, ApiQuery, Caller, LockToken},
        json_response::JsonResponse,
        problem::{PartResult, Problem},
        state::AppState,
    },
    store::contract::RenewalTtl,
};

use super::{
    super::{
        lease_view::millis,
        renew::{RenewBody, RenewJson},
    },
    names::{GroupQuery, check_permission},
};

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
    let token = token.or(body.token)?;
    if let Some(ttl) = body.ttl {
        Problem::check_ttl(ttl, &caller)?;
    }
    let charge = caller.charge();
    let ttl = RenewalTtl {
        asked: body.ttl,
        max: caller.max_ttl(),
    };
    let renewals = names.iter().map(|name| {
        let engine = &gateway.engine;
        engine.renew(name.clone(), token.clone(), ttl)
    });
    let renewed = join_all(renewals).await;
    let (mut results, mut left, mut failure, mut all_lost) = (Vec::new(), None, None, true);
    for (name, renewal) in names.iter().zip(renewed) {
        let is_lost = matches!(renewal, Err(RenewError::Lost(_)));
        all_lost &= is_lost;
        match renewal {
            Ok(lease) => {
                let held = lease.held.at(Instant::now());
                let (told, next) = (held.good_for(), held.renew_after());
                left = Some(
                    left.map_or((told, next), |(left, soonest): (Duration, Duration)| {
                        (left.min(told), soonest.min(next))
                    }),
                );
                results.push(PartResult::done(name, Some(&held)));
            }
            Err(error) => {
                let problem = Problem::from(error);
                results.push(problem.of_part(name));
                if !is_lost {
                    failure = Some(problem);
                }
            }
        }
    }
    if all_lost {
        drop(charge);
        return Err(Problem::all_lost(results));
    }
    charge.forgive();
    match (left, failure) {
        (Some((left, renew_after)), _) => Ok(JsonResponse(RenewedGroupBody {
            results,
            expires_in_ms: millis(left),
            renew_after_ms: millis(renew_after),
        })),
        (None, Some(problem)) => Err(problem),
        (None, None) => Err(Problem::all_lost(results)),
    }
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

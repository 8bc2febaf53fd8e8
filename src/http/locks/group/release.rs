//! `DELETE /locks`: give several locks back.

use std::sync::Arc;

use axum::extract::State;
use futures_util::future::join_all;
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use crate::{
    engine::ReleaseError,
    http::{
        extract::{AcceptsJson, ApiQuery, LockToken, OnlyToken, ReleaseCaller},
        json_response::JsonResponse,
        problem::{PartResult, Problem},
        serve::UnansweredReleases,
        state::AppState,
    },
    store::contract::Loss,
};

use super::{super::release::ReleaseAnswer, names::GroupQuery};

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
    who: ReleaseCaller,
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
    let (mut results, mut any, mut failure, mut is_guess) = (Vec::new(), false, None, true);
    let mut unanswered = UnansweredReleases {
        gateway: Arc::clone(&gateway),
        token,
        names: Vec::new(),
        since,
    };
    for (name, release) in names.iter().zip(released) {
        match release {
            Ok(()) => {
                (any, is_guess) = (true, false);
                results.push(PartResult::done(name, None));
            }
            Err(error) => {
                match &error {
                    ReleaseError::Lost(loss) => {
                        // A token that was a lease's once is no guess.
                        is_guess &= !matches!(loss, Loss::Broken { .. });
                    }
                    ReleaseError::Store(_) => is_guess = false,
                }
                if error.may_pass() {
                    unanswered.names.push(name.clone());
                }
                let is_lost = matches!(error, ReleaseError::Lost(_));
                let problem = if gateway.gate.is_open() {
                    error.into()
                } else {
                    Problem::for_unauthenticated(error)
                };
                results.push(problem.of_part(name));
                if !is_lost {
                    failure = Some(problem);
                }
            }
        }
    }
    if is_guess {
        drop(charge);
    } else {
        charge.forgive();
    }
    let answer = match (any, failure) {
        (true, _) => Ok(JsonResponse(ReleasedGroupBody { results })),
        (false, Some(problem)) => Err(problem),
        (false, None) => Err(Problem::all_lost(results)),
    };
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

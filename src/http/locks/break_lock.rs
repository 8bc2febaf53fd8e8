//! `POST /locks/{name}/break`: take a lock away from whoever holds it.

use std::{collections::BTreeMap, sync::Arc};

use axum::extract::State;
use tracing::info;
use utoipa::{
    IntoResponses,
    openapi::{RefOr, Response},
};

use crate::{
    audit::{Audit, BreakAttempt, Requester},
    auth::scope,
    engine::BreakError,
    http::{
        extract::{AcceptsJson, ApiJson, ApiPath, Caller, NoQuery, Provenance},
        json_response::JsonResponse,
        problem::{Problem, ProblemCode as Code, problem_responses},
        state::AppState,
    },
    lock::{BreakTarget, FencingToken, LockName, Metadata, Reason},
    store::contract::Holder,
};

use super::{break_body::BreakBody, lock_path::LockPath, page_body::HeldLockBody};

/// The problems of break.
struct BreakProblems;

/// A break, as it is written down.
struct BreakRecord {
    audit: Audit,
    key: Option<Arc<str>>,
    provenance: Provenance,
    name: LockName,
    /// The lease that was meant, and after the break the one that was broken.
    fence: Option<FencingToken>,
    reason: Reason,
}

/// Break a lock
///
/// Takes the lock away from whoever holds it, and passes it on to the first who waits for it. Nobody
/// can stop the old holder from working on: for a minute its renew and release answer 410
/// `lease-lost` and say that the lease was broken, and its hold stream ends with `lost` (`broken`).
/// Only what checks the fencing token is safe from it at once.
///
/// Send the `fencing_token` of the lease that is meant, as inspect or list shows it. If something else
/// holds the lock by then the answer is 409 `holder-changed`; if nobody does, 409 `not-held`. So a
/// repetition of a break that was not answered breaks nothing else: either of these answers says that
/// the lease is gone. Without it whoever holds the lock is hit, and a repetition hits the next one.
///
/// A foreign client has no fencing token. Send its `foreign_mark` instead, with the same answers. Most
/// clients write something new each time, and so have another mark each time; one that always writes the
/// same cannot be told from itself, so look before you repeat such a break.
///
/// An API key without `view` on the lock is not told the owner and the metadata of what it broke.
///
/// Once begun it is carried out even if the caller hangs up. Works while the gateway drains.
#[utoipa::path(
    post,
    path = "/locks/{name}/break",
    operation_id = "break",
    tag = "locks",
    params(LockPath),
    request_body(content = BreakBody, description = "Why, and from whom."),
    responses(
        (status = 200, body = HeldLockBody, description = "What was broken, as it was before."),
        BreakProblems,
    )
)]
pub(in crate::http) async fn break_lock(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::Break>,
    provenance: Provenance,
    _: AcceptsJson,
    ApiPath(name): ApiPath<LockName>,
    _: NoQuery,
    ApiJson(body): ApiJson<BreakBody>,
) -> Result<JsonResponse<HeldLockBody>, Problem> {
    let target = body.target();
    let reason = body.reason.expect("a body without a reason is refused");
    let record = BreakRecord {
        audit: gateway.audit.clone(),
        key: caller.name().cloned(),
        provenance,
        name: name.clone(),
        fence: match target {
            Some(BreakTarget::Lease(fence)) => Some(fence),
            Some(BreakTarget::Foreign(_)) | None => None,
        },
        reason: reason.clone(),
    };
    // A caller that hangs up from here on still wants it: the engine sees the command through.
    let write_record = async move |outcome| record.write(&outcome).await;
    let broken = gateway
        .engine
        .break_lock(name.clone(), target, reason, write_record);
    let mut holder = broken.await?;
    if let (Holder::Lease(lease), false) = (&mut holder, caller.views(&name)) {
        lease.owner = None;
        lease.metadata = Metadata::default();
    }
    Ok(JsonResponse(HeldLockBody::new(
        &name,
        holder,
        gateway.clock.wall(),
    )))
}

// === impl BreakRecord ===

impl BreakRecord {
    /// Writes down what became of it, before it is answered.
    async fn write(mut self, outcome: &Result<Holder, BreakError>) {
        let outcome = match outcome {
            Ok(Holder::Lease(lease)) => {
                self.fence = Some(lease.fence);
                "broken"
            }
            Ok(Holder::Foreign { .. }) => "broken",
            Err(error) => Problem::from(error.clone()).code.as_str(),
        };
        // Also where no audit log is kept.
        let (name, reason) = (&self.name, &self.reason);
        let (fence, id) = (
            self.fence.map(FencingToken::get),
            self.provenance.request_id.as_str(),
        );
        info!(%name, fencing_token = fence, reason = reason.as_str(), outcome, id, "break");
        let broken = BreakAttempt {
            requester: Requester {
                key: self.key.as_deref(),
                request_id: self.provenance.request_id.as_str(),
                remote: self.provenance.remote,
            },
            name: &self.name,
            fencing_token: self.fence,
            reason: self.reason.as_str(),
            outcome,
        };
        self.audit.lock_broken(&broken).await;
    }
}

// === impl BreakProblems ===

impl IntoResponses for BreakProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problem_responses(&[
            Code::InvalidRequest,
            Code::Unauthorized,
            Code::Forbidden,
            Code::OriginRefused,
            Code::RateLimited,
            Code::RequestTimeout,
            Code::HolderChanged,
            Code::NotHeld,
            Code::TooLarge,
            Code::UnsupportedMediaType,
            Code::Internal,
            Code::ForeignData,
            Code::StoreUnavailable,
            Code::Overloaded,
            Code::Draining,
            Code::OutcomeUnknown,
        ])
    }
}

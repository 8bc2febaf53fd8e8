//! `POST /locks/{name}/break`: take a lock away from its holder, at once or after a release request.

use std::{sync::Arc, time::Duration};

use axum::extract::State;
use http::StatusCode;
use tracing::info;

use crate::{
    audit::{Audit, AuditedLease, BreakAttempt},
    auth::{Permission, scope},
    engine::{BreakError, ReleaseRecord},
    http::{
        extract::{
            AcceptsJson, ApiJson, ApiPath, Caller, Field, Fields, Form, NoQuery, Provenance,
            RequestBody, declare_fields,
        },
        json_response::JsonResponse,
        problem::Problem,
        state::AppState,
    },
    lock::{
        BreakTarget, FencingToken, ForeignMark, HeldLease, LockName, Owner, Reason, ReleaseRequest,
    },
    store::contract::Holder,
};

use super::{lease_view::millis, look::HeldLockBody};

/// What the audit log and the ordinary log record about a break.
struct BreakRecord {
    audit: Audit,
    /// The caller as it is shown.
    key: Option<Arc<str>>,
    /// The mark of the caller, by which its own reservation is recognized.
    mark: Option<Arc<str>>,
    provenance: Provenance,
    name: LockName,
    /// Fencing token of the lease to break, if the request names one.
    fence: Option<FencingToken>,
    reason: Reason,
}

/// Break a lock
///
/// Takes the lock away from its holder, and passes it on to the first waiter. Nobody can stop the old holder
/// from working on: for a minute its renew and release answer 410 `lease-lost` and say that the lease was
/// broken, and its hold stream ends with `lost` (`broken`). Only a resource that checks the fencing token is
/// safe from the old holder at once.
///
/// Send the `fencing_token` of the lease to break, as inspect or list shows it. If another holder has the
/// lock by then, the answer is 409 `holder-changed`; if the lock is free, 409 `not-held`. So a break that is
/// repeated because its answer was lost breaks nothing else: either of these answers says that the lease is
/// gone. Without `fencing_token` the current lease is broken, and a repetition breaks the next lease.
///
/// For a shared lock, `fencing_token` names one lease, and the other leases go on. `"all": true` breaks all
/// leases that hold the lock now; sent again, the leases granted since. With neither the answer is 400.
///
/// A foreign client has no fencing token. Send its `foreign_mark` instead, with the same answers. Most
/// clients write a new value each time, and so have a new mark each time; a client that always writes the
/// same value always has the same mark, so look before you repeat such a break.
///
/// An API key without `view` on the lock does not see the owner and the metadata of the broken lease.
///
/// With `grace_ms` the holder is asked to release the lock first, and the answer is 202 with that holder. The
/// holder learns of the release request (`release_requested`: by whom, why, and how much time is left) with
/// its next renewal, and on its hold stream at once. Nothing renews the lease beyond that time. If the lease
/// is not released by then, it is broken as above; if this gateway has stopped meanwhile, the store ends the
/// lease a second later. Of several release requests the one that ends first counts, and a break without
/// `grace_ms` ends the lease now. A holder that renews more seldom than `grace_ms` may not hear of the
/// request in time. A foreign client cannot be asked: the answer is 400.
///
/// A reservation is ended by the caller that made it without the permission `break`, and without `grace_ms`. That is
/// recorded as a release.
///
/// Once begun, the break is carried out even if the caller hangs up. If the store does not answer, the break
/// is not tried again later. Works while the gateway drains.
#[utoipa::path(
    post,
    path = "/locks/{name}/break",
    operation_id = "breakLock",
    tag = "locks",
    params(ApiPath<LockName>),
    request_body(content = BreakJson, description = "The reason, and the lease to break."),
    responses(
        (status = 200, body = HeldLockBody, description = "The leases, as they were before the \
                                                           break."),
        (status = 202, body = HeldLockBody,
         description = "With `grace_ms`: the leases whose release was requested, and their \
                        deadline."),
    )
)]
pub(in crate::http) async fn break_lock(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::Break>,
    provenance: Provenance,
    _: AcceptsJson,
    ApiPath(name): ApiPath<LockName>,
    _: NoQuery,
    ApiJson(mut body): ApiJson<BreakBody>,
) -> Result<(StatusCode, JsonResponse<HeldLockBody>), Problem> {
    if !caller.permits(Permission::Break, Some(&name)) {
        let seen = gateway.engine.inspect(&name).await?;
        if seen.holder.is_none() && caller.permits(Permission::Reserve, Some(&name)) {
            // Perhaps an earlier copy of the request has ended the reservation.
            return Err(BreakError::NotHeld.into());
        }
        body.aim_at_own(seen.holder.as_ref(), caller.mark())
            .ok_or_else(|| Problem::forbidden(Permission::Break, Some(&name)))?;
    }
    let target = body.target;
    let reason = body.reason.expect("a body without a reason is refused");
    let record = BreakRecord {
        audit: gateway.audit.clone(),
        mark: caller.mark().cloned(),
        key: caller.name().cloned(),
        provenance,
        name: name.clone(),
        fence: match target {
            Some(BreakTarget::Lease(fence)) => Some(fence),
            Some(BreakTarget::Foreign(_) | BreakTarget::All) | None => None,
        },
        reason: reason.clone(),
    };
    // If the caller hangs up from here on, the engine still completes the command.
    let (status, mut holder) = match body.grace {
        None => {
            let write_record = async move |outcome| record.write(&outcome, BROKEN).await;
            let broken = gateway.engine.break_lock(
                name.clone(),
                target,
                reason,
                caller.actor(),
                write_record,
            );
            (StatusCode::OK, broken.await?)
        }
        Some(within) => {
            let by = caller.name().cloned();
            let request = ReleaseRequest { by, reason, within };
            let record = Arc::new(record);
            let write_record = move |written| Arc::clone(&record).write_request(written);
            let engine = &gateway.engine;
            let (lock, by) = (name.clone(), caller.actor());
            let requested = engine.request_release(lock, target, request, by, write_record);
            (StatusCode::ACCEPTED, requested.await?)
        }
    };
    if !caller.views(&name) {
        for lease in holder.leases_mut() {
            lease.hide_details();
        }
    }
    let body = HeldLockBody::new(&name, holder, gateway.clock.wall(), &caller);
    Ok((status, JsonResponse(body)))
}

/// Outcome word in the audit log: the lease was broken.
const BROKEN: &str = "broken";
/// Outcome word in the audit log: the API key that made the reservation has ended it.
const RELEASED: &str = "released";
/// Outcome word in the audit log: the holder was asked to release the lease.
const REQUESTED: &str = "requested";

// === impl BreakRecord ===

impl BreakRecord {
    /// Records the outcome of a release request, or a lease that was broken after the request.
    async fn write_request(self: Arc<Self>, written: ReleaseRecord) {
        match written {
            ReleaseRecord::Requested(outcome) => self.write(&outcome, REQUESTED).await,
            ReleaseRecord::Broken(holder) => self.write(&Ok(holder), BROKEN).await,
        }
    }

    /// Records the outcome of the break before the caller is answered. `done` is the outcome word for
    /// success.
    async fn write(&self, outcome: &Result<Holder, BreakError>, done: &str) {
        let (holder, outcome) = match outcome {
            Ok(holder) => match holder.leases() {
                [lease] if done == BROKEN && lease.is_reserved_by(self.mark.as_ref()) => {
                    (Some(holder), RELEASED)
                }
                _ => (Some(holder), done),
            },
            Err(error) => (None, Problem::from(error.clone()).code.as_str()),
        };
        // The audit log gets one entry for each lease that was broken or asked to end. If there is no such
        // lease (an error, or a foreign client), it gets one entry with the fencing token of the request, if
        // any.
        let broken = holder.map_or(&[][..], Holder::leases).iter();
        let mut leases: Vec<_> = broken.map(audited).collect();
        if leases.is_empty() {
            leases.push(AuditedLease {
                fence: self.fence,
                ..AuditedLease::default()
            });
        }
        // The ordinary log records the break too, because an audit log may not be configured.
        let (name, reason) = (&self.name, &self.reason);
        let (id, key) = (self.provenance.request_id.as_str(), self.key.as_deref());
        for AuditedLease { fence, owner, .. } in &leases {
            let fence = fence.map(FencingToken::get);
            info!(%name, fencing_token = fence, owner, reason = reason.as_str(), outcome, key, id, "break");
        }
        let attempt = BreakAttempt {
            requester: self.provenance.requester(self.key.as_ref()),
            name: &self.name,
            leases: &leases,
            reason: self.reason.as_str(),
            outcome,
        };
        self.audit.lock_broken(&attempt).await;
    }
}

/// A lease as the audit log shows it.
pub(super) fn audited(lease: &HeldLease) -> AuditedLease<'_> {
    let reservation = lease.reservation.as_deref();
    AuditedLease {
        fence: Some(lease.fence),
        owner: lease.said.owner.as_ref().map(Owner::as_str),
        reserved_by: reservation.and_then(|it| it.by.as_deref()),
    }
}

// === Break body ===
//
// Body of a break request.

pub(in crate::http) struct BreakBody {
    /// The reason of the break. `None`: the field is missing or invalid, and the request is refused.
    reason: Option<Reason>,
    /// Which holder of the lock to break. `None`: the current holder.
    target: Option<BreakTarget>,
    grace: Option<Duration>,
}

/// Body of a break request in the OpenAPI document.
pub(in crate::http) type BreakJson = ApiJson<BreakBody>;

declare_fields! {
    /// Why a lock is broken, and which holder loses it.
    const BREAK: "BreakBody" => Form::TEXT.example(
        r#"{"reason": "runner 7 is gone, asked in #ops", "fencing_token": 1795170000000042}"#
    );
    /// The reason of the break, for people to read, in the audit log. No control characters.
    const REASON: "reason" => Form::prose(Reason::MAX_CHARS).required();
    /// The lease to break: if another holder has the lock by now, nothing is broken. Without this field,
    /// `foreign_mark` and `all`: the current holder, a foreign client included, unless the lock is shared.
    const FENCE: "fencing_token" => Form::whole(|_| (1, FencingToken::MAX.get()));
    /// The foreign client to break, by the `foreign_mark` that inspect and list show: if another holder has
    /// the lock by now, nothing is broken. Not together with `fencing_token`.
    const MARK: "foreign_mark" =>
        Form::text(ForeignMark::DIGITS, ForeignMark::DIGITS, "^[0-9a-f]{40}$");
    /// Whether to break all holders of the lock. Not together with `fencing_token` or `foreign_mark`.
    const ALL: "all" => Form::FLAG;
    /// How much time the holder has to release the lock itself, in milliseconds. 0, or left out: none, the
    /// lock is broken now.
    const GRACE: "grace_ms" => Form::millis(|_| (0, millis(ReleaseRequest::MAX_WITHIN)));
}

// === impl BreakBody ===

impl BreakBody {
    /// Aims the break at the reservation of the caller with this mark. `None` if that caller has not reserved the lock, or
    /// if the request means anything else.
    fn aim_at_own(&mut self, holder: Option<&Holder>, mark: Option<&Arc<str>>) -> Option<()> {
        let mut leases = holder?.leases().iter();
        let own = leases.find(|lease| lease.is_reserved_by(mark))?;
        let own = BreakTarget::Lease(own.fence);
        let is_meant = self.grace.is_none() && self.target.is_none_or(|target| target == own);
        self.target = Some(own);
        is_meant.then_some(())
    }
}

impl RequestBody for BreakBody {
    const ABOUT: Field = BREAK;

    fn read(fields: &mut Fields<'_>) -> Self {
        let text = fields.text(&REASON).unwrap_or_default();
        let reason = fields.check(&REASON, Reason::not_blank(&text));
        let fence = fields.whole(&FENCE);
        let fence = fence.and_then(|number| fields.check(&FENCE, FencingToken::new(number)));
        let mark = fields.text(&MARK);
        if mark.is_some() && fence.is_some() {
            fields.refuse(
                &MARK,
                "is of a foreign client, which has no fencing_token: send only one of the two",
            );
        }
        let all = fields.flag(&ALL).unwrap_or_default();
        if all && (mark.is_some() || fence.is_some()) {
            fields.refuse(
                &ALL,
                "is true, which breaks all leases: leave fencing_token and foreign_mark out",
            );
        }
        let grace = fields.whole(&GRACE).filter(|&ms| ms > 0);
        if grace.is_some() && mark.is_some() {
            fields.refuse(
                &GRACE,
                "is for holders that the gateway can ask, which a foreign client is not: leave it \
                 out",
            );
        }
        let mark = mark.and_then(|text| fields.check(&MARK, ForeignMark::new(&text)));
        let one = fence
            .map(BreakTarget::Lease)
            .or(mark.map(BreakTarget::Foreign));
        Self {
            reason,
            target: one.or(all.then_some(BreakTarget::All)),
            grace: grace.map(Duration::from_millis),
        }
    }
}

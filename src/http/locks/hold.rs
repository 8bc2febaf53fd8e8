//! `POST /locks/{name}/hold`: hold a lock for as long as a connection lives.

use std::{
    future::poll_fn,
    ops::ControlFlow::{Break, Continue},
    sync::Arc,
    time::Duration,
};

use axum::extract::State;
use bytes::Bytes;
use serde_json::json;
use tokio::time::Instant;
use tracing::{debug, info};
use utoipa::ToSchema;

use crate::{
    auth::{LimitSlot, scope},
    config::DeclaredLock,
    engine::{AdoptError, Hold, HoldEnd, HoldEvent},
    http::{
        event_stream::{EventAnswer, EventSource, EventStream, NextEvent, encode},
        extract::{
            AdoptedToken, ApiJson, ApiPath, Caller, IdempotencyKeyHeader, LockToken, NoQuery,
            PreferredWait,
        },
        json_response::json as to_json,
        problem::{Problem, document},
        state::AppState,
    },
    lock::{HeldLease, Lease, LockName},
    store::parking::Position,
};

use super::{
    acquire::{AcquireBody, AcquireJson, WaiterCount},
    answer::{Annotated, Notes},
    lease_view::{LeaseBody, millis, release_request_body},
};

/// For how long a client in the queue may at least leave sent data unacknowledged. The client holds nothing yet,
/// and a short pause must not cost it its position.
const QUEUED: Duration = Duration::from_secs(30);

/// For how long a client that holds this lease may leave sent data unacknowledged: for a TTL. A reservation has none, and
/// ends with the stream that has adopted it.
fn allowed_silence(held: &HeldLease) -> Duration {
    match held.reservation {
        Some(_) => QUEUED,
        None => held.ttl.duration(),
    }
}

/// Hold a lock
///
/// Acquires a lock and keeps it for as long as the connection lives: the gateway renews the lease,
/// and releases it when the connection closes. `curl -N -X POST localhost:7420/locks/deploy/hold`
/// holds a lock until Ctrl-C.
///
/// The answer is a stream of server-sent events, each with JSON as its data:
///
/// * `queued` `{position, waiters}`: the request stands in the queue; position 1 is served next. Sent
///   again when the position has changed, within a few seconds and not for every step.
/// * `granted` with the lease: the lock is held from here on. The only event with a token.
/// * `renewed` `{expires_in_ms}`: the lock is still held, for so long from when you receive this event. The
///   time since the gateway asked the store is subtracted.
/// * `release-requested` `{by, reason, within_ms}`: a caller has asked for the lock: finish, and close the
///   connection in time. Comes at once, and again if less time is left than was said. If the lease has not
///   ended by then, it is broken.
/// * Lines that begin with a colon carry no event, and keep the connection open.
///
/// Exactly one of the following events is the last. A stream that ends without it has been cut: take the lock for
/// lost. A silent stream may have been cut as well: if no `granted` or `renewed` has come for the last
/// `expires_in_ms`, counted from when you received that event and less the time that it may have travelled,
/// take the lock for lost.
///
/// * `released` `{}`: the lease was released with its token, at this gateway. After a release at another
///   gateway, the stream ends with `lost` (`ended`) at its next renewal.
/// * `lost` `{reason}`: stop the work that the lock protects. `expired`: the lease could not be renewed in
///   time; `hold-limit`: `max_hold_ms` is over; `broken`: an operator broke the lease; `ended`: the lease
///   ended in another way; `revoked`: the API key is gone or may no longer acquire the lock, and the lease
///   ends within its TTL; `adopted`: another stream now keeps the lease; `unread`: the events of this stream
///   were not read; `failed`: the gateway failed, and the lease ends within its TTL.
/// * `refused` with a problem: the lock was not acquired, because the wait is over or for another reason.
/// * `draining` `{expires_in_ms}`: this gateway is about to stop. The lease is **not** released: it
///   lasts for that long, so adopt it at another gateway. With null there is no lease, because the
///   request was still queued.
///
/// With the header `Lock-Token` the stream adopts the lease with this token, and the fencing token stays the
/// same. Nothing is acquired then, and neither the body nor an `Idempotency-Key` changes the lease; a TTL
/// above that of the API key becomes that of the key. From then on this stream keeps the lease; if several
/// streams adopt a lease, the last keeps it. An older stream, at this gateway or another, ends with `lost`
/// (`adopted`) at its next renewal at the latest, and does not release the lease however late it closes. The
/// same holds for a stream whose lease was answered again under its `Idempotency-Key`.
///
/// Every caller with the token may also renew the lease. The `ttl_ms` of such a renewal becomes the TTL of
/// the lease. The stream learns the TTL with its next renewal, and uses it from then on.
///
/// A lock that is held is refused with 423 before there is a stream, unless the request waits.
/// `max_hold_ms` is 86400000 (24 h) if it is left out. If the gateway dies, the lease ends within
/// its TTL.
#[utoipa::path(
    post,
    path = "/locks/{name}/hold",
    operation_id = "holdLock",
    tag = "locks",
    params(ApiPath<LockName>, IdempotencyKeyHeader, PreferredWait, AdoptedToken),
    request_body(
        content = AcquireJson,
        description = "The terms of the lease, as for acquire. The body may be left out."
    ),
    responses(
        (status = 200, body = EventSchema, content_type = "text/event-stream",
         description = "The stream of events; the schema describes one event.",
         headers(("X-Accel-Buffering", description = "Always `no`."),
                 ("Preference-Applied", description = "`wait=N`, if the request preferred it."),
                 ("Latchgate-Warning", description = "Only with a short `Idempotency-Key`."))),
    )
)]
#[expect(
    clippy::too_many_arguments,
    reason = "each parameter is an extractor of a part of the request"
)]
pub(in crate::http) async fn hold(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::Keep>,
    stream: EventStream,
    ApiPath(name): ApiPath<LockName>,
    _: NoQuery,
    token: LockToken,
    preferred: PreferredWait,
    IdempotencyKeyHeader(key): IdempotencyKeyHeader,
    ApiJson(mut body): ApiJson<AcquireBody>,
) -> Annotated<HoldStream> {
    // If the caller hangs up from here on, the hold or its attempt is dropped: the attempt leaves the queue,
    // or the lease is released. A lease that was to be adopted stays as it was.
    let sees_holder = caller.views(&name);
    let mut notes = Notes::default();
    let declared = gateway.declared(&name);
    let answer = async {
        let (hold, counted, waiter) = if let Some(token) = token.0 {
            body.refuse_adopting()?;
            // The stream limit of the API key does not refuse an adoption: no caller may lose a lock to a
            // limit.
            let counted = caller.stream().unwrap_or_default();
            let authorization = caller.authorization(&name);
            let charge = caller.charge();
            let hold = gateway.engine.adopt(name, token, authorization).await;
            charge.settle(matches!(hold, Err(AdoptError::Lost(_))));
            (hold?, counted, None)
        } else {
            notes = Notes::has_short(key.as_ref());
            notes.wait = body.prefer(preferred, &gateway.config.limits);
            caller.count_request()?;
            body.complete(&name, declared.as_deref(), &gateway)?;
            let request = body.into_hold_request(name, key, &gateway.config.limits, &caller)?;
            let counted = caller.stream()?;
            let waiter = WaiterCount::count_request(&gateway.engine, &caller, &request)?;
            // While the client is queued it holds nothing, so it may be silent for longer. From the grant on, the
            // limit is the TTL of the lease.
            stream.set_user_timeout(request.terms.ttl().duration().max(QUEUED));
            let hold = gateway.engine.hold(request).await;
            let hold = hold.map_err(|error| Problem::for_acquire(error, sees_holder));
            let hold = hold.map_err(|problem| problem.described_by(declared.as_deref()))?;
            (hold, counted, Some(waiter))
        };
        let events = HoldEvents {
            hold,
            _counted: counted,
            waiter,
            gateway,
            declared,
            sees_holder,
        };
        Ok(HoldStream::new(events, stream))
    };
    let answer = answer.await;
    Annotated { answer, notes }
}

/// Source of the events of a hold stream. Dropping it releases the lease that the stream still keeps.
pub(in crate::http) struct HoldEvents {
    hold: Hold,
    /// Counts the stream against the limits of its API key until it is dropped.
    _counted: Option<LimitSlot>,
    /// Counts the request as a waiter against the limits of its API key, until the lock is granted.
    waiter: Option<WaiterCount>,
    gateway: Arc<AppState>,
    /// The declaration of the lock, whose description a refusal shows.
    declared: Option<Arc<DeclaredLock>>,
    /// Whether a refusal may say who holds the lock.
    sees_holder: bool,
}

/// The answer to a hold: a stream of events that ends with the lease. If its caller closes it first, the
/// lease is released.
pub(in crate::http) type HoldStream = EventAnswer<HoldEvents>;

// === impl HoldEvents ===

impl HoldEvents {
    fn write(&mut self, event: HoldEvent, stream: &EventStream) -> NextEvent {
        if let HoldEvent::Granted(Lease { held, .. }) | HoldEvent::Renewed(held) = &event {
            stream.set_user_timeout(allowed_silence(held));
        }
        let bytes = match event {
            HoldEvent::Queued(Position { ahead, waiters }) => {
                let data = json!({ "position": ahead + 1, "waiters": waiters });
                encode("queued", &to_json(&data))
            }
            HoldEvent::Granted(lease) => {
                if let Some(mut waiter) = self.waiter.take() {
                    waiter.finish();
                }
                let lease = LeaseBody::new(lease, self.gateway.clock.wall());
                encode("granted", &lease.to_json())
            }
            HoldEvent::Renewed(held) => {
                let left = held.at(Instant::now()).good_for();
                encode("renewed", &remaining(Some(left)))
            }
            HoldEvent::ReleaseRequested(request) => {
                let data = release_request_body(&request);
                encode("release-requested", &to_json(&data))
            }
            HoldEvent::Ended(end) => {
                self.waiter = None;
                return Break(self.write_end(end, stream.request_id()));
            }
        };
        Continue(bytes)
    }

    /// Encodes the last event and logs the end of the hold. The log gets a `reason` if the name of the event
    /// does not say enough, and the `cause` of a refusal, which only operators may see.
    fn write_end(&self, end: HoldEnd, id: &str) -> Bytes {
        let (mut reason, mut cause) = (None, None);
        let (end, data) = match end {
            HoldEnd::Released => ("released", Bytes::from_static(b"{}")),
            HoldEnd::Draining { until } => {
                let left = until.map(|until| until.saturating_duration_since(Instant::now()));
                ("draining", remaining(left))
            }
            HoldEnd::Lost(why) => {
                reason = Some(why.as_str());
                ("lost", to_json(&json!({ "reason": reason })))
            }
            HoldEnd::Refused(error) => {
                let problem = Problem::for_acquire(error, self.sees_holder);
                let problem = problem.described_by(self.declared.as_deref());
                let document = document(&problem, &self.gateway.base_path, id);
                (reason, cause) = (Some(problem.code.as_str()), problem.cause);
                ("refused", document)
            }
        };
        // A gateway that stops, or a client that is done, ends many streams in the usual way.
        if reason.is_some() {
            info!(id, end, reason, cause, "a held lock is no longer held here");
        } else {
            debug!(id, end, "a hold stream has ended");
        }
        encode(end, &data)
    }
}

impl EventSource for HoldEvents {
    const HUNG_UP: &str = "the holder of a hold stream has hung up, or does not read";

    async fn next(&mut self, stream: &EventStream) -> Option<NextEvent> {
        let event = poll_fn(|cx| self.hold.poll_next(cx)).await?;
        Some(self.write(event, stream))
    }
}

// === Hold event ===
//
// Schema of the events, for the OpenAPI document.

/// One event of the stream, as a parser of server-sent events returns it.
#[derive(ToSchema)]
#[schema(as = HoldEvent)]
#[expect(
    dead_code,
    reason = "the type only describes a body that is written as text"
)]
pub(in crate::http) struct EventSchema {
    /// What has happened to the hold.
    event: EventName,
    /// More about the event, as a JSON object.
    #[schema(content_media_type = "application/json")]
    data: String,
}

/// What has happened to a hold. The last four end the stream.
#[derive(ToSchema)]
#[schema(as = HoldEventName, rename_all = "lowercase")]
#[expect(
    dead_code,
    reason = "the type only describes a body that is written as text"
)]
pub(in crate::http) enum EventName {
    /// The request stands in the queue, or its position has changed.
    Queued,
    /// The lock is held.
    Granted,
    /// The lease was renewed.
    Renewed,
    /// A caller wants the lock: the holder should release it in time.
    #[schema(rename = "release-requested")]
    ReleaseRequested,
    /// The lease was released with its token.
    Released,
    /// The lease is lost.
    Lost,
    /// The lock was not acquired.
    Refused,
    /// The gateway is about to stop.
    Draining,
}

/// The data of an event that says how much time is left of a lease.
fn remaining(left: Option<Duration>) -> Bytes {
    to_json(&json!({ "expires_in_ms": left.map(millis) }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lock::{FencingToken, Mode, Reason, Reservation, Terms, Ttl};

    #[test]
    fn the_holder_of_a_reservation_may_not_be_silent_for_a_day() {
        let fence = FencingToken::new(42).unwrap();
        let lease = Terms::lasting(Ttl::MAX).granted(fence, Mode::Exclusive, Instant::now());
        assert_eq!(allowed_silence(&lease), Duration::from_hours(24));
        let reservation = Reservation {
            until_ms: 4_000_000_000_000,
            reason: Reason::new("x").unwrap(),
            by: None,
        };
        let reserved = HeldLease {
            reservation: Some(Box::new(reservation)),
            ..lease
        };
        assert_eq!(allowed_silence(&reserved), Duration::from_secs(30));
    }
}

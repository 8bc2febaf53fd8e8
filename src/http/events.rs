//! `GET /events`: a stream of server-sent events about locks.

use std::{
    ops::ControlFlow::{Break, Continue},
    pin::Pin,
    sync::Arc,
};

use axum::extract::State;
use bytes::Bytes;
use serde_json::json;
use tokio::time::Duration;
use tracing::{debug, info};
use utoipa::ToSchema;

use crate::{
    auth::{Access, LimitSlot, Permission, scope},
    clock::rfc3339,
    engine::events::{Event, EventKind as Kind, ListenError, Listener, ListenerItem},
    lock::{FencingToken, LockName, Mode, NamePrefix, OrderNumber, Owner},
};

use super::{
    event_stream::{EventAnswer, EventSource, EventStream, NextEvent, encode},
    extract::{ApiQuery, Caller, Fields, LastEventId, Query, prefix},
    json_response::{ObjectWriter, json as to_json, json_by},
    locks::millis,
    problem::{Extra, Problem, ProblemCode as Code},
    state::AppState,
};

/// Listen to events
///
/// Events of locks, at all gateways on the store, as a stream of server-sent events, each with JSON as its
/// data: `curl -N localhost:7420/events?prefix=deploy:`. In a browser: `new EventSource("/events")`.
///
/// * `queued`: a request began to wait. `acquired`: a lease was granted, at once or after a wait. `renewed`:
///   the lease lasts longer. `release-requested`: the holder is asked to release the lease within
///   `expires_in_ms`, with the reason that was given.
/// * `released`: the lease was released; without a reason by its holder, also if the holder closed its `hold`
///   stream; with a reason by the gateway: `abandoned`, because its caller was gone, or the reason in the
///   `lost` of its stream. `expired`: the time of the lease was over; this comes up to a few seconds later.
///   `broken`: an operator broke the lease, with the reason that was given.
/// * `lost`: a stream of `hold` does not hold its lock any more, with the reason that the stream got. The
///   lease may have ended before, or ends a moment later. A lease that was broken is `broken` only, and a
///   lease that another stream adopted goes on.
/// * `stale-write-refused`: a check (`GET /locks/{name}/check`) refused `fencing_token`, whose lease has ended,
///   after a larger one was granted. `by` asked for the check. Reported once a minute for each lock and fencing
///   token.
/// * `order-set`: `by` has set the `order` that the lock remembers (null: it remembers none now), with the reason that
///   was given.
/// * `gap`: events may be missing here. Inspect the locks that matter and go on. `too-old`: the events after
///   `Last-Event-ID` are not kept any more. `unknown-id`: the id is not of this gateway since its start.
///   `connection-lost`: this gateway could not receive messages of other gateways for a while. `too-many`:
///   more happened than could be passed on.
/// * `end` is the last event, unless the connection is cut: `draining`, the gateway is about to stop;
///   `unread`, too many events were not read; `revoked`, the API key is gone or may not see any lock now. A
///   reader that takes next to nothing for 30 seconds is cut off without this event.
/// * `session` comes to pages that read the stream with a session: the permissions of its key may have
///   changed. Ask `GET /session`.
/// * Lines that begin with a colon carry no event, and keep the connection open.
///
/// With API keys the stream has the events of locks that your key may view, and every `gap`.
///
/// The data has `kind` (the event's name again), `name`, `fencing_token` (null if it is not known), `owner`
/// (null if there is none or it is not known), `mode` (`exclusive` or `shared`) and `slot` (likewise),
/// `expires_in_ms` (`acquired`, `renewed`, `release-requested`), `waited_ms` (`acquired`), `waiting` (`acquired`:
/// true if the lease only keeps the lock for a request for several locks that needs others; the `renewed` of the lease
/// says that the request has all of them), `position`
/// (`queued`), `order` (`acquired`, if the request had one; its `reason` is that of a rollback), `reason`, `by` (`broken`,
/// `release-requested`, `stale-write-refused`, `order-set`: the name of the API key that asked, null if none was needed) and `at`, in RFC 3339 and for display only. There may be more fields in
/// later versions.
///
/// **Events are for people, dashboards and wake-up calls. Decide nothing by them**: only the store knows
/// which lease holds a lock. Delivery is best effort: an event may be missing although nothing was lost on
/// the way (the last acts of a gateway that was killed, the `expired` of a lease that was granted before any
/// listener came). Sort the events of a lock by `fencing_token`: the end of a lease may come after the
/// `acquired` of the next holder, or before the `acquired` of its own lease, and then without its owner. An end
/// may come twice. No event is invented, and no fencing token is `acquired` twice.
///
/// Connect again with the header `Last-Event-ID` (a browser does) to continue where the stream was cut: the
/// last 8192 events are kept, for a minute after the last listener has gone.
#[utoipa::path(
    get,
    path = "/events",
    operation_id = "listenToEvents",
    tag = "locks",
    params(ApiQuery<EventsQuery>, LastEventId),
    responses(
        (status = 200, body = EventSchema, content_type = "text/event-stream",
         description = "The stream of events; the schema describes one event.",
         headers(("X-Accel-Buffering", description = "Always `no`."))),
    )
)]
pub(in crate::http) async fn events(
    State(gateway): State<Arc<AppState>>,
    caller: Caller<scope::View>,
    stream: EventStream,
    ApiQuery(query): ApiQuery<EventsQuery>,
    LastEventId(last_id): LastEventId,
) -> Result<EventAnswer<Events>, Problem> {
    let counted = caller.stream()?;
    // If the caller hangs up from here on, the listener is dropped.
    let listener = gateway.engine.listen(query.prefix, last_id.as_deref())?;
    stream.set_user_timeout(SILENCE);
    let events = Events::new(listener, counted, Access::clone(&caller));
    Ok(EventAnswer::new(events, stream))
}

/// After how long to ask again when there are too many listeners, in milliseconds. Listeners seldom stop
/// soon.
const RETRY_AFTER: u64 = 5_000;

impl From<ListenError> for Problem {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::TooMany => Self::new(
                Code::Overloaded,
                "As many callers listen to events at this gateway as it allows.",
            )
            .with(Extra::RetryAfter(RETRY_AFTER)),
            ListenError::Draining => Self::new(
                Code::Draining,
                "The gateway is about to stop; listen at another gateway.",
            ),
        }
    }
}

/// Query of a stream of events: the locks whose events are wanted.
pub(in crate::http) struct EventsQuery {
    pub(super) prefix: NamePrefix,
}

// === impl EventsQuery ===

impl Query for EventsQuery {
    fn read(fields: &mut Fields<'_>) -> Self {
        Self {
            prefix: prefix(fields),
        }
    }
}

/// Source of the events for one listener. Dropping it ends the listening.
pub(in crate::http) struct Events {
    listener: Listener,
    /// Counts the stream against the limits of its API key until it is dropped.
    _counted: Option<LimitSlot>,
    /// Permissions of the caller, checked again for each event.
    access: Access,
    /// Completes with the next change of the API keys, even if the change comes while the stream is not
    /// polled.
    changed: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// How long a reader may take no bytes, or so few that the kernel sees no room: several heartbeats. Then its
/// connection is cut. A reason could reach the reader only behind all bytes that it has not read, and those
/// would have to be kept.
pub(super) const SILENCE: Duration = Duration::from_secs(30);

// === impl Events ===

impl Events {
    pub(super) fn new(listener: Listener, counted: Option<LimitSlot>, access: Access) -> Self {
        Self {
            listener,
            _counted: counted,
            changed: Box::pin(access.changed()),
            access,
        }
    }

    fn end(reason: &'static str, stream: &EventStream) -> NextEvent {
        let id = stream.request_id();
        if reason == "draining" {
            debug!(id, reason, "a stream of events has ended");
        } else {
            info!(id, reason, "a stream of events has ended");
        }
        let data = json!({ "kind": "end", "reason": reason });
        Break(encode("end", &to_json(&data)))
    }
}

impl EventSource for Events {
    const HUNG_UP: &str = "a listener to events has hung up, or does not read";

    fn greeting(&self) -> Bytes {
        greeting(self.listener.instance(), self.listener.position())
    }

    fn heartbeat(&self) -> Bytes {
        heartbeat(self.listener.instance(), self.listener.position())
    }

    async fn next(&mut self, stream: &EventStream) -> Option<NextEvent> {
        let mut has_changed = false;
        let bytes = loop {
            if !self.access.still_permits(Permission::View, None) {
                return Some(Self::end("revoked", stream));
            }
            // A page that reads the stream with a session learns only from this event that the permissions of
            // its user may have changed.
            if has_changed && self.access.is_session() {
                break encode("session", br#"{"kind":"session"}"#);
            }
            let item = tokio::select! {
                item = self.listener.next() => item,
                () = &mut self.changed => {
                    // The future is renewed before the permissions are checked, so that no change is missed.
                    self.changed = Box::pin(self.access.changed());
                    has_changed = true;
                    continue;
                }
            };
            let events = match item {
                ListenerItem::Events(events) => events,
                ListenerItem::Unread => return Some(Self::end("unread", stream)),
                ListenerItem::Draining => return Some(Self::end("draining", stream)),
            };
            let mut bytes = Vec::new();
            for (number, event) in events {
                // A gap concerns every listener.
                let name = event.name.as_ref();
                if name.is_none() || self.access.still_permits(Permission::View, name) {
                    bytes.extend(encode_event(self.listener.instance(), number, &event));
                }
            }
            if !bytes.is_empty() {
                break bytes.into();
            }
        };
        Some(Continue(bytes))
    }
}

/// One event of the stream, as a parser of server-sent events returns it.
#[derive(ToSchema)]
#[schema(as = LockEvent)]
#[expect(
    dead_code,
    reason = "the type only describes a body that is written as text"
)]
pub(in crate::http) struct EventSchema {
    /// The value of `Last-Event-ID` to continue after this event; the last event has no id.
    id: Option<String>,
    /// The name of the event: what has happened.
    event: EventName,
    /// More about the event, as a JSON object.
    #[schema(content_media_type = "application/json")]
    data: String,
}

/// What has happened to a lock. `session` and `end` are not events of a lock.
#[derive(ToSchema)]
#[schema(as = LockEventName, rename_all = "lowercase")]
#[expect(
    dead_code,
    reason = "the type only describes a body that is written as text"
)]
pub(in crate::http) enum EventName {
    /// A request began to wait for the lock.
    Queued,
    /// A new lease holds the lock.
    Acquired,
    /// A lease lasts longer.
    Renewed,
    /// The holder of a lease is asked to release it.
    #[schema(rename = "release-requested")]
    ReleaseRequested,
    /// A lease was released by its holder, or by the gateway because its holder was gone.
    Released,
    /// A lease has ended because its time was over.
    Expired,
    /// A stream that held the lock does not hold it any more.
    Lost,
    /// A lease has ended because an operator broke it.
    Broken,
    /// A check refused the fencing token of a lease that has ended, after a larger one was granted.
    #[schema(rename = "stale-write-refused")]
    StaleWriteRefused,
    /// A caller has set the order that the lock remembers.
    #[schema(rename = "order-set")]
    OrderSet,
    /// Events may be missing here.
    Gap,
    /// The permissions of the session's API key may have changed.
    Session,
    /// The stream ends.
    End,
}

/// Time after which a browser connects again, in milliseconds.
const RETRY: u64 = 2_000;

/// Encodes an event with its id.
fn encode_event(instance: &str, number: u64, event: &Event) -> Vec<u8> {
    let mut bytes = format!("id: {instance}-{number}\n").into_bytes();
    bytes.extend(encode(event.kind.as_str(), &data_of(event)));
    bytes
}

/// A comment that keeps the connection open. Its id moves the reader past the events that were not for it:
/// after a new connection, the gateway need not have kept them for this reader.
fn heartbeat(instance: &str, number: u64) -> Bytes {
    format!(":\nid: {instance}-{number}\n\n").into()
}

/// The first bytes of the stream, which make proxies pass on the head of the answer.
fn greeting(instance: &str, number: u64) -> Bytes {
    format!(":\nretry: {RETRY}\nid: {instance}-{number}\n\n").into()
}

/// The data of an event. A fact that is not known is null, and a field that the kind of the event does not
/// have is left out.
fn data_of(event: &Event) -> Bytes {
    let is_of_lock = event.name.is_some();
    let is_of_lease = !matches!(event.kind, Kind::Queued | Kind::OrderSet | Kind::Gap);
    let is_of_operator = matches!(
        event.kind,
        Kind::Broken | Kind::ReleaseRequested | Kind::StaleWriteRefused | Kind::OrderSet
    );
    let (expires_in, waited) = (event.expires_in.map(millis), event.waited.map(millis));
    json_by(|json| {
        let mut data = ObjectWriter::new(json);
        data.field_if(true, "kind", event.kind.as_str());
        data.field_if(
            is_of_lock,
            "name",
            event.name.as_ref().map(LockName::as_str),
        );
        data.field_if(
            is_of_lease,
            "fencing_token",
            event.fence.map(FencingToken::get),
        );
        data.field_if(is_of_lock, "owner", event.owner.as_ref().map(Owner::as_str));
        data.field_if(is_of_lock, "mode", event.mode.map(Mode::as_str));
        data.field_if(is_of_lease, "slot", event.mode.and_then(Mode::slot));
        data.field_if(expires_in.is_some(), "expires_in_ms", expires_in);
        data.field_if(waited.is_some(), "waited_ms", waited);
        data.field_if(event.is_waiting, "waiting", true);
        data.field_if(event.position.is_some(), "position", event.position);
        let order = event.order.map(OrderNumber::get);
        data.field_if(
            order.is_some() || event.kind == Kind::OrderSet,
            "order",
            order,
        );
        data.field_if(event.reason.is_some(), "reason", event.reason.as_deref());
        data.field_if(is_of_operator, "by", event.by.as_deref());
        data.field_if(true, "at", rfc3339(Some(event.at)).to_string());
        data.end();
    })
}

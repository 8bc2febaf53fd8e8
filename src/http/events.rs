//! `GET /events`: what happens to locks, as a stream of server-sent events for whoever listens.

use std::{
    ops::ControlFlow::{Break, Continue},
    pin::Pin,
    sync::Arc,
};

use axum::extract::State;
use bytes::Bytes;
use serde_json::json;
use tokio::time::Duration;
use tracing::info;
use utoipa::ToSchema;

use crate::{
    auth::{Access, LimitSlot, Permission, scope},
    engine::events::{Event, EventKind as Kind, ListenError, Listener, ListenerItem},
    lock::{FencingToken, LockName, Mode, NamePrefix, Owner},
};

use super::{
    event_stream::{EventAnswer, EventSource, EventStream, NextEvent, encode},
    extract::{ApiQuery, Caller, Fields, LastEventId, Query, prefix},
    json_response::{ObjectWriter, json as to_json, json_by},
    locks::{millis, timestamp},
    problem::{Extra, Problem, ProblemCode as Code},
    state::AppState,
};

/// Listen to events
///
/// What happens to locks, at all gateways on the store, as a stream of server-sent events, each with
/// JSON as its data: `curl -N localhost:7420/events?prefix=deploy:`. In a browser: `new
/// EventSource("/events")`.
///
/// * `queued`: a request began to wait. `acquired`: a lease was granted, at once or to one who waited.
///   `renewed`: it lasts longer. `release-requested`: its holder is asked to release it within `expires_in_ms`, with the
///   reason that was given.
/// * `released`: it was released; without a reason by its holder, who ends a stream of `hold` so, too; with a reason if
///   the gateway did so: `abandoned`, because its caller was gone, or the reason in the `lost` of its stream. `expired`: its time was over; this comes up to a few seconds later. `broken`:
///   somebody took it away, with the reason that they gave.
/// * `lost`: a stream of `hold` does not hold its lock any more, with the reason that it got. The
///   lease may have ended before, or ends a moment later. A lease that was broken is `broken` only,
///   and one that another stream adopted goes on.
/// * `gap`: events may be missing here. Look at the locks that matter and go on. `too-old`,
///   `unknown-id`: what follows `Last-Event-ID` is not kept any more, or the id is not of this gateway
///   since its start. `connection-lost`: this gateway could not receive messages of the others for a while.
///   `too-many`: more happened than could be passed on.
/// * `end` is the last event, if the connection is not cut: `draining`, the gateway is about to stop;
///   `unread`, too much was left unread; `revoked`, the API key is gone or may not see any lock now.
///   Whoever takes next to nothing for 30 seconds is cut off without it.
/// * `session` comes to pages that read the stream with a session: what its key may do may have changed. Ask
///   `GET /session`.
/// * Lines that begin with a colon say nothing, and keep the connection open.
///
/// With API keys you get the events of locks that your key may view, and every `gap`.
///
/// The data has `kind` (the event's name again), `name`, `fencing_token` (null if it is not known),
/// `owner` (null if there is none or it is not known), `mode` (`exclusive` or `shared`) and `slot` (likewise),
/// `expires_in_ms` (`acquired`, `renewed`, `release-requested`),
/// `waited_ms` (`acquired`), `position` (`queued`), `reason`, `by` (`broken`, `release-requested`: the name of the API key
/// that asked, null if none was needed) and `at`, in RFC 3339 and for display only. There may be more fields in later versions.
///
/// **Events are for people, dashboards and wake-up calls. Decide nothing by them**: a lock is held by
/// whoever has been granted it, and only the store knows. They come as well as they can: one may be
/// missing although nothing was lost on the way (what a gateway did when it was killed, the `expired` of
/// a lease that was granted before anybody listened), and the order is certain only for what happens at one
/// gateway: a release elsewhere may come before the `acquired` of its lease, and does not know its owner
/// then. No event is invented, and no fencing token is `acquired` twice.
///
/// Connect again with the header `Last-Event-ID` (a browser does) to read on where the stream was cut:
/// the last 8192 events are kept, for a minute after nobody listens any more.
#[utoipa::path(
    get,
    path = "/events",
    operation_id = "listenToEvents",
    tag = "locks",
    params(ApiQuery<EventsQuery>, LastEventId),
    responses(
        (status = 200, body = EventSchema, content_type = "text/event-stream",
         description = "The stream of events; the schema is that of one event.",
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
    // A caller that hangs up from here on drops the listener.
    let listener = gateway.engine.listen(query.prefix, last_id.as_deref())?;
    stream.set_user_timeout(SILENCE);
    let events = Events::new(listener, counted, Access::clone(&caller));
    Ok(EventAnswer::new(events, stream))
}

/// After how long to ask again when too many listen, in milliseconds: nobody who listens stops soon.
const RETRY_AFTER: u64 = 5_000;

impl From<ListenError> for Problem {
    fn from(error: ListenError) -> Self {
        match error {
            ListenError::TooMany => Self::new(
                Code::Overloaded,
                "As many listen to events here as this gateway allows.",
            )
            .with(Extra::RetryAfter(RETRY_AFTER)),
            ListenError::Draining => Self::new(
                Code::Draining,
                "The gateway is about to stop; listen at another one.",
            ),
        }
    }
}

/// Which locks are listened to.
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

/// Events on their way to somebody who listens. Dropped, nobody does.
pub(in crate::http) struct Events {
    listener: Listener,
    /// What it counts as among the limits of its API key.
    _counted: Option<LimitSlot>,
    /// Which locks it may see, asked anew for each event.
    access: Access,
    /// Ends with the next change of the keys, also with one that comes while nothing is asked for.
    changed: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// For how long a reader may take nothing in, or so little that the kernel sees no room: several
/// heartbeats. Then its connection is cut. It could be told the reason only behind all that it has
/// not read, for which somebody would have to keep that.
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
        info!(id, reason, "a stream of events has ended");
        let data = json!({ "kind": "end", "reason": reason });
        Break(encode("end", &to_json(&data)))
    }
}

impl EventSource for Events {
    const HUNG_UP: &str = "whoever listened to events has hung up, or does not read";

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
            // A page shows what one may do, and hears of nothing else that it has changed.
            if has_changed && self.access.is_session() {
                break encode("session", br#"{"kind":"session"}"#);
            }
            let item = tokio::select! {
                item = self.listener.next() => item,
                () = &mut self.changed => {
                    // Before the look at what is permitted: no change is missed.
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
                // A gap concerns everybody.
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

/// One event of the stream, as a parser of server-sent events gives it.
#[derive(ToSchema)]
#[schema(as = LockEvent)]
#[expect(dead_code, reason = "it only describes what is written as text")]
pub(in crate::http) struct EventSchema {
    /// What to read on from, in `Last-Event-ID`; the last event has none of its own.
    id: Option<String>,
    /// What has happened.
    event: EventName,
    /// More about it, as a JSON object.
    #[schema(content_media_type = "application/json")]
    data: String,
}

/// What has happened to a lock. `session` and `end` are no events of a lock.
#[derive(ToSchema)]
#[schema(as = LockEventName, rename_all = "lowercase")]
#[expect(dead_code, reason = "it only describes what is written as text")]
pub(in crate::http) enum EventName {
    /// Somebody began to wait for the lock.
    Queued,
    /// Somebody holds the lock, by a new lease.
    Acquired,
    /// A lease lasts longer.
    Renewed,
    /// The holder of a lease is asked to release it.
    #[schema(rename = "release-requested")]
    ReleaseRequested,
    /// A lease has ended because its holder gave it back, or was gone.
    Released,
    /// A lease has ended because its time was over.
    Expired,
    /// A stream that held the lock does not hold it any more.
    Lost,
    /// A lease has ended because somebody took it away.
    Broken,
    /// Events may be missing here.
    Gap,
    /// What the key of the session may do may have changed.
    Session,
    /// The stream ends here.
    End,
}

/// How soon a browser connects again, in milliseconds.
const RETRY: u64 = 2_000;

/// An event with its id.
fn encode_event(instance: &str, number: u64, event: &Event) -> Vec<u8> {
    let mut bytes = format!("id: {instance}-{number}\n").into_bytes();
    bytes.extend(encode(event.kind.as_str(), &data_of(event)));
    bytes
}

/// A comment that keeps the connection open. The id is where to read on from: what was passed over
/// need not be kept for this reader.
fn heartbeat(instance: &str, number: u64) -> Bytes {
    format!(":\nid: {instance}-{number}\n\n").into()
}

/// The first thing of all, which makes proxies pass on the head of the answer.
fn greeting(instance: &str, number: u64) -> Bytes {
    format!(":\nretry: {RETRY}\nid: {instance}-{number}\n\n").into()
}

/// What is told of an event. What is not known of it is null, and what it does not have is left out.
fn data_of(event: &Event) -> Bytes {
    let is_of_lock = event.name.is_some();
    let is_of_lease = !matches!(event.kind, Kind::Queued | Kind::Gap);
    let is_of_operator = matches!(event.kind, Kind::Broken | Kind::ReleaseRequested);
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
        data.field_if(event.position.is_some(), "position", event.position);
        data.field_if(event.reason.is_some(), "reason", event.reason.as_deref());
        data.field_if(is_of_operator, "by", event.by.as_deref());
        data.field_if(true, "at", timestamp(Some(event.at)));
        data.end();
    })
}

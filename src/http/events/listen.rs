//! `GET /events`: listen to what happens to locks.

use std::sync::Arc;

use axum::extract::State;

use crate::{
    auth::{Access, scope},
    engine::events::ListenError,
    http::{
        extract::{ApiQuery, Caller, EventStream},
        problem::{Extra, Problem, ProblemCode as Code},
        state::AppState,
    },
};

use super::{
    event_body::EventSchema, events_query::EventsQuery, last_event_id::LastEventId, stream::Events,
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
/// `waited_ms` (`acquired`), `position` (`queued`), `reason` and `at`, in RFC 3339 and for display only. There may be more fields in later versions.
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
) -> Result<Events, Problem> {
    let counted = caller.stream()?;
    // A caller that hangs up from here on drops the listener.
    let listener = gateway.engine.listen(query.prefix, last_id.as_deref())?;
    Ok(Events::new(
        listener,
        stream,
        counted,
        Access::clone(&caller),
    ))
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
            .with(Extra::RetryAfter { ms: RETRY_AFTER }),
            ListenError::Draining => Self::new(
                Code::Draining,
                "The gateway is about to stop; listen at another one.",
            ),
        }
    }
}

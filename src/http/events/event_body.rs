//! Events as server-sent events.

use serde::Serialize;
use utoipa::ToSchema;

use crate::{
    engine::events::{Event, EventKind as Kind},
    http::{
        json_response::json,
        locks::{millis, timestamp},
    },
    lock::{FencingToken, LockName, Mode, Owner},
};

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

/// What has happened to a lock.
#[derive(Serialize)]
struct EventData<'a> {
    /// What has happened, again.
    kind: &'static str,
    /// The lock. Not with `gap`, `session` and `end`.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    /// The fencing token of the lease; null if it is not known. Not with `queued`, `gap`, `session` and `end`.
    #[serde(skip_serializing_if = "Option::is_none")]
    fencing_token: Option<OrNull<u64>>,
    /// Who asked for it; null if the request named nobody or it is not known. Not with `gap`, `session` and `end`.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<OrNull<&'a str>>,
    /// How it holds the lock: `exclusive` or `shared`; with `queued` how it wants to. Null if it is not known. Not
    /// with `gap`, `session` and `end`.
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<OrNull<&'static str>>,
    /// The slot of a shared lease whose request had a `limit`; else null. Not with `queued`, `gap`, `session` and
    /// `end`.
    #[serde(skip_serializing_if = "Option::is_none")]
    slot: Option<OrNull<u16>>,
    /// With `acquired` and `renewed`: what was left of the lease at least, at the instant `at`. With `release-requested`:
    /// how much time its holder had left.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_in_ms: Option<u64>,
    /// With `acquired`: how long the holder had waited.
    #[serde(skip_serializing_if = "Option::is_none")]
    waited_ms: Option<u64>,
    /// With `queued`: the place in the queue; 1 is served next.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<u64>,
    /// Why, with `release-requested`, `lost`, `broken`, `gap` and `end`, and with `released` if it was not the holder.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
    /// With `broken` and `release-requested`: the name of the API key that broke the lock or asked for it, also if its
    /// user is signed in to the dashboard; null if no key was needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    by: Option<OrNull<&'a str>>,
    /// When, in RFC 3339, by the clock of the gateway where it happened. For display only. Not with
    /// `session` and `end`.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<String>,
}

/// Something that is shown as null if it is not known, and not left out.
#[derive(Serialize)]
#[serde(transparent)]
struct OrNull<T>(Option<T>);

/// How soon a browser connects again, in milliseconds.
const RETRY: u64 = 2_000;

/// An event with its id.
pub(super) fn encode(instance: &str, number: u64, event: &Event) -> Vec<u8> {
    let data = json(&EventData::of(event));
    let (kind, data) = (event.kind.as_str(), text(&data));
    format!("id: {instance}-{number}\nevent: {kind}\ndata: {data}\n\n").into_bytes()
}

/// What the key of the session may do may have changed.
pub(super) fn encode_session() -> Vec<u8> {
    let data = json(&EventData::bare("session"));
    format!("event: session\ndata: {}\n\n", text(&data)).into_bytes()
}

/// The last event.
pub(super) fn encode_end(reason: &str) -> Vec<u8> {
    let data = json(&EventData {
        reason: Some(reason),
        ..EventData::bare("end")
    });
    format!("event: end\ndata: {}\n\n", text(&data)).into_bytes()
}

/// A comment that keeps the connection open. The id is where to read on from: what was passed over
/// need not be kept for this reader.
pub(super) fn heartbeat(instance: &str, number: u64) -> Vec<u8> {
    format!(":\nid: {instance}-{number}\n\n").into_bytes()
}

/// The first thing of all, which makes proxies pass on the head of the answer.
pub(super) fn greeting(instance: &str, number: u64) -> Vec<u8> {
    format!(":\nretry: {RETRY}\nid: {instance}-{number}\n\n").into_bytes()
}

/// JSON as it is written here has no line breaks but the one behind it.
fn text(json: &[u8]) -> &str {
    let text = std::str::from_utf8(json).expect("JSON is UTF-8");
    text.trim_end()
}

// === impl EventData ===

impl<'a> EventData<'a> {
    fn of(event: &'a Event) -> Self {
        let is_of_lease = match event.kind {
            Kind::Acquired
            | Kind::Renewed
            | Kind::ReleaseRequested
            | Kind::Released
            | Kind::Expired
            | Kind::Lost
            | Kind::Broken => true,
            Kind::Queued | Kind::Gap => false,
        };
        let owner = event.owner.as_ref().map(Owner::as_str);
        Self {
            kind: event.kind.as_str(),
            name: event.name.as_ref().map(LockName::as_str),
            fencing_token: is_of_lease.then(|| OrNull(event.fence.map(FencingToken::get))),
            owner: event.name.is_some().then_some(OrNull(owner)),
            mode: (event.name.is_some()).then(|| OrNull(event.mode.map(Mode::as_str))),
            slot: is_of_lease.then(|| OrNull(event.mode.and_then(Mode::slot))),
            expires_in_ms: event.expires_in.map(millis),
            waited_ms: event.waited.map(millis),
            position: event.position,
            reason: event.reason.as_deref(),
            by: matches!(event.kind, Kind::Broken | Kind::ReleaseRequested)
                .then(|| OrNull(event.by.as_deref())),
            at: Some(timestamp(Some(event.at))),
        }
    }

    /// One of the stream itself.
    fn bare(kind: &'static str) -> Self {
        Self {
            kind,
            name: None,
            fencing_token: None,
            owner: None,
            mode: None,
            slot: None,
            expires_in_ms: None,
            waited_ms: None,
            position: None,
            reason: None,
            by: None,
            at: None,
        }
    }
}

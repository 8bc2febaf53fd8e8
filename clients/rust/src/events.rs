//! Receives events: reports of what happens to locks.

use std::{collections::VecDeque, time::Duration};

use reqwest::{Method, Response, Url, header::ACCEPT};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, timeout};

use crate::{
    Client, ClientError, Holder, format_duration,
    http::{Call, CallResponse, Retry, RetryableFailure, cause, pause},
    lock::NamePrefix,
};

/// A subscription to the events of locks. Dropping it closes the connection.
#[derive(Debug)]
pub struct Events {
    client: Client,
    prefix: NamePrefix,
    /// The id of the last event, from which the next connection continues.
    last_id: Option<String>,
    connection: Option<Response>,
    /// The URL of the gateway to which the last connection was made.
    url: String,
    /// Whether the caller has already got an item that reports that there is no connection.
    interrupted: bool,
    parser: EventParser,
    /// Items that have arrived, and that `next` has not returned yet.
    items: VecDeque<EventsItem>,
    /// The number of connection attempts in a row that failed.
    failed: u32,
}

/// An item that [`Events::next`] returns: an event, or a change of the connection.
#[derive(Debug)]
pub enum EventsItem {
    /// An event of a lock. The kind `gap` means that events may be missing.
    Event(Box<Event>),
    /// The gateway ended the stream of events for this reason. The next call connects again.
    Ended(String),
    /// The connection to the gateway is lost. The next call connects again after a pause. Events of the meantime arrive
    /// later; if they cannot, an event of the kind `gap` arrives.
    Lost {
        /// The URL of the gateway.
        url: String,
        /// Why the connection ended.
        reason: String,
    },
    /// A connection attempt failed. The next call tries again after a pause.
    Interrupted(ClientError),
    /// The stream of events is connected again, to the gateway at this URL.
    Resumed(String),
}

/// An event of a lock.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Event {
    /// The kind of the event: `queued`, `acquired`, `renewed`, `release-requested`, `released`, `expired`, `lost`,
    /// `broken`, `stale-write-refused`, `order-set`, `store-changed` or `gap`. Later versions may add kinds.
    pub kind: String,
    /// The name of the lock; absent in events of the kinds `store-changed` and `gap`.
    pub name: Option<String>,
    /// The lease, as far as known. In an event of the kind `queued`: the owner and the mode of the waiting request. In an
    /// event of the kind `order-set`: only `order`, the order that the lock remembers from now on.
    #[serde(flatten)]
    pub lease: Holder,
    /// How long the holder had waited in the queue, in milliseconds.
    pub waited_ms: Option<u64>,
    /// The position in the queue: 1 is served next.
    pub position: Option<u64>,
    /// The reason of the event, if it has one.
    pub reason: Option<String>,
    /// In events of the kinds `broken`, `release-requested`, `stale-write-refused` and `order-set`: the API key of the
    /// caller that broke the lock, requested its release, checked the fencing token or set the order.
    pub by: Option<String>,
    /// In an event of the kind `store-changed`: what has changed.
    pub change: Option<StoreChange>,
    /// The time of the event by the clock of a gateway, for display only.
    pub at: Option<String>,
    #[serde(skip)]
    json: String,
}

/// A change of the store that a gateway has noticed.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct StoreChange {
    /// `failed-over`, `moved`, `restarted`, `away` or `back`. Later versions may add kinds.
    pub kind: String,
    /// The change and what it means for locks, for people to read.
    pub text: String,
}

/// The time without data after which a connection counts as lost: a gateway sends something every ten seconds.
const SILENCE: Duration = Duration::from_secs(30);
/// The maximum length of a problem document, in bytes.
pub(crate) const MAX_PROBLEM: usize = 64 * 1024;

// === impl Client ===

impl Client {
    /// Subscribes to the events of all locks whose names begin with the prefix, from now on. The end of a lease may arrive
    /// after the grant of the next lease: sort the events of a lock by fencing token. The first connection is repeated
    /// like any other call. After a lost connection, each call of [`Events::next`] tries to connect again,
    /// without an end.
    pub async fn events(&self, prefix: &NamePrefix) -> Result<Events, ClientError> {
        let mut events = Events {
            client: self.clone(),
            prefix: prefix.clone(),
            last_id: None,
            connection: None,
            url: String::new(),
            interrupted: false,
            parser: EventParser::default(),
            items: VecDeque::new(),
            failed: 0,
        };
        let mut retry = Retry::until(self, Instant::now() + self.options.deadline);
        loop {
            match events.connect(retry.time_out()).await? {
                Ok(()) => return Ok(events),
                Err(failure) => retry.after(failure).await?,
            }
        }
    }

    /// Reads what went wrong in the last day, as one gateway remembers it, oldest first: events of the kinds
    /// `store-changed`, `broken`, `lost` and `stale-write-refused`, without fencing tokens. The time is how long the gateway
    /// has run: a restart forgets all.
    pub async fn past_incidents(&self) -> Result<(Duration, Vec<Event>), ClientError> {
        let call = Call::at(Method::GET, "/stats".to_owned());
        let answer = call.send(self).await?;
        if !answer.status.is_success() {
            return Err(answer.refusal());
        }
        past(&answer.body).ok_or_else(|| answer.unexpected("not the figures of a gateway"))
    }
}

/// The uptime, and the changes of the store and the incidents in the figures of a gateway.
fn past(figures: &str) -> Option<(Duration, Vec<Event>)> {
    let figures: Value = serde_json::from_str(figures).ok()?;
    let changes = figures["store_changes"].as_array()?.iter().rev().map(|it| {
        let change = json!({ "kind": it["kind"], "text": it["text"] });
        json!({ "kind": "store-changed", "change": change, "at": it["at"] })
    });
    let incidents = figures["incidents"].as_array()?.iter().rev();
    let read = |value: Value| {
        let json = value.to_string();
        let event: Event = serde_json::from_value(value).ok()?;
        Some(Event { json, ..event })
    };
    let all = changes.chain(incidents.cloned());
    let mut events: Vec<_> = all.filter_map(read).collect();
    events.sort_by(|one, other| one.at.cmp(&other.at));
    let running = Duration::from_millis(figures["uptime_ms"].as_u64()?);
    Some((running, events))
}

// === impl Events ===

impl Events {
    /// Waits for the next item. After a lost connection, connects again without a limit. Fails only if the gateway
    /// refuses the request. If the future is dropped, no item is lost.
    pub async fn next(&mut self) -> Result<EventsItem, ClientError> {
        loop {
            if let Some(item) = self.items.pop_front() {
                return Ok(item);
            }
            let Some(connection) = &mut self.connection else {
                sleep(pause(self.failed)).await;
                let connected = self.connect(self.client.options.request_timeout).await;
                if let Err(failure) = connected.inspect_err(|_refused| self.interrupt())? {
                    self.interrupt();
                    return Ok(EventsItem::Interrupted(failure.error));
                }
                if std::mem::take(&mut self.interrupted) {
                    return Ok(EventsItem::Resumed(self.url.clone()));
                }
                continue;
            };
            let reason = match timeout(SILENCE, connection.chunk()).await {
                Ok(Ok(Some(bytes))) => {
                    self.feed(&bytes)
                        .inspect_err(|_too_long| self.interrupt())?;
                    continue;
                }
                Ok(Ok(None)) => "the connection was closed".to_owned(),
                Ok(Err(error)) => cause(&error),
                Err(_elapsed) => format!("nothing came for {}", format_duration(SILENCE)),
            };
            self.interrupt();
            let url = self.url.clone();
            return Ok(EventsItem::Lost { url, reason });
        }
    }

    fn interrupt(&mut self) {
        self.connection = None;
        self.interrupted = true;
        self.failed = self.failed.saturating_add(1);
    }

    /// Connects to the next gateway address. The inner error is a failure that may be retried; the outer one is a
    /// refusal.
    async fn connect(
        &mut self,
        time_out: Duration,
    ) -> Result<Result<(), RetryableFailure>, ClientError> {
        let client = &self.client;
        let address = client.addresses.current();
        let prefix = Some(("prefix", self.prefix.as_str())).filter(|(_, text)| !text.is_empty());
        let url = Url::parse_with_params(&format!("{}/events", address.url), prefix);
        let url = url.expect("an address was read as a URL before");
        let request = client.request(Method::GET, url);
        let mut request = request.header(ACCEPT, "text/event-stream");
        if let Some(id) = &self.last_id {
            request = request.header("last-event-id", id);
        }
        let sent = client.send(address.url, request, None);
        let failure = match timeout(time_out, sent).await {
            Ok(Ok(response)) if response.status().is_success() => {
                address.url.clone_into(&mut self.url);
                self.connection = Some(response);
                self.parser = EventParser::default();
                return Ok(Ok(()));
            }
            Ok(Ok(response)) => {
                let answer = read(address.url, response, time_out).await;
                match RetryableFailure::of_answer(&answer) {
                    Some(failure) => failure.of_look(address.url),
                    None => return Err(answer.refusal()),
                }
            }
            Ok(Err(error)) => match error.result(address.url, true) {
                Ok(answer) => match RetryableFailure::of_answer(&answer) {
                    Some(failure) => failure.of_look(address.url),
                    None => return Err(answer.refusal()),
                },
                Err(failure) => failure,
            },
            Err(_elapsed) => {
                RetryableFailure::unreachable(address.url, "no answer in time".to_owned())
            }
        };
        client.addresses.move_on_from(address);
        Ok(Err(failure))
    }

    fn feed(&mut self, bytes: &[u8]) -> Result<(), ClientError> {
        let mut blocks = Vec::new();
        let read = self.parser.read(bytes, &mut blocks);
        for block in blocks {
            self.failed = 0;
            if block.id.is_some() {
                self.last_id = block.id;
            }
            if block.name == "end" {
                let end: Value = serde_json::from_str(&block.data).unwrap_or_default();
                let reason = end["reason"].as_str().unwrap_or_default().to_owned();
                self.items.push_back(EventsItem::Ended(reason));
                self.interrupt();
                // The gateway is about to stop, or this client reads too slowly. The next connection goes to another
                // gateway.
                let addresses = &self.client.addresses;
                addresses.move_on_from(addresses.current());
                return Ok(());
            }
            // An event of an unknown format, from a later version of the gateway, is skipped.
            if let Ok(mut event) = serde_json::from_str::<Box<Event>>(&block.data) {
                event.json = block.data;
                self.items.push_back(EventsItem::Event(event));
            }
        }
        read.map_err(|_too_long| ClientError::Unexpected {
            url: self.client.url().to_owned(),
            what: "no stream of events".to_owned(),
        })
    }
}

// === impl Event ===

impl Event {
    /// The event as the gateway sent it, as JSON.
    pub fn json(&self) -> &str {
        &self.json
    }
}

/// Reads an answer that is not a stream of events, such as a problem document.
async fn read(url: &str, mut response: Response, time_out: Duration) -> CallResponse {
    let sent_at = Instant::now();
    let mut body = Vec::new();
    let reading = async {
        while let Ok(Some(chunk)) = response.chunk().await
            && body.len() + chunk.len() <= MAX_PROBLEM
        {
            body.extend(chunk);
        }
    };
    // A body that is not complete after the time-out is not parsed as a problem document.
    let _ = timeout(time_out, reading).await;
    CallResponse::new(url, sent_at, &response, body)
}

// === Event parser ===
//
// Parses server-sent events from chunks of bytes.

/// A parser of server-sent events, which is fed with chunks of bytes.
#[derive(Debug, Default)]
pub(crate) struct EventParser {
    /// The beginning of a line whose end has not arrived yet.
    line: Vec<u8>,
    name: String,
    data: String,
    /// The event id that the current block sets, if it sets one.
    id: Option<String>,
}

/// A block of lines of a server-sent event stream: an event with its fields. An empty line ends the block.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// The type of the event; empty if the block is not an event.
    pub(crate) name: String,
    pub(crate) data: String,
    pub(crate) id: Option<String>,
}

/// The maximum length of a line in bytes. Gateways send no longer lines.
const MAX_LINE_BYTES: usize = 64 * 1024;

/// The error for a line that is too long, so that the stream cannot be a stream of events.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooLong;

// === impl EventParser ===

impl EventParser {
    /// Parses a chunk of bytes, and appends to `blocks` each block that ends in the chunk.
    pub(crate) fn read(&mut self, bytes: &[u8], blocks: &mut Vec<Block>) -> Result<(), TooLong> {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(part);
            if self.line.len() > MAX_LINE_BYTES {
                return Err(TooLong);
            }
            if self.line.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                blocks.extend(self.take_line(&String::from_utf8_lossy(&line)));
            }
        }
        Ok(())
    }

    fn take_line(&mut self, line: &str) -> Option<Block> {
        let line = line.trim_end_matches(['\n', '\r']);
        if line.is_empty() {
            return Some(Block {
                name: std::mem::take(&mut self.name),
                data: std::mem::take(&mut self.data),
                id: self.id.take(),
            });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.name),
            "data" => self.data.push_str(value),
            "id" => self.id = Some(value.to_owned()),
            // Other lines are skipped: comments, and fields of later versions.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = ":\nretry: 2000\nid: a-0\n\nid: a-1\nevent: acquired\ndata: {\"n\":\"ä\"}\n\n:\r\nid:a-2\r\n\r\nevent: end\ndata: {}\n\n";

    fn block(id: Option<&str>, name: &str, data: &str) -> Block {
        Block {
            name: name.to_owned(),
            data: data.to_owned(),
            id: id.map(str::to_owned),
        }
    }

    #[test]
    fn reads_the_same_however_the_bytes_come() {
        let expected = [
            block(Some("a-0"), "", ""),
            block(Some("a-1"), "acquired", "{\"n\":\"ä\"}"),
            block(Some("a-2"), "", ""),
            block(None, "end", "{}"),
        ];
        for size in [1, 2, 7, STREAM.len()] {
            let (mut parser, mut blocks) = (EventParser::default(), Vec::new());
            for part in STREAM.as_bytes().chunks(size) {
                parser.read(part, &mut blocks).unwrap();
            }
            assert_eq!(blocks, expected, "{size} at a time");
        }
    }

    #[test]
    fn the_past_is_read_from_the_figures_of_a_gateway_oldest_first() {
        let figures = r#"{"uptime_ms":60000,"store_changes":[{"at":"2026-11-20T12:00:02.000Z","kind":"back","text":"b"},
                {"at":"2026-11-20T12:00:00.000Z","kind":"away","text":"a"}],
            "incidents":[{"at":"2026-11-20T12:00:01.000Z","kind":"broken","name":"deploy","owner":null,"by":"ops",
                "reason":"stuck"}]}"#;
        let (running, events) = past(figures).unwrap();
        assert_eq!(running, Duration::from_mins(1));
        let kinds: Vec<_> = events.iter().map(|it| it.kind.as_str()).collect();
        assert_eq!(kinds, ["store-changed", "broken", "store-changed"]);
        let change = events[0].change.as_ref().unwrap();
        assert_eq!((&*change.kind, &*change.text), ("away", "a"));
        let broken = &events[1];
        assert_eq!(
            (
                broken.name.as_deref(),
                broken.by.as_deref(),
                &broken.lease.owner
            ),
            (Some("deploy"), Some("ops"), &None)
        );
        assert!(broken.json().contains("stuck"));
        let nothing = past(r#"{"uptime_ms":1,"store_changes":[],"incidents":[]}"#);
        assert_eq!(nothing.map(|it| it.1.len()), Some(0));
        assert!(past("{}").is_none());
    }

    #[test]
    fn does_not_collect_without_end() {
        let (mut parser, mut blocks) = (EventParser::default(), Vec::new());
        let part = [b'x'; 1024];
        let refused = (0..MAX_LINE_BYTES).find(|_| parser.read(&part, &mut blocks).is_err());
        assert_eq!(refused, Some(MAX_LINE_BYTES / part.len()));
    }
}

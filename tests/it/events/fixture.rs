//! Gateways in the test process on a real store, and readers of their `/events`.

use std::collections::VecDeque;

use latchgate::{config::ServersUrl, store::redis::RedisStore};

use crate::{api::prelude::*, redis::rig::quick};

/// Gateways on one store.
pub(super) struct Site {
    pub(super) gateways: Vec<Service>,
    /// The Redis server; none if the store is embedded.
    pub(super) server: Option<RedisServer>,
    _directory: Option<TempDir>,
}

// === impl Site ===

impl Site {
    /// One gateway on an embedded store.
    pub(super) fn embedded() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(
            directory.path(),
            Arc::new(SystemClock),
            latchgate::config::OrderLimits::default(),
        );
        Self {
            gateways: vec![Service::over(Arc::new(store.unwrap()), Config::default())],
            server: None,
            _directory: Some(directory),
        }
    }

    /// `gateways` gateways on one Redis server.
    pub(super) async fn redis(gateways: usize) -> Self {
        let server = RedisServer::start().await;
        let mut site = Self {
            gateways: Vec::new(),
            server: Some(server),
            _directory: None,
        };
        for _ in 0..gateways {
            site.join();
        }
        site
    }

    /// Starts one more gateway.
    pub(super) fn join(&mut self) {
        self.join_database(0);
    }

    /// Starts one more gateway, on another database of the server.
    pub(super) fn join_database(&mut self, number: u16) {
        self.join_at(&self.server.as_ref().unwrap().url_of_database(number));
    }

    fn join_at(&mut self, url: &ServersUrl) {
        let lifecycle = Lifecycle::new();
        let store = RedisStore::open(
            url,
            &quick(),
            Arc::new(SystemClock),
            &lifecycle,
            latchgate::config::OrderLimits::default(),
        );
        let store = Arc::new(store);
        self.gateways.push(Service::over(store, Config::default()));
    }

    /// The first gateway.
    pub(super) fn gateway(&self) -> &Service {
        &self.gateways[0]
    }

    /// The first gateway, and a reader of its events.
    pub(super) async fn heard(&self) -> (&Service, Reader) {
        (self.gateway(), Reader::all(self.gateway()).await)
    }

    /// A reader at the first gateway, once all other gateways send their events there.
    pub(super) async fn reader(&self) -> Reader {
        self.reader_at(0).await
    }

    /// A reader at the first gateway, once this gateway watches for the ends of leases: from then on it sends `expired`
    /// events.
    pub(super) async fn reader_of_expiries(&self) -> Reader {
        let mut reader = Reader::all(self.gateway()).await;
        self.expires(&mut reader).await;
        reader
    }

    /// Waits until the first gateway has sent an `expired` event.
    pub(super) async fn expires(&self, reader: &mut Reader) {
        loop {
            acquire(self.gateway(), "expires", &json!({"ttl_ms": 100})).await;
            let is_it =
                |heard: &ReceivedEvent| heard.kind == "expired" && heard.data["name"] == "expires";
            if timeout(EXPIRY, reader.up_to(is_it)).await.is_ok() {
                return;
            }
        }
    }

    /// A reader at a gateway, once all other gateways send their events there.
    pub(super) async fn reader_at(&self, index: usize) -> Reader {
        let mut reader = Reader::all(&self.gateways[index]).await;
        for (other, gateway) in self.gateways.iter().enumerate() {
            let name = format!("heard{other}at{index}");
            let is_it = |heard: &ReceivedEvent| heard.data["name"] == name.as_str();
            loop {
                once(gateway, &name).await;
                if timeout(TRIAL, reader.up_to(is_it)).await.is_ok() {
                    break;
                }
            }
        }
        // The reader skips the remaining events of the trials.
        for gateway in &self.gateways {
            once(gateway, "begin").await;
            let is_last =
                |heard: &ReceivedEvent| heard.data["name"] == "begin" && heard.kind == "released";
            reader.up_to(is_last).await;
        }
        reader
    }
}

/// How long an `expired` event is awaited: longer than the lease lives and the gateway takes.
const EXPIRY: Duration = Duration::from_secs(2);
/// How long a reader waits before another trial of whether a gateway sends it events.
const TRIAL: Duration = Duration::from_millis(300);

/// Acquires a lock, which must be free. Answers the lease.
pub(super) async fn acquire(gateway: &Service, lock: &str, body: &Value) -> Value {
    let answer = post(gateway, &format!("/locks/{lock}"), body).await.is(201);
    answer.json()
}

pub(super) async fn post(gateway: &Service, target: &str, body: &Value) -> ApiResponse {
    gateway
        .ask(&format!("POST {target}"), JSON, body.to_string())
        .await
}

/// Renews a lease, which must hold its lock.
pub(super) async fn renew(gateway: &Service, lease: &Value) {
    let (target, token) = target_and_token(lease);
    let header = [("lock-token", token.as_str())];
    let target = format!("{target}/renew");
    let renew = gateway.call(&format!("PUT {target}"), &header).await;
    assert_eq!(renew.status, 200, "{}", renew.body);
}

/// Releases a lease, which must hold its lock.
pub(super) async fn release(gateway: &Service, lease: &Value) {
    let (target, token) = target_and_token(lease);
    let header = [("lock-token", token.as_str())];
    let release = gateway.call(&format!("DELETE {target}"), &header).await;
    assert_eq!(release.status, 204, "{}", release.body);
}

/// Acquires a lock and releases it again.
pub(super) async fn once(gateway: &Service, lock: &str) {
    let lease = acquire(gateway, lock, &json!({})).await;
    release(gateway, &lease).await;
}

/// Opens a hold of a lock, which lasts for as long as the body lives.
pub(super) async fn hold(gateway: &Service, lock: &str, body: &Value) -> Body {
    let line = format!("POST /locks/{lock}/hold");
    gateway.stream(&line, JSON, body.to_string()).await
}

fn target_and_token(lease: &Value) -> (String, String) {
    let text = |field: &str| lease[field].as_str().unwrap().to_owned();
    (format!("/locks/{}", text("name")), text("token"))
}

/// A client that reads `/events`.
pub(super) struct Reader {
    body: Body,
    text: String,
    heard: VecDeque<ReceivedEvent>,
    /// All text of the stream, as it was received.
    pub(super) raw: String,
    /// The last event id of the stream.
    pub(super) last_id: String,
}

/// An event, as a reader received it.
#[derive(Debug, Clone)]
pub(super) struct ReceivedEvent {
    pub(super) kind: String,
    pub(super) data: Value,
    /// The id of the event; empty if it has none.
    pub(super) id: String,
}

/// How long a test waits for an event that must come.
const TIMEOUT: Duration = Duration::from_mins(1);

// === impl ReceivedEvent ===

impl ReceivedEvent {
    /// The event in short: kind, name, and reason.
    pub(super) fn brief(&self) -> String {
        let word = |field: &str| self.data[field].as_str().unwrap_or("-").to_owned();
        format!("{} {} {}", self.kind, word("name"), word("reason"))
    }
}

// === impl Reader ===

impl Reader {
    /// A reader of all events.
    pub(super) async fn all(service: &Service) -> Self {
        Self::with(service, "", None).await
    }

    /// A reader with a query. With `last_id`, the stream starts after this event.
    pub(super) async fn with(service: &Service, query: &str, last_id: Option<&str>) -> Self {
        let header = last_id.map(|id| ("last-event-id", id));
        Self::sending(service, query, header).await
    }

    /// A reader with a query and a header.
    pub(super) async fn sending(
        service: &Service,
        query: &str,
        header: Option<(&str, &str)>,
    ) -> Self {
        let headers: Vec<_> = header.into_iter().collect();
        let line = format!("GET /events{query}");
        let body = service.stream(&line, &headers, "").await;
        let mut reader = Self {
            body,
            text: String::new(),
            heard: VecDeque::new(),
            raw: String::new(),
            last_id: String::new(),
        };
        // A stream begins with an id that belongs to no event.
        while reader.last_id.is_empty() {
            assert!(reader.read().await, "the stream ends at once");
        }
        reader
    }

    /// The next event; `None` if the stream has ended.
    pub(super) async fn next(&mut self) -> Option<ReceivedEvent> {
        while self.heard.is_empty() {
            if !self.read().await {
                return None;
            }
        }
        self.heard.pop_front()
    }

    /// Reads the next event, which must be of this kind. Answers its data.
    pub(super) async fn expect(&mut self, kind: &str) -> Value {
        let heard = self.next().await.expect("the stream has ended");
        assert_eq!(heard.kind, kind, "{heard:?}");
        assert_eq!(heard.data["kind"], kind, "{heard:?}");
        heard.data
    }

    /// Reads the next two events, which must be of these kinds and may come in either order. Answers their data.
    pub(super) async fn expect_both(&mut self, kinds: [&str; 2]) -> [Value; 2] {
        let mut heard = [self.next().await.unwrap(), self.next().await.unwrap()];
        if heard[0].kind != kinds[0] {
            heard.reverse();
        }
        assert_eq!(heard.each_ref().map(|it| it.kind.as_str()), kinds);
        heard.map(|it| it.data)
    }

    /// Asserts that the stream ends here.
    pub(super) async fn ends(&mut self) {
        let heard = self.next().await;
        assert!(heard.is_none(), "{heard:?}");
    }

    /// Reads events up to the first for which `is_last` is true, and answers all of them.
    pub(super) async fn up_to(
        &mut self,
        is_last: impl Fn(&ReceivedEvent) -> bool,
    ) -> Vec<ReceivedEvent> {
        let mut all = Vec::new();
        loop {
            let heard = self.next().await.expect("the stream has ended");
            let last = is_last(&heard);
            all.push(heard);
            if last {
                return all;
            }
        }
    }

    async fn read(&mut self) -> bool {
        let frame = timeout(TIMEOUT, self.body.frame()).await;
        let Some(frame) = frame.expect("nothing came in time") else {
            return false;
        };
        let bytes = frame.unwrap().into_data().unwrap();
        let text = std::str::from_utf8(&bytes).unwrap();
        self.raw.push_str(text);
        self.text.push_str(text);
        while let Some((block, rest)) = self.text.split_once("\n\n") {
            let (block, rest) = (block.to_owned(), rest.to_owned());
            self.text = rest;
            self.take(&block);
        }
        true
    }

    fn take(&mut self, block: &str) {
        let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name));
        let id = field("id: ").unwrap_or_default().to_owned();
        if !id.is_empty() {
            self.last_id.clone_from(&id);
        }
        if let (Some(kind), Some(data)) = (field("event: "), field("data: ")) {
            self.heard.push_back(ReceivedEvent {
                kind: kind.to_owned(),
                data: serde_json::from_str(data).unwrap(),
                id,
            });
        }
    }
}

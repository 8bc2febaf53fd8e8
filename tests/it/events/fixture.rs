//! Gateways on a real store, in process, and somebody who listens to `/events` there.

use std::collections::VecDeque;

use latchgate::{config::ServersUrl, store::redis::RedisStore};

use crate::{api::prelude::*, redis::rig::quick};

/// Gateways on one store.
pub(super) struct Site {
    pub(super) gateways: Vec<Service>,
    /// The server, if the store is on one.
    pub(super) server: Option<RedisServer>,
    _directory: Option<TempDir>,
}

// === impl Site ===

impl Site {
    /// One gateway on an embedded store.
    pub(super) fn embedded() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = EmbeddedStore::open(directory.path(), Arc::new(SystemClock));
        Self {
            gateways: vec![Service::over(Arc::new(store.unwrap()), Config::default())],
            server: None,
            _directory: Some(directory),
        }
    }

    /// A number of gateways on one Redis.
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

    /// One more gateway comes.
    pub(super) fn join(&mut self) {
        self.join_database(0);
    }

    /// One more gateway comes, on another database of the server.
    pub(super) fn join_database(&mut self, number: u16) {
        self.join_at(&self.server.as_ref().unwrap().url_of_database(number));
    }

    fn join_at(&mut self, url: &ServersUrl) {
        let lifecycle = Lifecycle::new();
        let store = RedisStore::open(url, &quick(), Arc::new(SystemClock), &lifecycle);
        let store = Arc::new(store);
        self.gateways.push(Service::over(store, Config::default()));
    }

    /// The first gateway.
    pub(super) fn gateway(&self) -> &Service {
        &self.gateways[0]
    }

    /// The first gateway, and somebody who listens there.
    pub(super) async fn heard(&self) -> (&Service, Reader) {
        (self.gateway(), Reader::all(self.gateway()).await)
    }

    /// Somebody who listens at the first gateway, when all the others have heard of it.
    pub(super) async fn reader(&self) -> Reader {
        self.reader_at(0).await
    }

    /// Somebody who listens at the first gateway, when the ends of leases are heard there: from then on it is
    /// told that a lease has expired.
    pub(super) async fn reader_of_expiries(&self) -> Reader {
        let mut reader = Reader::all(self.gateway()).await;
        self.expires(&mut reader).await;
        reader
    }

    /// Waits until it is told at the first gateway that a lease has expired.
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

    /// The same at any gateway.
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
        // What is left of the trials comes before this.
        for gateway in &self.gateways {
            once(gateway, "begin").await;
            let is_last =
                |heard: &ReceivedEvent| heard.data["name"] == "begin" && heard.kind == "released";
            reader.up_to(is_last).await;
        }
        reader
    }
}

/// How long a lease is waited for that should have expired: longer than it takes.
const EXPIRY: Duration = Duration::from_secs(2);
/// How long somebody who listens waits before it is tried again whether everybody has heard of it.
const TRIAL: Duration = Duration::from_millis(300);

/// Acquires a lock, which must be granted.
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

/// Holds a lock for as long as the body lives.
pub(super) async fn hold(gateway: &Service, lock: &str, body: &Value) -> Body {
    let line = format!("POST /locks/{lock}/hold");
    gateway.stream(&line, JSON, body.to_string()).await
}

fn target_and_token(lease: &Value) -> (String, String) {
    let text = |field: &str| lease[field].as_str().unwrap().to_owned();
    (format!("/locks/{}", text("name")), text("token"))
}

/// Somebody who listens to `/events`.
pub(super) struct Reader {
    body: Body,
    text: String,
    heard: VecDeque<ReceivedEvent>,
    /// Everything that came, as it came.
    pub(super) raw: String,
    /// The last id that was given.
    pub(super) last_id: String,
}

/// One event.
#[derive(Debug, Clone)]
pub(super) struct ReceivedEvent {
    pub(super) kind: String,
    pub(super) data: Value,
    /// Empty if it has none.
    pub(super) id: String,
}

/// How long a test waits for something that must come.
const TIMEOUT: Duration = Duration::from_mins(1);

// === impl ReceivedEvent ===

impl ReceivedEvent {
    /// The event in words: kind, name, and why.
    pub(super) fn brief(&self) -> String {
        let word = |field: &str| self.data[field].as_str().unwrap_or("-").to_owned();
        format!("{} {} {}", self.kind, word("name"), word("reason"))
    }
}

// === impl Reader ===

impl Reader {
    /// Listens to everything.
    pub(super) async fn all(service: &Service) -> Self {
        Self::with(service, "", None).await
    }

    /// Listens with a query, from behind an event if an id is given.
    pub(super) async fn with(service: &Service, query: &str, last_id: Option<&str>) -> Self {
        let header = last_id.map(|id| ("last-event-id", id));
        Self::sending(service, query, header).await
    }

    /// Listens with a query and a header.
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
        // The first thing is no event.
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

    /// The next event, which must be of this kind; answers its data.
    pub(super) async fn expect(&mut self, kind: &str) -> Value {
        let heard = self.next().await.expect("the stream has ended");
        assert_eq!(heard.kind, kind, "{heard:?}");
        assert_eq!(heard.data["kind"], kind, "{heard:?}");
        heard.data
    }

    /// The stream ends here.
    pub(super) async fn ends(&mut self) {
        let heard = self.next().await;
        assert!(heard.is_none(), "{heard:?}");
    }

    /// The events up to one that is as wanted.
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

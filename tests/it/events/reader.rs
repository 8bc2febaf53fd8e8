//! Somebody who listens to `/events`, in process.

use std::{collections::VecDeque, time::Duration};

use axum::body::Body;
use http::Request;
use http_body_util::BodyExt;
use serde_json::Value;
use tokio::time::timeout;

use crate::api::service::Service;

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
    pub(super) async fn of(service: &Service) -> Self {
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
        let mut request = Request::get(format!("/events{query}"));
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let body = service.stream(request.body(Body::empty()).unwrap()).await;
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

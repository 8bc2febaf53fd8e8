//! Gateways on a real store, in process.

use std::{sync::Arc, time::Duration};

use axum::body::Body;
use http::{Method, Request};
use latchgate::{
    clock::SystemClock,
    config::{Config, RedisUrl},
    lifecycle::Lifecycle,
    store::{embedded::EmbeddedStore, redis::RedisStore},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::timeout;

use crate::{
    api::service::{ApiResponse, JSON, Service},
    redis::rig::quick,
    support::RedisServer,
};

use super::reader::{Reader, ReceivedEvent};

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

    fn join_at(&mut self, url: &RedisUrl) {
        let lifecycle = Lifecycle::new();
        let store = RedisStore::open(url, &quick(), Arc::new(SystemClock), &lifecycle);
        let store = Arc::new(store);
        self.gateways.push(Service::over(store, Config::default()));
    }

    /// The first gateway.
    pub(super) fn gateway(&self) -> &Service {
        &self.gateways[0]
    }

    /// Somebody who listens at the first gateway, when all the others have heard of it.
    pub(super) async fn reader(&self) -> Reader {
        self.reader_at(0).await
    }

    /// Somebody who listens at the first gateway, when the ends of leases are heard there: from then on it is
    /// told that a lease has expired.
    pub(super) async fn reader_of_expiries(&self) -> Reader {
        let mut reader = Reader::of(self.gateway()).await;
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
        let mut reader = Reader::of(&self.gateways[index]).await;
        for (other, gateway) in self.gateways.iter().enumerate() {
            let name = format!("heard{other}at{index}");
            let is_it = |heard: &ReceivedEvent| heard.data["name"] == name.as_str();
            loop {
                let lease = acquire(gateway, &name, &json!({})).await;
                release(gateway, &lease).await;
                if timeout(TRIAL, reader.up_to(is_it)).await.is_ok() {
                    break;
                }
            }
        }
        // What is left of the trials comes before this.
        for gateway in &self.gateways {
            let last = acquire(gateway, "begin", &json!({})).await;
            release(gateway, &last).await;
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
    let answer = post(gateway, &format!("/locks/{lock}"), body).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    answer.json()
}

pub(super) async fn post(gateway: &Service, target: &str, body: &Value) -> ApiResponse {
    gateway
        .ask(Method::POST, target, JSON, body.to_string())
        .await
}

/// Renews a lease, which must hold its lock.
pub(super) async fn renew(gateway: &Service, lease: &Value) {
    let (target, token) = of(lease);
    let header = [("lock-token", token.as_str())];
    let target = format!("{target}/renew");
    let renew = gateway.ask(Method::PUT, &target, &header, "").await;
    assert_eq!(renew.status, 200, "{}", renew.body);
}

/// Releases a lease, which must hold its lock.
pub(super) async fn release(gateway: &Service, lease: &Value) {
    let (target, token) = of(lease);
    let header = [("lock-token", token.as_str())];
    let release = gateway.ask(Method::DELETE, &target, &header, "").await;
    assert_eq!(release.status, 204, "{}", release.body);
}

/// Holds a lock for as long as the body lives.
pub(super) async fn hold(gateway: &Service, lock: &str, body: &Value) -> Body {
    let request = Request::post(format!("/locks/{lock}/hold"))
        .header("content-type", "application/json")
        .body(Body::from(body.to_string()));
    gateway.stream(request.unwrap()).await
}

fn of(lease: &Value) -> (String, String) {
    let text = |field: &str| lease[field].as_str().unwrap().to_owned();
    (format!("/locks/{}", text("name")), text("token"))
}

//! The whole program on a quorum without a minority of its nodes, as callers and operators see it.

use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::redlock::prelude::*;
use crate::support::{
    Connection, HttpRequest,
    gateway::{Gateway, Setup},
};

fn gateway(nodes: &Nodes) -> Gateway {
    Gateway::start_with(
        Setup::default()
            .with("LATCHGATE_STORE", &nodes.url().to_string())
            .with("LATCHGATE_REDLOCK_PERSISTENCE", "aof-always")
            .with("LATCHGATE_REDLOCK_NODE_TIMEOUT_MS", "800"),
    )
}

async fn ask(to: SocketAddr, asked: &HttpRequest) -> (u16, Value) {
    let stream = TcpStream::connect(to).await.unwrap();
    Connection::new(stream).ask(asked).await.unwrap()
}

/// Sends a GET. Answers the whole answer as text.
async fn text(from: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(from).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    text
}

fn lock(verb: &'static str, path: &str) -> HttpRequest {
    HttpRequest::new(verb, format!("/locks/{path}"))
}

fn token(lease: &Value) -> &str {
    lease["token"].as_str().expect("it is a lease")
}

/// The state of a check in the readiness answer.
async fn health(of: SocketAddr, check: &str) -> Value {
    let (status, ready) = ask(of, &HttpRequest::new("GET", "/readyz".to_owned())).await;
    assert_eq!(status, 200, "{ready}");
    let checks = ready["checks"].as_array().expect("it names checks");
    let found = checks.iter().find(|found| found["name"] == check);
    found
        .unwrap_or_else(|| panic!("{check} in {ready}"))
        .clone()
}

/// Waits until the readiness answer shows this state of the connections.
async fn until_connection(of: SocketAddr, status: &str) {
    until(&format!("the connections are {status}"), async || {
        health(of, "connection").await["status"] == status
    })
    .await;
}

#[tokio::test]
async fn with_two_of_five_nodes_gone_everything_is_served_and_said() {
    let mut nodes = Nodes::start(5).await;
    let (gateway, other) = (gateway(&nodes), gateway(&nodes));
    let (here, there) = (gateway.address, other.address);
    let (status, first) = ask(here, &lock("POST", "held").body(json!({"owner": "ci"}))).await;
    assert_eq!(status, 201, "{first}");

    let gone: Vec<_> = [1, 4].map(|node| nodes.servers[node].port()).into();
    nodes.servers[1].kill();
    nodes.servers[4].freeze();

    // An acquire at one gateway, and a wait at the other.
    let (status, lease) = ask(here, &lock("POST", "contended")).await;
    assert_eq!(status, 201, "{lease}");
    let (status, refused) = ask(there, &lock("POST", "contended")).await;
    assert_eq!((status, &refused["code"]), (423, &json!("locked")));
    let waits = lock("POST", "contended").body(json!({"wait_ms": 20_000, "ttl_ms": 20_000}));
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { ask(there, &waits).await });
    until("it waits", async || {
        let (_, shown) = ask(there, &lock("GET", "contended")).await;
        shown["waiters"].as_array().map(Vec::len) == Some(1)
    })
    .await;
    let renew = lock("PUT", "contended/renew").with("Lock-Token", token(&lease));
    let (status, renewed) = ask(there, &renew).await;
    assert_eq!(status, 200, "{renewed}");
    assert_eq!(renewed["fencing_token"], lease["fencing_token"]);
    let release = lock("DELETE", "contended").with("Lock-Token", token(&lease));
    assert_eq!(ask(here, &release).await.0, 204);
    let (status, next) = waiting.join_next().await.unwrap().unwrap();
    assert_eq!(status, 201, "{next}");
    assert!(next["fencing_token"].as_u64() > lease["fencing_token"].as_u64());
    // A released lease stays released.
    assert_eq!(ask(there, &release).await.1["code"], "lease-lost");

    let (_, shown) = ask(there, &lock("GET", "contended")).await;
    assert_eq!(shown["state"], "held");
    assert_eq!(
        shown["holders"][0]["fencing_token"], next["fencing_token"],
        "{shown}"
    );
    // A page may be shorter than its limit although there are more locks.
    let (mut names, mut path) = (HashSet::new(), "/locks?limit=100".to_owned());
    loop {
        let (status, page) = ask(here, &HttpRequest::new("GET", path)).await;
        assert_eq!(status, 200, "{page}");
        let locks = page["locks"].as_array().unwrap().iter();
        names.extend(locks.map(|lock| lock["name"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["next_cursor"].as_str() else {
            break;
        };
        path = format!("/locks?limit=100&cursor={cursor}");
    }
    assert!(
        names.contains("held") && names.contains("contended"),
        "{names:?}"
    );

    until("it is said that they are gone", async || {
        let found = health(here, "connection").await;
        let detail = found["detail"].as_str().unwrap_or_default();
        let tells_of = |port: &u16| detail.contains(&port.to_string());
        found["status"] == "warning" && gone.iter().all(tells_of)
    })
    .await;
    let ports: Vec<u16> = nodes.servers.iter().map(RedisServer::port).collect();
    until("the metrics tell of each node", async || {
        let metrics = text(here, "/metrics").await;
        ports.iter().all(|port| {
            let (node, up) = (
                format!("{{node=\"127.0.0.1:{port}\"}}"),
                !gone.contains(port),
            );
            metrics.contains(&format!("latchgate_store_node{node} {}", u8::from(up)))
                && metrics.contains(&format!("latchgate_store_votes_given_total{node}"))
        })
    })
    .await;

    nodes.servers[4].thaw();
    nodes.servers[1].start_again().await;
    until_connection(here, "passing").await;
}

#[tokio::test]
async fn without_a_majority_callers_hear_that_nothing_happened() {
    let mut nodes = Nodes::start(5).await;
    let gateway = gateway(&nodes);
    let here = gateway.address;
    let (status, lease) = ask(here, &lock("POST", "lock")).await;
    assert_eq!(status, 201, "{lease}");
    for node in [0, 1, 2] {
        nodes.servers[node].kill();
    }
    let (status, problem) = ask(here, &lock("POST", "another")).await;
    assert_eq!(
        (status, &problem["code"]),
        (503, &json!("store-unavailable")),
        "{problem}"
    );
    until_connection(here, "outage").await;
    for node in [0, 1, 2] {
        nodes.servers[node].start_again().await;
    }
    until_connection(here, "passing").await;
    let release = lock("DELETE", "lock").with("Lock-Token", token(&lease));
    assert_eq!(ask(here, &release).await.0, 204);
    let (status, next) = ask(here, &lock("POST", "lock")).await;
    assert_eq!(status, 201, "{next}");
    assert!(next["fencing_token"].as_u64() > lease["fencing_token"].as_u64());
}

//! The metrics of a gateway, scraped as Prometheus does.

use std::collections::BTreeMap;

use latchgate::telemetry::metrics::CATALOGUE;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};

use crate::{
    cli::prelude::*,
    support::{Caller, eventually},
};

/// Samples by name and labels, as text.
type Samples = BTreeMap<String, String>;

/// Sends a GET. Answers status, content type and body.
pub(super) async fn get(url: &str, key: Option<&str>) -> (u16, String, String) {
    let (host, path) = url
        .strip_prefix("http://")
        .unwrap()
        .split_once('/')
        .unwrap();
    let key = key.map_or_else(String::new, |key| {
        format!("Authorization: Bearer {key}\r\n")
    });
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{key}\r\n");
    let mut stream = TcpStream::connect(host).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    let form = head
        .lines()
        .find_map(|line| line.strip_prefix("content-type: "));
    (status, form.unwrap_or_default().to_owned(), body.to_owned())
}

async fn scrape(gateway: &Gateway) -> Samples {
    let (status, form, text) = get(&format!("{}/metrics", gateway.url()), None).await;
    assert_eq!(status, 200, "{text}");
    assert_eq!(form, "text/plain; version=0.0.4; charset=utf-8");
    assert!(
        text.contains("\n# TYPE latchgate_acquires_total counter\n"),
        "{text}"
    );
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.to_owned())
        })
        .collect()
}

/// Makes each counted operation happen: acquire, renew, wait, release, break, and requests that come too late.
async fn use_it(gateway: &Gateway) {
    let url = gateway.url();
    let run = |arguments: &[&str], token: &str| {
        let ran = latchgate(arguments).env("LATCHGATE_URL", &url);
        let ran = ran.token(token).read();
        (ran.code, ran.out)
    };
    let mut first = Caller::connect(gateway.address).await;
    let mut second = Caller::connect(gateway.address).await;
    let (status, lease) = first
        .acquire("secret%2Fname", &json!({"owner": "secret-owner"}))
        .await;
    assert_eq!(status, 201);
    let token = lease["token"].as_str().unwrap();
    assert_eq!(run(&["renew", "secret/name"], token).0, Some(0));
    let mut waiting = JoinSet::new();
    waiting.spawn(async move {
        let (status, lease) = second
            .acquire("secret%2Fname", &json!({"wait_ms": 20_000}))
            .await;
        assert_eq!(status, 201, "{lease}");
        (second, lease)
    });
    eventually("somebody waits", async || {
        let samples = scrape(gateway).await;
        (samples["latchgate_waiters"] == "1").then_some(())
    })
    .await;
    first.release("secret%2fname", &lease).await;
    let (_second, next) = waiting.join_next().await.unwrap().unwrap();
    assert!(next["fencing_token"].as_u64() > lease["fencing_token"].as_u64());
    // Renewals with the token of a released lease and of an expired lease.
    assert_ne!(run(&["renew", "secret/name"], token).0, Some(0));
    let (status, short) = first.acquire("short", &json!({"ttl_ms": 100})).await;
    assert_eq!(status, 201);
    while first.inspect("short").await["state"] == "held" {}
    let expired = short["token"].as_str().unwrap();
    assert_ne!(run(&["renew", "short"], expired).0, Some(0));
    let (status, _) = first.acquire("secret%2Fname", &json!({})).await;
    assert_eq!(status, 423);
    let broken = run(&["break", "secret/name", "--any", "--reason", "a test"], "");
    assert_eq!(broken.0, Some(0), "{broken:?}");
}

fn check(samples: &Samples) {
    let cases = r#"
        latchgate_acquires_total{outcome="granted"} => 3
        latchgate_acquires_total{outcome="held"} => 1
        latchgate_wait_seconds_count{outcome="granted"} => 1
        latchgate_handoffs_total{by="this"} => 1
        latchgate_renewals_total{by="caller",outcome="renewed"} => 1
        latchgate_renewals_total{by="caller",outcome="lost"} => 2
        latchgate_renew_margin_seconds_count{by="caller"} => 1
        latchgate_expired_while_held_total{seen_by="renew"} => 1
        latchgate_releases_total{outcome="released"} => 1
        latchgate_hold_seconds_count => 1
        latchgate_broken_leases_total => 1
        latchgate_waiters => 0
        latchgate_draining => 0
        latchgate_store_duration_seconds_count{operation="break"} => 1
        latchgate_http_requests_total{method="POST",route="/locks/{name}",status="423"} => 1
    "#;
    for (name, value) in rows(cases) {
        let found = samples.get(&name);
        assert_eq!(found, Some(&value), "{name}: {samples:#?}");
    }
    let text = format!("{samples:?}");
    assert!(!text.contains("secret"), "{text}");
    for name in samples.keys() {
        let bare = name.split('{').next().unwrap();
        let listed = CATALOGUE
            .iter()
            .any(|metric| metric.samples().contains(&bare.to_owned()));
        assert!(listed, "{bare} is not in the catalogue");
    }
}

#[tokio::test]
async fn what_happens_is_counted_on_the_embedded_store() {
    let gateway = Gateway::start();
    use_it(&gateway).await;
    // The break is recorded in the background, and the first record is the first of its series.
    let few = eventually("the history is written", async || {
        let recorded = "latchgate_store_duration_seconds_count{operation=\"record_history\"}";
        let samples = scrape(&gateway).await;
        samples.contains_key(recorded).then_some(samples)
    })
    .await;
    check(&few);
    // No series belongs to one lock: a hundred more locks add none.
    let mut caller = Caller::connect(gateway.address).await;
    for number in 0..100 {
        let (status, lease) = caller.acquire(&format!("more:{number}"), &json!({})).await;
        assert_eq!(status, 201, "{lease}");
    }
    let many = scrape(&gateway).await;
    let mut added = many.keys().filter(|name| !few.contains_key(*name));
    assert_eq!(added.next(), None);
}

#[tokio::test]
async fn what_happens_is_counted_on_redis_and_what_the_store_is_like() {
    let server = RedisServer::start().await;
    let gateway = Gateway::start_with(Setup::on(&server));
    use_it(&gateway).await;
    let samples = scrape(&gateway).await;
    check(&samples);
    let skew = format!(
        "latchgate_store_clock_skew_seconds{{node=\"127.0.0.1:{}\"}}",
        server.port()
    );
    let skew = samples[&skew].parse::<f64>().unwrap();
    assert!(skew.abs() < 1.0, "{samples:?}");
    assert_eq!(samples["latchgate_store_channel"], "1");
    assert_ne!(samples["latchgate_store_connections"], "0");
    assert_eq!(samples["latchgate_check{check=\"connection\"}"], "0");
    drop(server);
    eventually("the store is seen to be away", async || {
        let samples = scrape(&gateway).await;
        let mut checks = samples
            .iter()
            .filter(|(name, _)| name.starts_with("latchgate_check{"));
        let away = checks.any(|(_, severity)| *severity == "2")
            && samples["latchgate_store_channel"] == "0";
        away.then_some(())
    })
    .await;
}

#[tokio::test]
async fn with_keys_one_needs_the_permission_and_on_an_address_of_its_own_none() {
    let reader = Made::new("scraper", &["--metrics"]);
    let worker = Made::new("worker", &["--acquire", "*", "--view", "*"]);
    let file = File::new(&format!("{}\n{}", reader.toml, worker.toml));
    let setup = Setup::default()
        .with("LATCHGATE_AUTH_KEYS_FILE", file.path())
        .with("LATCHGATE_METRICS_LISTEN", "127.0.0.1:0");
    let gateway = Gateway::start_with(setup);
    let url = format!("{}/metrics", gateway.url());
    assert_eq!(get(&url, None).await.0, 401);
    assert_eq!(get(&url, Some(&worker.key)).await.0, 403);
    let (status, _, text) = get(&url, Some(&reader.key)).await;
    assert_eq!(status, 200, "{text}");
    for secret in [&reader.key, &worker.key] {
        assert!(!text.contains(secret.as_str()));
    }
    let own = gateway
        .greeting
        .lines()
        .find_map(|line| line.strip_prefix("metrics: "));
    let own = own.expect("the greeting names the address of the metrics");
    let (status, _, text) = get(own, None).await;
    assert_eq!(status, 200);
    assert!(text.contains("latchgate_build_info{version="), "{text}");
    let other = own.replace("/metrics", "/locks");
    assert_eq!(get(&other, None).await.0, 404);
}

#[tokio::test]
async fn on_an_address_of_its_own_they_are_there_during_the_delay_and_gone_with_the_gateway() {
    let setup = Setup::default()
        .with("LATCHGATE_METRICS_LISTEN", "127.0.0.1:0")
        .with("LATCHGATE_SHUTDOWN_DELAY_MS", "3000")
        .with("LATCHGATE_SHUTDOWN_GRACE_MS", "9000");
    let mut gateway = Gateway::start_with(setup);
    let greeting = gateway.greeting.clone();
    let own = greeting
        .lines()
        .find_map(|line| line.strip_prefix("metrics: "))
        .unwrap();
    let (_, address) = own.split_once("//").unwrap();
    let address = address.strip_suffix("/metrics").unwrap();
    // A scraper keeps its connection open.
    let mut kept = TcpStream::connect(address).await.unwrap();
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\
        Accept: application/openmetrics-text; version=1.0.0\r\n\r\n";
    kept.write_all(request.as_bytes()).await.unwrap();
    gateway.signal(Signal::TERM);
    eventually("it is said to be about to stop", async || {
        let (status, _, text) = get(own, None).await;
        assert_eq!(status, 200);
        text.contains("\nlatchgate_draining 1\n").then_some(())
    })
    .await;
    let log = gateway.log();
    assert!(!log.contains("draining: no new acquires"), "{log}");
    assert_eq!(gateway.wait().code(), Some(0), "{}", gateway.log());
    let mut rest = Vec::new();
    kept.read_to_end(&mut rest).await.unwrap();
    assert!(rest.ends_with(b"# EOF\n"));
    TcpStream::connect(address).await.unwrap_err();
}

#[test]
fn an_address_that_is_none_stops_the_start_and_is_named() {
    let ran = typed("serve")
        .env("LATCHGATE_METRICS_LISTEN", "everywhere")
        .read();
    assert_ne!(ran.code, Some(0));
    ran.says("metrics.listen");
    ran.says("IP:PORT");
}

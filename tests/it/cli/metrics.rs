//! What a gateway counts, scraped as Prometheus does it.

use std::collections::BTreeMap;

use latchgate::telemetry::metrics::CATALOGUE;
use serde_json::json;

use crate::support::{
    caller::Caller,
    gateway::{Gateway, Setup},
    program::latchgate,
    redis_server::RedisServer,
};

use super::key_fixture::{File, Made};

/// Samples by name and labels as they are written.
type Samples = BTreeMap<String, f64>;

async fn get(url: &str, key: Option<&str>) -> (u16, String, String) {
    let client = reqwest::Client::builder().build().unwrap();
    let mut request = client.get(url);
    if let Some(key) = key {
        request = request.bearer_auth(key);
    }
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    let form = answer.headers()["content-type"]
        .to_str()
        .unwrap()
        .to_owned();
    (status, form, answer.text().await.unwrap())
}

async fn scrape(gateway: &Gateway) -> Samples {
    let (status, form, text) = get(&format!("{}/metrics", gateway.url()), None).await;
    assert_eq!(status, 200, "{text}");
    assert_eq!(form, "text/plain; version=0.0.4; charset=utf-8");
    assert!(text.ends_with("# EOF\n"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

/// Acquires, renews, waits, releases, breaks, and comes too late.
async fn use_it(gateway: &Gateway) {
    let url = gateway.url();
    let run = |arguments: &[&str], token: &str| {
        let ran = latchgate(arguments).env("LATCHGATE_URL", &url);
        let ran = ran.env("LATCHGATE_TOKEN", token).read();
        (ran.code, ran.out)
    };
    let mut first = Caller::connect(gateway.address).await;
    let mut second = Caller::connect(gateway.address).await;
    let (status, lease) = first
        .acquire("secret-name", &json!({"owner": "secret-owner"}))
        .await;
    assert_eq!(status, 201);
    let token = lease["token"].as_str().unwrap();
    assert_eq!(run(&["renew", "secret-name"], token).0, Some(0));
    let waiting = tokio::spawn(async move {
        let (status, lease) = second
            .acquire("secret-name", &json!({"wait_ms": 20_000}))
            .await;
        assert_eq!(status, 201, "{lease}");
        (second, lease)
    });
    crate::support::eventually("somebody waits", async || {
        let waits = scrape(gateway).await["latchgate_waiters"];
        (waits >= 1.0).then_some(())
    })
    .await;
    first.release("secret-name", &lease).await;
    let (_second, next) = waiting.await.unwrap();
    assert!(next["fencing_token"].as_u64() > lease["fencing_token"].as_u64());
    // A token that holds nothing any more.
    assert_ne!(run(&["renew", "secret-name"], token).0, Some(0));
    let (status, _) = first.acquire("secret-name", &json!({})).await;
    assert_eq!(status, 423);
    let broken = run(
        &[
            "break",
            "secret-name",
            "--any",
            "--reason",
            "a test",
            "--yes",
        ],
        "",
    );
    let broken = if broken.0 == Some(2) {
        run(&["break", "secret-name", "--any", "--reason", "a test"], "")
    } else {
        broken
    };
    assert_eq!(broken.0, Some(0), "{broken:?}");
}

fn check(samples: &Samples) {
    for (name, value) in [
        ("latchgate_acquires_total{outcome=\"granted\"}", 2.0),
        ("latchgate_acquires_total{outcome=\"held\"}", 1.0),
        ("latchgate_wait_seconds_count{outcome=\"granted\"}", 1.0),
        ("latchgate_handoffs_total{by=\"this\"}", 1.0),
        (
            "latchgate_renewals_total{by=\"caller\",outcome=\"renewed\"}",
            1.0,
        ),
        (
            "latchgate_renewals_total{by=\"caller\",outcome=\"lost\"}",
            1.0,
        ),
        ("latchgate_renew_margin_seconds_count{by=\"caller\"}", 1.0),
        ("latchgate_expired_while_held_total{seen_by=\"renew\"}", 1.0),
        ("latchgate_releases_total{outcome=\"released\"}", 1.0),
        ("latchgate_hold_seconds_count", 1.0),
        ("latchgate_broken_leases_total", 1.0),
        ("latchgate_fence_regressions_total", 0.0),
        ("latchgate_waiters", 0.0),
        ("latchgate_draining", 0.0),
        (
            "latchgate_store_duration_seconds_count{operation=\"break\"}",
            1.0,
        ),
        (
            "latchgate_http_requests_total{method=\"POST\",route=\"/locks/{name}\",status=\"423\"}",
            1.0,
        ),
    ] {
        assert_eq!(samples.get(name), Some(&value), "{name}: {samples:#?}");
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
    check(&scrape(&gateway).await);
}

#[tokio::test]
async fn what_happens_is_counted_on_redis_and_what_the_store_is_like() {
    let server = RedisServer::start().await;
    let url = format!("redis://127.0.0.1:{}/0", server.port());
    let gateway = Gateway::start_with(Setup::default().with("LATCHGATE_STORE", &url));
    use_it(&gateway).await;
    let samples = scrape(&gateway).await;
    check(&samples);
    let skew = format!(
        "latchgate_store_clock_skew_seconds{{node=\"127.0.0.1:{}\"}}",
        server.port()
    );
    assert!(samples[&skew].abs() < 1.0, "{samples:?}");
    assert_eq!(samples["latchgate_store_channel"], 1.0);
    assert!(samples["latchgate_store_connections"] >= 1.0);
    assert_eq!(samples["latchgate_check{check=\"connection\"}"], 0.0);
    drop(server);
    crate::support::eventually("the store is seen to be away", async || {
        let samples = scrape(&gateway).await;
        let away = samples["latchgate_check{check=\"connection\"}"] == 2.0
            && samples["latchgate_store_channel"] == 0.0;
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
    assert_eq!(reqwest::get(other).await.unwrap().status(), 404);
}

#[test]
fn an_address_that_is_none_stops_the_start_and_is_named() {
    let ran = latchgate(&["serve"])
        .env("LATCHGATE_METRICS_LISTEN", "everywhere")
        .read();
    assert_ne!(ran.code, Some(0));
    assert!(ran.err.contains("metrics.listen"), "{ran:?}");
    assert!(ran.err.contains("IP:PORT"), "{ran:?}");
}

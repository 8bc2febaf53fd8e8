//! What a scrape of the metrics costs a gateway that has much to do.

use std::{collections::BTreeSet, net::SocketAddr, ops::Range};

use serde_json::{Value, json};
use tokio::{net::TcpStream, time::Instant};

use super::metrics::get;
use crate::support::{
    Connection, HttpRequest, RedisServer, eventually,
    gateway::{Gateway, Setup},
    raise_the_limit,
};

/// For each of them one waits.
const LOCKS: usize = 1_000;
/// Each of them holds a lock more.
const STREAMS: usize = 100;
const WAIT_MS: u64 = 300_000;
/// How often it is scraped for the median.
const SCRAPES: usize = 21;

/// What a scrape says: the series, how many bytes, and the gauges of what goes on.
struct Scrape {
    series: BTreeSet<String>,
    bytes: usize,
    /// Leases, waiters, streams.
    gauges: [usize; 3],
}

#[tokio::test]
async fn a_scrape_is_no_larger_for_a_thousand_locks_than_for_one() {
    raise_the_limit();
    println!(
        "embedded: {}",
        measure(&Gateway::start_with(patient())).await
    );
    let redis = RedisServer::start().await;
    let store = format!("redis://127.0.0.1:{}", redis.port());
    let gateway = Gateway::start_with(patient().with("LATCHGATE_STORE", &store));
    println!("Redis: {}", measure(&gateway).await);
}

#[tokio::test]
async fn a_lease_counts_at_one_gateway_whichever_renews_it() {
    let redis = RedisServer::start().await;
    let store = format!("redis://127.0.0.1:{}", redis.port());
    let [granter, other] =
        [(); 2].map(|()| Gateway::start_with(Setup::default().with("LATCHGATE_STORE", &store)));
    let acquire = HttpRequest::new("POST", "/locks/a".to_owned()).body(long());
    let (status, lease) = connect(granter.address).await.ask(&acquire).await.unwrap();
    assert_eq!(status, 201, "{lease}");
    let renew =
        HttpRequest::new("PUT", "/locks/a/renew".to_owned()).body(json!({"token": lease["token"]}));
    for gateway in [&other, &granter, &other] {
        let (status, _) = connect(gateway.address).await.ask(&renew).await.unwrap();
        assert_eq!(status, 200);
        let [here, there] = [scrape(&granter).await, scrape(&other).await];
        assert_eq!([here.gauges[0], there.gauges[0]], [1, 0]);
    }
    let release = HttpRequest::new("POST", "/locks/a/release".to_owned())
        .body(json!({"token": lease["token"]}));
    let (status, _) = connect(granter.address).await.ask(&release).await.unwrap();
    assert!((200..300).contains(&status), "{status}");
    assert_eq!(scrape(&granter).await.gauges[0], 0);
}

/// Nobody's wait runs out before all have come.
fn patient() -> Setup {
    Setup::default().with("LATCHGATE_LIMITS_MAX_WAIT_MS", &WAIT_MS.to_string())
}

/// Says how long a scrape took, and how large it was.
async fn measure(gateway: &Gateway) -> String {
    // It counts itself from the next one on.
    scrape(gateway).await;
    let _first = begin(gateway.address, 0..1).await;
    let one = scraped_with(gateway, [2, 1, 1]).await;
    let _rest = begin(gateway.address, 1..LOCKS).await;
    let many = scraped_with(gateway, [LOCKS + STREAMS, LOCKS, STREAMS]).await;
    let more: Vec<_> = many.series.difference(&one.series).collect();
    assert!(more.is_empty(), "{more:?}");
    // Numbers have more digits now.
    assert!(
        many.bytes < one.bytes + one.bytes / 10,
        "{} bytes after {}",
        many.bytes,
        one.bytes
    );
    let mut times = Vec::new();
    for _ in 0..SCRAPES {
        let asked = Instant::now();
        scrape(gateway).await;
        times.push(asked.elapsed());
    }
    times.sort();
    format!(
        "{:?} (median; {:?} at most), {} series, {} bytes",
        times[SCRAPES / 2],
        times[SCRAPES - 1],
        many.series.len(),
        many.bytes
    )
}

/// Some who hold a lock by a stream, and locks for which somebody waits.
async fn begin(to: SocketAddr, numbers: Range<usize>) -> Vec<Connection<TcpStream>> {
    let mut all = Vec::new();
    for number in numbers {
        all.push(waiter(to, number).await);
        if number < STREAMS {
            all.push(stream(to, number).await);
        }
    }
    all
}

async fn connect(to: SocketAddr) -> Connection<TcpStream> {
    Connection::new(TcpStream::connect(to).await.unwrap())
}

async fn waiter(to: SocketAddr, number: usize) -> Connection<TcpStream> {
    let mut connection = connect(to).await;
    let path = format!("/locks/held:{number}");
    let lease = HttpRequest::new("POST", path.clone()).body(long());
    assert_eq!(connection.ask(&lease).await.unwrap().0, 201);
    let wait = HttpRequest::new("POST", path).body(json!({"wait_ms": WAIT_MS}));
    connection.send(&wait).await.unwrap();
    connection
}

async fn stream(to: SocketAddr, number: usize) -> Connection<TcpStream> {
    let mut connection = connect(to).await;
    let hold = HttpRequest::new("POST", format!("/locks/streamed:{number}/hold")).body(long());
    assert_eq!(connection.open(&hold).await.unwrap(), None);
    connection
}

/// Nothing is to be renewed meanwhile, which would be counted as well.
fn long() -> Value {
    json!({"ttl_ms": 600_000})
}

/// A scrape when so much goes on as is asked for.
async fn scraped_with(gateway: &Gateway, gauges: [usize; 3]) -> Scrape {
    eventually("all of it goes on", async || {
        let scrape = scrape(gateway).await;
        (scrape.gauges == gauges).then_some(scrape)
    })
    .await
}

async fn scrape(gateway: &Gateway) -> Scrape {
    let (status, _, text) = get(&format!("{}/metrics", gateway.url()), None).await;
    assert_eq!(status, 200);
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let samples: Vec<_> = samples.map(|line| line.rsplit_once(' ').unwrap()).collect();
    let gauge = |wanted: &str| {
        let found = samples.iter().find(|(name, _)| *name == wanted);
        found.unwrap().1.parse().unwrap()
    };
    let gauges = [
        "latchgate_leases",
        "latchgate_waiters",
        "latchgate_held_streams",
    ];
    Scrape {
        gauges: gauges.map(gauge),
        series: samples.iter().map(|(name, _)| (*name).to_owned()).collect(),
        bytes: text.len(),
    }
}

//! More requests and connections than the gateway accepts, and its metrics meanwhile.

use futures_util::stream::FuturesUnordered;

use crate::api::prelude::*;

/// A gateway with room for two requests, and for one more that keeps a lease.
pub(super) fn small() -> Service {
    let mut config = Config::default();
    config.http.max_concurrent_requests = 2;
    config.http.reserved_requests = 1;
    Service::with(config)
}

fn assert_overloaded(answer: &ApiResponse) {
    assert_eq!(answer.problem(), (503, "overloaded"));
    assert_eq!(answer.header("retry-after"), "1");
    assert_eq!(answer["retry_after_ms"], 1_000);
}

fn inspects(service: &Service) -> usize {
    service.script.count(|it| matches!(it, StoreCall::Inspect))
}

/// Keeps two requests busy while `other` runs.
pub(super) async fn while_full(service: &Service, other: impl Future<Output = ()>) {
    service.script.paused.set();
    let two = futures_util::future::join(service.get("/locks/a"), service.get("/locks/b"));
    let other = async {
        until("both are asked", || inspects(service) == 2).await;
        other.await;
        service.script.paused.lift();
    };
    let ((first, second), ()) = tokio::join!(two, other);
    assert_eq!((first.status, second.status), (200, 200));
}

#[tokio::test]
async fn one_request_more_is_refused_and_nothing_of_it_happens() {
    let service = small();
    let full = async {
        for line in [
            "POST /locks/c",
            "GET /locks/c",
            "POST /locks/c/hold",
            "GET /openapi.json",
        ] {
            assert_overloaded(&service.call(line, &[]).await);
        }
        assert_eq!(service.script.asked().len(), 2);
    };
    while_full(&service, full).await;
    assert_eq!(service.acquire("{}").await.status, 201);
}

#[tokio::test]
async fn it_is_refused_before_its_body_is_asked_for() {
    let service = small();
    let full = async {
        let mut stream = service.connect().await;
        let head = "POST /locks/c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\
             Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n";
        asked(&mut stream, head, 503).await;
    };
    while_full(&service, full).await;
}

#[tokio::test]
async fn those_who_keep_or_end_a_lease_have_room_that_nobody_else_takes() {
    let service = small();
    // When the caller of the hold hangs up, the gateway withdraws the adoption at some later moment.
    let asked = |service: &Service| {
        let by_callers = |it: &StoreCall| !matches!(it, StoreCall::GiveBack(_));
        service.script.count(by_callers)
    };
    let full = async {
        let keeping = [
            ("PUT /locks/a/renew", "PUT /locks/b/renew"),
            ("POST /locks/a/hold", "PUT /locks/b/renew"),
            ("DELETE /locks/a", "POST /locks/b/release"),
            ("POST /locks/a/release", "POST /locks/b/release"),
        ];
        for (at, (line, more)) in keeping.into_iter().enumerate() {
            let mut kept = std::pin::pin!(service.call(line, WITH_TOKEN));
            tokio::select! {
                answer = &mut kept => panic!("{line}: {}", answer.body),
                () = until("the store is asked", || asked(&service) == 3 + at) => {}
            }
            // The reserve has room for one request that keeps a lease, so the second is refused.
            assert_overloaded(&service.call(more, WITH_TOKEN).await);
        }
    };
    while_full(&service, full).await;
}

#[tokio::test]
async fn who_releases_takes_no_room_from_those_who_renew() {
    let service = small();
    let full = async {
        let mut releases = FuturesUnordered::new();
        for _ in 0..8 {
            releases.push(service.call("DELETE /locks/a", WITH_TOKEN));
        }
        // One release has room, the others are refused.
        for _ in 0..7 {
            assert_overloaded(&releases.next().await.unwrap());
        }
        let renew = service.call("PUT /locks/a/renew", WITH_TOKEN);
        tokio::select! {
            answer = renew => panic!("{}", answer.body),
            () = service.is_asked(4) => {}
        }
    };
    while_full(&service, full).await;
}

#[tokio::test]
async fn room_for_renewals_is_taken_by_nobody_who_is_not_let_pass() {
    let key = Key::new();
    let mut config = Config::default();
    config.http.max_concurrent_requests = 1;
    config.http.reserved_requests = 1;
    let (service, ..) = Service::with_gate(config, &key.entry("ci", "acquire = ['*']"));
    service.script.paused.set();
    let with_key = [key.auth(), WITH_TOKEN[0]];
    let renew = || service.call("PUT /locks/a/renew", &with_key);
    let two = async { tokio::join!(renew(), renew()) };
    let full = async {
        service.is_asked(2).await;
        assert_overloaded(&renew().await);
        // A request without a key is refused as unauthorized, and takes no room.
        for line in ["PUT /locks/a/renew", "POST /locks/a/hold"] {
            let refused = service.call(line, WITH_TOKEN).await;
            assert_eq!(refused.problem(), (401, "unauthorized"));
        }
        service.script.paused.lift();
    };
    let ((first, _), ()) = tokio::join!(two, full);
    assert_eq!(first.status, 200);
}

#[tokio::test]
async fn a_browser_is_told_what_it_may_send_although_there_is_no_room() {
    let mut config = Config::default();
    config.http.max_concurrent_requests = 2;
    config.http.allowed_origins = vec!["https://ci.example.com".parse().unwrap()];
    let service = Service::with(config);
    let full = async {
        let preflight = [
            ("origin", "https://ci.example.com"),
            ("access-control-request-method", "PUT"),
            ("access-control-request-headers", "lock-token"),
        ];
        for path in ["/locks/a/renew", "/locks/a/release", "/locks/a"] {
            let told = service.call(&format!("OPTIONS {path}"), &preflight).await;
            assert_eq!(told.status, 204, "{path}");
            let origin = told.header("access-control-allow-origin");
            assert_eq!(origin, "https://ci.example.com");
        }
    };
    while_full(&service, full).await;
}

#[tokio::test]
async fn they_take_the_room_of_all_if_theirs_is_full() {
    let service = small();
    service.script.paused.set();
    let release = || service.call("DELETE /locks/a", WITH_TOKEN);
    let three = async { tokio::join!(release(), release(), release()) };
    let full = async {
        service.is_asked(3).await;
        assert_overloaded(&release().await);
        service.script.paused.lift();
    };
    let ((first, ..), ()) = tokio::join!(three, full);
    assert_eq!(first.status, 204);
}

#[tokio::test]
async fn probes_and_metrics_are_answered_all_the_same() {
    let service = small();
    let full = async {
        service.get("/healthz").await.is(200);
        let scraped = service.get("/metrics").await.is(200);
        assert!(scraped.body.contains("latchgate_waiters"));
    };
    while_full(&service, full).await;
}

#[tokio::test]
async fn those_who_wait_for_a_lock_take_no_room() {
    let service = small();
    let mut waiting = FuturesUnordered::new();
    for waiters in 1..=4 {
        service.script.acquire.ok(queued(0));
        waiting.push(service.ask("POST /locks/a", JSON, r#"{"wait_ms": 55000}"#));
        let waits = async {
            let parked = || service.script.parking.len() == waiters;
            until("it waits", parked).await;
            // The gateway counts a waiter some time after the waiter has entered the queue.
            until_served(&service).await;
        };
        tokio::select! {
            answer = waiting.next() => panic!("{:?}", answer.map(|answer| answer.body)),
            () = waits => {}
        }
    }
    while_full(&service, async {}).await;
}

#[tokio::test]
async fn bodies_that_do_not_come_take_no_room() {
    let service = small();
    let address = service.listen().await;
    let mut slow = Vec::new();
    for path in [
        "POST /locks/a",
        "POST /locks/a",
        "PUT /locks/a/renew",
        "POST /locks/a",
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "{path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
             Lock-Token: {TOKEN}\r\nContent-Length: 2\r\n\r\n{{"
        );
        send(&mut stream, &head).await;
        slow.push(stream);
    }
    // Each of these requests may have been counted as busy for a moment.
    until_served(&service).await;
    for stream in &mut slow {
        send(stream, "}").await;
        let done = answer(stream).await;
        assert!(done.starts_with("HTTP/1.1 20"), "{done}");
    }
}

async fn until_served(service: &Service) {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        let renewed = service.call("PUT /locks/b/renew", WITH_TOKEN).await;
        let acquired = service.call("POST /locks/b", &[]).await;
        if (renewed.status, acquired.status) == (200, 201) {
            return;
        }
        assert!(Instant::now() < deadline, "{}", acquired.body);
    }
}

/// A gateway that accepts sixteen connections.
fn narrow() -> Service {
    let mut config = Config::default();
    config.http.max_connections = 16;
    config.http.header_timeout_ms = Millis(60_000);
    Service::with(config)
}

const INSPECT: &str = "GET /locks/a HTTP/1.1\r\nHost: localhost\r\n\r\n";
const ACQUIRE: &str = "POST /locks/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\
     Content-Type: application/json\r\n\r\n{}";

/// A connection on which a request was sent.
async fn sent(to: SocketAddr, request: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.unwrap();
    send(&mut stream, request).await;
    stream
}

#[tokio::test]
async fn a_connection_beyond_the_limit_is_refused_and_those_within_go_on() {
    let service = narrow();
    let address = service.listen().await;
    let mut known = sent(address, INSPECT).await;
    answer(&mut known).await;
    let mut silent = Vec::new();
    for _ in 0..15 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    for request in [ACQUIRE, INSPECT] {
        let mut more = TcpStream::connect(address).await.unwrap();
        let refused = asked(&mut more, request, 503).await;
        assert!(refused.contains("retry-after: 1\r\n"), "{refused}");
        assert_has(&refused, "content-type: application/problem+json\r\n");
        assert!(refused.contains("\"code\":\"overloaded\""), "{refused}");
        assert_eq!(closed(&mut more).await, "");
    }
    // Bytes that are not HTTP get an answer with a status only.
    let mut more = TcpStream::connect(address).await.unwrap();
    asked(&mut more, "nonsense\r\n\r\n", 400).await;
    assert_eq!(service.script.asked().len(), inspects(&service));
    asked(&mut known, INSPECT, 200).await;
    // A connection that ends makes room for another.
    drop(silent.pop());
    eventually("there is room", || async {
        let mut next = sent(address, INSPECT).await;
        let answer = answer(&mut next).await;
        answer.starts_with("HTTP/1.1 200 ").then_some(())
    })
    .await;
}

#[tokio::test]
async fn where_all_connections_are_busy_one_more_is_told_so() {
    let service = narrow();
    let address = service.listen().await;
    service.script.paused.set();
    let mut busy = Vec::new();
    for _ in 0..16 {
        let stream = sent(address, INSPECT).await;
        busy.push(stream);
    }
    service.is_asked(16).await;
    let mut more = sent(address, INSPECT).await;
    let refused = answer(&mut more).await.to_lowercase();
    assert!(refused.starts_with("http/1.1 503 "), "{refused}");
    assert!(refused.contains("\r\nretry-after: 1\r\n"), "{refused}");
    assert_eq!(closed(&mut more).await, "");
    assert_eq!(inspects(&service), 16);
    service.script.paused.lift();
    for stream in &mut busy {
        answered(stream, 200).await;
    }
}

const WAIT: &str = "POST /locks/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
     Content-Length: 18\r\n\r\n{\"wait_ms\": 50000}";

#[tokio::test]
async fn those_who_wait_or_listen_leave_connections_to_others() {
    let service = narrow();
    let address = service.listen().await;
    let mut waiting = Vec::new();
    // An eighth of the sixteen connections is reserved.
    for waiters in 1..=14 {
        service.script.acquire.ok(queued(0));
        let stream = sent(address, WAIT).await;
        waiting.push(stream);
        until("it waits", || service.script.parking.len() == waiters).await;
    }
    let mut other = TcpStream::connect(address).await.unwrap();
    let lasting = [
        WAIT,
        "POST /locks/b/hold HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ];
    for request in lasting {
        send(&mut other, request).await;
        let refused = answer(&mut other).await.to_lowercase();
        assert!(refused.starts_with("http/1.1 503 "), "{refused}");
        assert!(refused.contains("\r\nretry-after: 2\r\n"), "{refused}");
    }
    let with_token = format!("Host: localhost\r\nLock-Token: {TOKEN}\r\n\r\n");
    let renew = format!("PUT /locks/a/renew HTTP/1.1\r\n{with_token}");
    asked(&mut other, &renew, 200).await;
    // A sixteenth is reserved for callers with a lease.
    send(
        &mut other,
        &format!("POST /locks/a/hold HTTP/1.1\r\n{with_token}"),
    )
    .await;
    answered(&mut other, 200).await;
    let mut more = TcpStream::connect(address).await.unwrap();
    asked(&mut more, &renew, 200).await;
    drop(other);
    drop(waiting.split_off(12));
    until("they are gone", || service.script.parking.len() == 12).await;
    service.script.acquire.ok(queued(0));
    send(&mut more, WAIT).await;
    until("it waits", || service.script.parking.len() == 13).await;
}

/// How many scrapes are served at once although the gateway has no room.
const SCRAPES: usize = 4;

#[tokio::test]
async fn a_few_may_ask_at_once_and_who_may_not_takes_the_room_of_nobody() {
    let [scraper, other] = [Key::new(), Key::new()];
    let config = with(Config::default(), |it| it.http.max_concurrent_requests = 1);
    let keys = [
        scraper.entry("scraper", "metrics = true"),
        other.entry("ci", "view = ['*']"),
    ];
    let (service, ..) = Service::with_gate(config, &keys.concat());
    service.script.paused.set();
    let with_key = [other.auth()];
    let busy = service.call("GET /locks/a", &with_key);
    let full = async {
        let asked = || matches!(service.script.asked().last(), Some(StoreCall::Inspect));
        until("there is no room", asked).await;
        // The store does not answer, so each scrape takes a while.
        let asked: [&[(&str, &str)]; 2] = [&[], &with_key];
        let strangers = (0..3 * SCRAPES).map(|n| asked[n % 2]);
        let with_key = [scraper.auth()];
        let scrapers = std::iter::repeat_n(&with_key[..], SCRAPES + 1);
        let all = strangers.chain(scrapers);
        let answers = all.map(|headers| service.call("GET /metrics", headers));
        let answers = join_all(answers).await;
        let with = |status: u16| answers.iter().filter(|it| it.status == status).count();
        assert_eq!((with(401), with(403)), (6, 6));
        assert_eq!((with(200), with(503)), (SCRAPES, 1));
        service.script.paused.lift();
    };
    let (answer, ()) = tokio::join!(busy, full);
    assert_eq!(answer.status, 200);
}

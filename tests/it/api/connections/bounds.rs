//! Limits of connections: slow, idle and refused connections, requests with ambiguous lengths, and the shutdown.

use latchgate::telemetry::metrics::Metrics;

use crate::api::prelude::*;

const INSPECT: &str = "GET /locks/a HTTP/1.1\r\nhost: localhost\r\n\r\n";

fn impatient() -> Service {
    let mut config = Config::default();
    config.http.header_timeout_ms = Millis(200);
    config.http.body_timeout_ms = Millis(200);
    Service::with(config)
}

#[tokio::test]
async fn a_client_that_does_not_finish_its_body_is_told_408() {
    let service = impatient();
    let mut stream = service.connect().await;
    let head = "POST /locks/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
    let answer = asked(
        &mut stream,
        &format!("{head}content-length: 10\r\n\r\n{{"),
        408,
    )
    .await;
    assert!(answer.contains("\"code\":\"request-timeout\""), "{answer}");
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn an_idle_connection_outlives_the_time_for_headers() {
    let mut config = Config::default();
    config.http.header_timeout_ms = Millis(50);
    config.http.idle_timeout_ms = Millis(600);
    let service = Service::with(config);
    let mut stream = service.connect().await;
    let began = Instant::now();
    send(&mut stream, INSPECT).await;
    answer(&mut stream).await;
    assert_eq!(closed(&mut stream).await, "");
    assert!(
        began.elapsed() >= Duration::from_millis(500),
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test]
async fn requests_sent_together_are_answered_in_order() {
    let service = Service::start();
    let mut stream = service.connect().await;
    let request = |id: usize| {
        INSPECT.replace(
            "host: localhost",
            &format!("host: localhost\r\nx-request-id: {id}"),
        )
    };
    let all = (0..20).map(request).collect::<String>();
    send(&mut stream, &all).await;
    for id in 0..20 {
        let answer = answer(&mut stream).await;
        assert_has(&answer, &format!("x-request-id: {id}\r\n"));
    }
}

#[tokio::test]
async fn a_client_that_waits_to_be_asked_for_its_body_is_asked() {
    let service = Service::start();
    let mut stream = service.connect().await;
    let head = "POST /locks/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         expect: 100-continue\r\ncontent-length: 2\r\n\r\n";
    send(&mut stream, head).await;
    let go_on = answer(&mut stream).await;
    assert_eq!(go_on, "HTTP/1.1 100 Continue\r\n\r\n");
    asked(&mut stream, "{}", 201).await;
}

#[tokio::test]
async fn a_client_that_waits_without_a_body_needs_no_content_type() {
    let service = Service::start();
    for length in ["", "content-length: 0\r\n"] {
        let mut stream = service.connect().await;
        let head = "POST /locks/a HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\n";
        asked(&mut stream, &format!("{head}{length}\r\n"), 201).await;
    }
}

#[tokio::test]
async fn a_client_that_waits_is_told_at_once_that_its_body_is_not_wanted() {
    let service = Service::start();
    for (headers, status) in [
        ("content-type: text/plain\r\ncontent-length: 2", "415"),
        (
            "content-type: application/json\r\ncontent-length: 1000000",
            "413",
        ),
    ] {
        let mut stream = service.connect().await;
        let head = format!("POST /locks/a HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
        send(&mut stream, &format!("{head}expect: 100-continue\r\n\r\n")).await;
        let refused = answer(&mut stream).await;
        assert!(
            refused.starts_with(&format!("HTTP/1.1 {status} ")),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn whoever_sends_too_much_hears_so_instead_of_a_reset() {
    let service = Service::start();
    for framing in ["content-length: 300000", "transfer-encoding: chunked"] {
        let mut stream = service.connect().await;
        let head =
            "POST /locks/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
        send(&mut stream, &format!("{head}{framing}\r\n\r\n")).await;
        if framing.ends_with("chunked") {
            send(
                &mut stream,
                &format!("{:x}\r\n{}\r\n0\r\n\r\n", 300_000, " ".repeat(300_000)),
            )
            .await;
        } else {
            send(&mut stream, &" ".repeat(300_000)).await;
        }
        answered(&mut stream, 413).await;
    }
}

#[tokio::test]
async fn a_draining_gateway_takes_new_connections_and_releases() {
    let service = Service::start();
    service.lifecycle.drain();
    let mut stream = service.connect().await;
    let release =
        format!("DELETE /locks/a HTTP/1.1\r\nhost: localhost\r\nlock-token: {TOKEN}\r\n\r\n");
    asked(&mut stream, &release, 204).await;
}

#[tokio::test]
async fn a_withdrawn_gateway_closes_each_connection_with_its_next_answer() {
    for withdraw in [Lifecycle::withdraw, Lifecycle::drain] {
        let service = Service::start();
        let mut stream = service.sent(INSPECT).await;
        let before = answer(&mut stream).await;
        assert!(!before.contains("connection: close\r\n"), "{before}");
        withdraw(&service.lifecycle);
        let last = asked(&mut stream, INSPECT, 200).await;
        assert!(last.contains("connection: close\r\n"), "{last}");
        assert_eq!(closed(&mut stream).await, "");
    }
}

#[tokio::test]
async fn when_it_stops_idle_connections_close_and_requests_under_way_are_answered() {
    let service = Service::start();
    let address = service.listen().await;
    let mut idle = TcpStream::connect(address).await.unwrap();
    send(&mut idle, INSPECT).await;
    answer(&mut idle).await;
    service.script.paused.set();
    let mut busy = TcpStream::connect(address).await.unwrap();
    send(&mut busy, INSPECT).await;
    service.is_asked(2).await;

    let lifecycle = service.lifecycle.clone();
    let stopping = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(lifecycle.stop(Duration::from_mins(1)))
    });
    assert_eq!(closed(&mut idle).await, "");
    service.script.paused.lift();
    answered(&mut busy, 200).await;
    assert_eq!(closed(&mut busy).await, "");
    stopping.await.unwrap().unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn a_connection_whose_answer_took_a_while_is_idle_afterwards() {
    let service = Service::configured(|it| it.http.idle_timeout_ms = Millis(400));
    service.script.paused.set();
    let mut stream = service.connect().await;
    send(
        &mut stream,
        "GET /locks/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
    )
    .await;
    service.is_asked(1).await;
    service.script.paused.lift();
    answer(&mut stream).await;
    assert_eq!(closed(&mut stream).await, "");
}

#[tokio::test]
async fn a_download_may_take_longer_than_a_connection_may_be_idle() {
    let service = Service::configured(|it| it.http.idle_timeout_ms = Millis(1_000));
    let address = service.listen().await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    // With a large receive buffer the kernels would take the whole answer at once.
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(address).await.unwrap();
    let request =
        "GET /docs/swagger-ui-bundle.js HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    send(&mut stream, request).await;
    let began = Instant::now();
    let (mut all, mut piece) = (0, vec![0; 32 * 1024]);
    loop {
        let read = stream.read(&mut piece).await;
        match read.unwrap() {
            0 => break,
            read => all += read,
        }
        sleep(Duration::from_millis(5)).await;
    }
    assert!(
        began.elapsed() > Duration::from_secs(1),
        "too fast to say anything: {:?}",
        began.elapsed()
    );
    assert!(all > 1_000_000, "{all} bytes came");
}

#[tokio::test]
async fn a_client_that_takes_nothing_of_its_answers_is_cut_off() {
    let service = Service::configured(|it| it.http.idle_timeout_ms = Millis(400));
    let mut stream = service.connect().await;
    // Far more requests than fit into the socket buffers of both sides.
    let ask = "GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let asks = ask.repeat(20);
    let cut_off = async { while stream.write(asks.as_bytes()).await.is_ok() {} };
    // When the connection ends, unsent answers are dropped, so the writing client sees an error.
    let cut_off = timeout(Duration::from_mins(1), cut_off).await;
    cut_off.expect("its connection is closed");
}

#[tokio::test]
async fn who_has_connected_and_asked_before_it_took_no_more_is_answered() {
    let (config, lifecycle) = (Config::default(), Lifecycle::new());
    lifecycle.stop(Duration::from_mins(1)).await.unwrap();
    // Nothing awaits from here on, so the runtime cannot poll the listener. Only the kernel knows of the connections.
    let kernel = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = kernel.local_addr().unwrap();
    let connect = |_| {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let request = b"GET / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\n\r\n";
        std::io::Write::write_all(&mut stream, request).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream
    };
    let asked: Vec<_> = (0..64).map(connect).collect();
    kernel.set_nonblocking(true).unwrap();
    let listener = TcpListener::from_std(kernel).unwrap();
    latchgate::http::serve(
        listener,
        Service::start().edge,
        &config.http,
        None,
        &Metrics::default(),
        latchgate::http::InFlightRequests::default(),
        &lifecycle,
    )
    .await;
    for stream in asked {
        let mut stream = TcpStream::from_std(stream).unwrap();
        let answer = answer(&mut stream).await;
        assert!(answer.contains("\"latchgate\""), "{answer}");
    }
    TcpStream::connect(address).await.unwrap_err();
}

const HEAD: &str =
    "POST /locks/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
const CHUNKED: &str = "2\r\n{}\r\n0\r\n\r\n";

#[tokio::test]
async fn nothing_behind_a_request_with_a_transfer_encoding_is_taken_for_a_request() {
    let service = Service::start();
    for (framing, status) in [
        // A proxy may have found another end of these requests than chunked encoding says.
        ("Transfer-Encoding: chunked", "201"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 2", "201"),
        ("Content-Length: 12\r\nTransfer-Encoding: chunked", "201"),
        (
            "content-length: 12\r\nx: y\r\ntransfer-encoding: CHUNKED",
            "201",
        ),
        ("Transfer-Encoding: identity, chunked", "400"),
        ("Transfer-Encoding: foo, chunked", "400"),
        (
            "Transfer-Encoding: foo\r\nTransfer-Encoding: chunked",
            "400",
        ),
        ("Transfer-Encoding: gzip", "400"),
        ("Transfer-Encoding: chunked, identity", "400"),
    ] {
        let mut stream = service.connect().await;
        let smuggled = "DELETE /locks/a HTTP/1.1\r\nhost: localhost\r\n\r\n";
        send(
            &mut stream,
            &format!("{HEAD}{framing}\r\n\r\n{CHUNKED}{smuggled}"),
        )
        .await;
        let first = answer(&mut stream).await;
        let expected = format!("HTTP/1.1 {status} ");
        assert!(first.starts_with(&expected), "{framing:?}: {first}");
        assert!(first.contains("connection: close\r\n"), "{first}");
        assert_eq!(closed(&mut stream).await, "", "{framing:?}");
    }
    let asked = service.script.asked();
    assert!(
        asked.iter().all(|it| matches!(it, StoreCall::Acquire(..))),
        "{asked:?}"
    );
}

#[tokio::test]
async fn a_connection_may_carry_a_request_in_chunks_behind_others() {
    let service = Service::start();
    let mut stream = service.connect().await;
    for framing in [
        "content-length: 2\r\n\r\n{}".to_owned(),
        "content-length: 2\r\n\r\n{}".to_owned(),
        format!("transfer-encoding: chunked\r\n\r\n{CHUNKED}"),
    ] {
        asked(&mut stream, &format!("{HEAD}{framing}"), 201).await;
    }
    assert_eq!(closed(&mut stream).await, "");
}

/// `nc -N` and similar clients close their sending side. A gateway cannot tell this from a hang-up, and a waiter that
/// has gone must not get the lock.
#[tokio::test]
async fn closing_the_sending_side_is_hanging_up() {
    let service = Service::start();
    service.script.paused.set();
    let mut stream = service.connect().await;
    send(&mut stream, &format!("{HEAD}content-length: 2\r\n\r\n{{}}")).await;
    service.is_asked(1).await;
    stream.shutdown().await.unwrap();
    assert_eq!(closed(&mut stream).await, "");
    service.script.paused.lift();
    until("it is given back", || service.script.given_back() > 0).await;
}

#[tokio::test]
async fn a_connection_ends_whose_client_does_not_finish_its_headers() {
    let service = impatient();
    let mut stream = service.connect().await;
    for begun in ["G", "GET /locks/a HTTP/1.1\r\nhos"] {
        let began = Instant::now();
        send(&mut stream, begun).await;
        assert_eq!(closed(&mut stream).await, "");
        assert!(began.elapsed() >= Duration::from_millis(150));
        stream = service.connect().await;
        // The second request on a connection has the same limits as the first.
        send(&mut stream, INSPECT).await;
        answer(&mut stream).await;
    }
}

#[tokio::test]
async fn what_is_no_http_gets_a_bare_status_and_the_end_of_the_connection() {
    let service = Service::start();
    let headers = |count: usize| {
        let lines = (1..count).map(|n| format!("x-{n}: y\r\n"));
        format!(
            "GET / HTTP/1.1\r\nhost: localhost\r\n{}\r\n",
            lines.collect::<String>()
        )
    };
    let target = format!("GET /{} HTTP/1.1\r\n\r\n", "a".repeat(65_535));
    for (request, status) in [
        (headers(101), "431"),
        (target, "414"),
        ("GET\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/1.1\r\na b: c\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/7.0\r\n\r\n".to_owned(), "400"),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), "400"),
    ] {
        let mut stream = service.connect().await;
        // The request is refused after another request on the connection, too.
        send(&mut stream, INSPECT).await;
        answer(&mut stream).await;
        send(&mut stream, &request).await;
        let refused = answer(&mut stream).await;
        let expected = format!("HTTP/1.1 {status} ");
        assert!(refused.starts_with(&expected), "{refused}");
        assert!(refused.contains("connection: close\r\n"), "{refused}");
        assert_eq!(closed(&mut stream).await, "");
    }
    let mut stream = service.connect().await;
    asked(&mut stream, &headers(100), 200).await;
}

#[tokio::test]
async fn nonsense_behind_a_request_that_is_handled_leaves_its_answer_alone() {
    let service = Service::start();
    let mut stream = service.connect().await;
    asked(&mut stream, &format!("{INSPECT}nonsense\r\n\r\n"), 200).await;
    answered(&mut stream, 400).await;
    assert_eq!(closed(&mut stream).await, "");
}

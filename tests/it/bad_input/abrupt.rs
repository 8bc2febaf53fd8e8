//! Callers that stop in the middle, callers that are too slow, and signals that must not end the gateway.

use std::time::Duration;

use rustix::process::Signal;
use tokio::{io::AsyncWriteExt, net::TcpStream, time::sleep};

use super::bench::{Bench, RawResponse};
use crate::support::gateway::Setup;

const ACQUIRE: &str = "POST /locks/a HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
                       Content-Length: 16\r\n\r\n{\"ttl_ms\": 1000}";

/// How the caller ends a connection.
#[derive(Debug, Clone, Copy)]
enum End {
    /// By a FIN, and the caller reads no more.
    Closed,
    /// By a reset.
    Reset,
    /// Only the sending side is closed.
    HalfClosed,
}

async fn cut(bench: &Bench, request: &[u8], end: End) {
    let mut stream = TcpStream::connect(bench.gateway.address).await.unwrap();
    stream.write_all(request).await.unwrap();
    match end {
        End::Closed => drop(stream),
        End::Reset => {
            stream.set_zero_linger().unwrap();
            drop(stream);
        }
        End::HalfClosed => {
            stream.shutdown().await.unwrap();
            if let Some(answer) = RawResponse::read(&mut stream).await {
                assert!((400..500).contains(&answer.status), "{answer:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_request_that_is_cut_anywhere_takes_no_lock() {
    let bench = Bench::start().await;
    let whole = ACQUIRE.as_bytes();
    let ends = [End::Closed, End::Reset, End::HalfClosed];
    let mut cases = 0;
    for len in 0..whole.len() {
        let end = ends[len % ends.len()];
        cut(&bench, &whole[..len], end).await;
        cases += 1;
    }
    println!("{cases} cases");
    bench.unharmed().await;
}

#[tokio::test]
async fn whoever_hangs_up_behind_a_whole_request_leaves_no_lock_behind() {
    let bench = Bench::start().await;
    for end in [End::Closed, End::Reset] {
        for _ in 0..20 {
            cut(&bench, ACQUIRE.as_bytes(), end).await;
        }
    }
    // Grants to these callers are released as undelivered, or end with their TTL if an answer counts as delivered.
    bench.unharmed().await;
}

#[tokio::test]
async fn a_request_that_comes_in_single_bytes_is_read_or_given_up_in_time() {
    let setup = Setup::default()
        .with("LATCHGATE_HTTP_HEADER_TIMEOUT_MS", "300")
        .with("LATCHGATE_HTTP_BODY_TIMEOUT_MS", "300");
    let bench = Bench::start_with(setup, "").await;
    let (head, body) = ACQUIRE.split_at(ACQUIRE.find("\r\n\r\n").unwrap() + 4);
    for (at_once, rest) in [("", ACQUIRE), (head, body), (&head[..40], &head[40..])] {
        let mut stream = TcpStream::connect(bench.gateway.address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        stream.write_all(at_once.as_bytes()).await.unwrap();
        let slowly = async {
            for byte in rest.as_bytes() {
                if stream.write_all(&[*byte]).await.is_err() {
                    break;
                }
                sleep(Duration::from_millis(40)).await;
            }
        };
        slowly.await;
        // A connection whose request head does not arrive is closed without an answer.
        let answer = RawResponse::read(&mut stream).await;
        if let Some(answer) = answer {
            assert_eq!(
                (answer.status, answer.problem().as_str()),
                (408, "request-timeout")
            );
        }
    }
    bench.unharmed().await;
}

#[tokio::test]
async fn a_gateway_outlives_signals_that_do_not_ask_it_to_end() {
    let bench = Bench::start().await;
    for _ in 0..50 {
        for signal in [
            Signal::HUP,
            Signal::USR1,
            Signal::USR2,
            Signal::PIPE,
            Signal::CHILD,
            Signal::WINCH,
            Signal::URG,
            Signal::CONT,
        ] {
            bench.gateway.signal(signal);
        }
        let shown = bench.ask("GET /healthz", "", "").await;
        assert_eq!(shown.status, 200);
    }
    for _ in 0..5 {
        bench.gateway.freeze();
        bench.gateway.signal(Signal::CONT);
    }
    bench.unharmed().await;
}

//! Releases whose callers hang up, one after the other, while the store does not answer.

use std::{
    io::Write,
    net::{Shutdown, TcpStream as StdTcpStream},
};

use latchgate::config::Config;
use tokio::net::TcpStream;

use super::{
    scripted::StoreCall,
    service::{Service, TOKEN, until},
    socket::{answer, send},
};

/// Room for requests, and as much again for releases.
const ROOM: usize = 64;
/// How many somebody gives up who has no key and no lease.
const GIVEN_UP: usize = 1_000;

fn counted(text: &str, sample: &str) -> usize {
    let line = text.lines().find_map(|line| line.strip_prefix(sample));
    line.unwrap().trim().parse().unwrap()
}

/// A gateway with room for so many requests, and for as many releases besides.
fn with_room(room: usize) -> Service {
    let mut config = Config::default();
    config.http.max_concurrent_requests = room;
    config.http.reserved_requests = room;
    Service::with(config)
}

fn release() -> String {
    format!("DELETE /locks/a HTTP/1.1\r\nHost: localhost\r\nLock-Token: {TOKEN}\r\n\r\n")
}

/// Those that wait for their turn take no room: it is taken when one is carried out.
#[tokio::test]
async fn they_are_carried_out_one_by_one_where_there_is_room_for_one() {
    const RELEASES: usize = 10;
    let service = with_room(1);
    let address = service.listen().await;
    service.script.paused.set();
    // The gateway runs on this thread: when it comes to them, each has come with its end.
    let _streams: Vec<_> = (0..RELEASES)
        .map(|_| {
            let mut stream = StdTcpStream::connect(address).unwrap();
            stream.write_all(release().as_bytes()).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            stream
        })
        .collect();
    until("the store is asked", || !service.script.asked().is_empty()).await;
    service.script.paused.lift();
    let scrape = || async { service.get("/metrics").await.body };
    let carried = r#"latchgate_abandoned_releases_total{outcome="carried-out"}"#;
    let released = r#"latchgate_releases_total{outcome="released"}"#;
    crate::support::eventually("all are released", || async {
        (counted(&scrape().await, released) == RELEASES).then_some(())
    })
    .await;
    assert_eq!(counted(&scrape().await, carried), RELEASES);
}

#[tokio::test]
async fn they_leave_room_to_a_holder_and_are_counted() {
    let service = with_room(ROOM);
    let address = service.listen().await;
    service.script.paused.set();
    let release = release();
    let asked = || {
        let asked = service.script.asked();
        asked
            .iter()
            .filter(|it| matches!(it, StoreCall::Release(_)))
            .count()
    };
    for given_up in 1..=GIVEN_UP {
        let mut stream = TcpStream::connect(address).await.unwrap();
        send(&mut stream, &release).await;
        until("the store is asked", || asked() == given_up).await;
        drop(stream);
    }
    let mut holder = TcpStream::connect(address).await.unwrap();
    send(&mut holder, &release).await;
    until("the store is asked", || asked() > GIVEN_UP).await;
    let renew =
        format!("PUT /locks/a/renew HTTP/1.1\r\nHost: localhost\r\nLock-Token: {TOKEN}\r\n\r\n");
    let mut keeper = TcpStream::connect(address).await.unwrap();
    send(&mut keeper, &renew).await;
    until("it is asked to renew", || {
        matches!(service.script.asked().last(), Some(StoreCall::Renew(..)))
    })
    .await;
    service.script.paused.lift();
    assert!(answer(&mut holder).await.starts_with("HTTP/1.1 204 "));
    assert!(answer(&mut keeper).await.starts_with("HTTP/1.1 200 "));
    // All of them were asked of the store, and are carried out without anybody.
    let releases = r#"latchgate_releases_total{outcome="released"}"#;
    let dropped = r#"latchgate_abandoned_releases_total{outcome="dropped"}"#;
    let carried = r#"latchgate_abandoned_releases_total{outcome="carried-out"}"#;
    let scrape = || async { service.get("/metrics").await.body };
    crate::support::eventually("all are released", || async {
        (counted(&scrape().await, releases) == GIVEN_UP + 1).then_some(())
    })
    .await;
    let text = scrape().await;
    assert_eq!(counted(&text, carried), ROOM / 2);
    assert_eq!(counted(&text, dropped), GIVEN_UP - ROOM / 2);
}

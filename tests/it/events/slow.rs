//! Readers that do not read, or hardly.

use std::time::Duration;

use axum::body::Body;
use http::Request;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
    time::{sleep, timeout},
};

use crate::api::service::Service;

use super::reader::Reader;

/// How many events happen: more than are kept for those who come back.
const EVENTS: usize = 13_000;

/// Acquires with an owner that makes the event a kilobyte long.
async fn happen(service: &Service, reader: &mut Reader) {
    let owner = "\u{1f512}".repeat(128);
    // None ends before the last is granted, which would be an event too.
    let body = json!({"owner": owner, "ttl_ms": 3_600_000}).to_string();
    for _ in 0..EVENTS {
        service.acquire(&body).await;
        reader.expect("acquired").await;
    }
}

/// What the kernel keeps of what was not read, at either end.
const ROOM: u32 = 4_096;

/// Reads a little more than the kernel keeps, now and then: it takes in more afterwards.
async fn trickle(from: &mut TcpStream, came: &mut Vec<u8>) -> std::io::Error {
    let mut some = [0; ROOM as usize];
    loop {
        let more = came.len() + 4 * some.len();
        while came.len() < more {
            match from.read(&mut some).await {
                Ok(0) => return std::future::pending().await,
                Ok(read) => came.extend(&some[..read]),
                Err(error) => return error,
            }
        }
        sleep(Duration::from_secs(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_reads_next_to_nothing_keeps_nobody_up_and_is_told_in_the_end() {
    let service = Service::start();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(ROOM).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = service.listen_on(socket.listen(8).unwrap());
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(ROOM).unwrap();
    let mut deaf = socket.connect(address).await.unwrap();
    let request = "GET /events HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    deaf.write_all(request.as_bytes()).await.unwrap();
    deaf.readable().await.unwrap();
    let mut reader = Reader::of(&service).await;
    // However long this takes: who takes in nothing at all for half a minute is cut off.
    let mut came = Vec::new();
    tokio::select! {
        () = happen(&service, &mut reader) => {}
        error = trickle(&mut deaf, &mut came) => panic!("{error}"),
    }

    // What was on its way comes, and then the end.
    let reading = timeout(Duration::from_mins(1), deaf.read_to_end(&mut came));
    reading.await.expect("the stream ends").unwrap();
    let came = String::from_utf8_lossy(&came);
    let events = came.matches("\nevent: acquired\n").count();
    assert!(events < EVENTS, "it was to fall behind");
    let (_, last) = came.rsplit_once("event: ").unwrap();
    assert!(
        last.starts_with("end\ndata: {\"kind\":\"end\",\"reason\":\"unread\"}\n\n"),
        "{last}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_who_was_too_slow_is_told_so_and_may_come_back() {
    let service = Service::start();
    let request = Request::get("/events").body(Body::empty()).unwrap();
    let mut slow = service.stream(request).await;
    let mut reader = Reader::of(&service).await;
    happen(&service, &mut reader).await;
    let mut came = String::new();
    while let Some(frame) = http_body_util::BodyExt::frame(&mut slow).await {
        let bytes = frame.unwrap().into_data().unwrap();
        came.push_str(std::str::from_utf8(&bytes).unwrap());
    }
    assert!(came.starts_with(":\nretry: "), "{came}");
    let (_, end) = came.split_once("\n\n").unwrap();
    assert_eq!(
        end, "event: end\ndata: {\"kind\":\"end\",\"reason\":\"unread\"}\n\n",
        "nothing is kept for one reader alone"
    );
    let mut again = Reader::with(&service, "", Some(&reader.last_id)).await;
    service.acquire("{}").await;
    again.expect("acquired").await;
}

//! Reading a stream of events: query, head of the answer, end, gaps, and slow readers.

use tokio::net::TcpSocket;

use super::fixture::{Reader, ReceivedEvent, Site, acquire};
use crate::api::prelude::*;

#[tokio::test]
async fn it_is_a_stream_that_nobody_on_the_way_may_keep() {
    let service = Service::start();
    let answer = service.peek("GET /events", &[]).await.is(200);
    for (name, value) in [
        ("content-type", "text/event-stream"),
        ("cache-control", "no-store"),
        ("x-accel-buffering", "no"),
    ] {
        assert_eq!(answer.header(name), value);
    }
    let reader = Reader::all(&service).await;
    let id = &reader.last_id;
    let greeting = format!(":\nretry: 2000\nid: {id}\n\n");
    assert_eq!(reader.raw, greeting, "so that proxies pass on the head");
    assert!(id.ends_with("-0"), "{id}");
}

#[tokio::test]
async fn an_event_is_written_like_this() {
    let service = Service::start();
    let mut reader = Reader::all(&service).await;
    service.acquire("{}").await;
    let mut event = reader.expect("acquired").await;
    assert_eq!(event["at"].take().as_str().unwrap().len(), 24);
    assert_eq!(
        event,
        json!({
            "at": null, "expires_in_ms": 30_000, "fencing_token": 42, "kind": "acquired",
            "mode": "exclusive", "name": "a", "owner": null, "slot": null, "waited_ms": 0,
        })
    );
}

#[tokio::test]
async fn only_names_with_the_prefix_are_told() {
    let site = Site::embedded();
    let gateway = site.gateway();
    let mut reader = Reader::with(gateway, "?prefix=te%61m:", None).await;
    for name in ["team", "team2:a", "Team:a", "x-team:a", "team:a"] {
        acquire(gateway, name, &json!({})).await;
    }
    assert_eq!(reader.expect("acquired").await["name"], "team:a");
    drop(reader);
    for query in ["?prefix=acme/", "?prefix=acme%2Fw"] {
        let mut reader = Reader::with(gateway, query, None).await;
        for name in ["acme", "acme2%2Fweb", "acme:web", "acme%2Fweb"] {
            let held = acquire(gateway, name, &json!({})).await;
            let token = [("lock-token", held["token"].as_str().unwrap())];
            let line = format!("DELETE /locks/{name}");
            gateway.call(&line, &token).await.is(204);
        }
        assert_eq!(reader.expect("acquired").await["name"], "acme/web");
        assert_eq!(reader.expect("released").await["name"], "acme/web");
    }
    let mut all = Reader::with(gateway, "?prefix=", None).await;
    acquire(gateway, "other", &json!({})).await;
    assert_eq!(all.expect("acquired").await["name"], "other");
}

#[tokio::test]
async fn a_query_that_is_not_understood_is_refused() {
    let service = Service::start();
    let wrong = async |query: &str| service.get(&format!("/events?{query}")).await.errors();
    let cases = r"
        prefx=a => prefx: is not known; the only parameter of this call is prefix
        prefix=a&prefix=b => prefix: is given more than once
        prefix=a* => prefix: has '*' in it; allowed are ASCII letters, digits and . _ : @ ~ - /
        prefix=a%2f%2f => prefix: begins or ends with a slash or has two in a row; proxies remove such a slash
        .. from a path
        prefix=%ff => prefix: is not UTF-8 after percent-decoding
        prefix=LONG => prefix: has 201 bytes; a lock name has at most 200
    ";
    for (query, error) in rows(&cases.replace("LONG", &"a".repeat(201))) {
        assert_eq!(wrong(&query).await, [format!("query.{error}")]);
    }
    let many = (0..100).map(|n| format!("p{n}=1")).collect::<Vec<_>>();
    assert_eq!(wrong(&many.join("&")).await.len(), 16);
}

#[tokio::test]
async fn one_too_many_is_refused_until_another_one_leaves() {
    let service = Service::configured(|it| it.limits.max_event_streams = 2);
    let (_one, two) = (Reader::all(&service).await, Reader::all(&service).await);
    let refused: ApiResponse = service.get("/events").await;
    assert_eq!(refused.problem(), (503, "overloaded"));
    assert_eq!(refused.header("retry-after"), "5");
    drop(two);
    Reader::all(&service).await;
}

#[tokio::test]
async fn a_gateway_that_drains_ends_it_after_what_was_told() {
    let service = Service::start();
    let mut reader = Reader::all(&service).await;
    service.acquire("{}").await;
    reader.expect("acquired").await;
    service.lifecycle.drain();
    let end = reader.next().await.unwrap();
    assert_eq!((end.kind.as_str(), end.id.as_str()), ("end", ""));
    assert_eq!(end.data, json!({"kind": "end", "reason": "draining"}));
    reader.ends().await;
    service.get("/events").await.is_problem(503, "draining");
}

#[tokio::test(start_paused = true)]
async fn something_comes_every_ten_seconds_and_says_where_to_read_on() {
    let service = Service::start();
    let mut reader = Reader::with(&service, "?prefix=b", None).await;
    service.acquire("{}").await;
    let begin = Instant::now();
    let first = reader.last_id.clone();
    while reader.last_id == first {
        // No event that matches a filter has happened.
        let next = timeout(Duration::from_secs(11), reader.next());
        assert!(next.await.is_err());
    }
    assert!(begin.elapsed() < Duration::from_secs(12));
    let id = reader.last_id.clone();
    assert!(id.ends_with("-1"), "{id}");
    assert!(
        reader.raw.ends_with(&format!("\n\n:\nid: {id}\n\n")),
        "{}",
        reader.raw
    );
}

#[tokio::test]
async fn whoever_listens_takes_no_room_from_those_who_ask() {
    let service = Service::configured(|it| it.http.max_concurrent_requests = 1);
    let mut reader = Reader::all(&service).await;
    assert_eq!(service.get("/openapi.json").await.status, 200);
    assert_eq!(service.acquire("{}").await.status, 201);
    reader.expect("acquired").await;
}

async fn after(service: &Service, query: &str, id: &str) -> Reader {
    Reader::with(service, query, Some(id)).await
}

/// The names of the locks in the next events, up to this name.
async fn names(reader: &mut Reader, last: &str) -> Vec<String> {
    let heard = reader.up_to(|heard| heard.data["name"] == last).await;
    let name = |heard: &ReceivedEvent| heard.data["name"].as_str().unwrap().to_owned();
    heard.iter().map(name).collect()
}

#[tokio::test]
async fn what_happened_meanwhile_is_read_exactly_once() {
    let site = Site::embedded();
    let (gateway, mut reader) = site.heard().await;
    for name in ["a", "b", "c"] {
        acquire(gateway, name, &json!({})).await;
    }
    let heard = reader.up_to(|heard| heard.data["name"] == "b").await;
    drop(reader);
    acquire(gateway, "d", &json!({})).await;
    let mut again = after(gateway, "", &heard[1].id).await;
    acquire(gateway, "e", &json!({})).await;
    assert_eq!(names(&mut again, "e").await, ["c", "d", "e"]);
    // A reader that has read no event yet gets all of them.
    let first = heard[0].id.rsplit_once('-').unwrap().0.to_owned() + "-0";
    let mut again = after(gateway, "", &first).await;
    assert_eq!(names(&mut again, "e").await, ["a", "b", "c", "d", "e"]);
    // A reader that has read all events gets only new ones.
    let mut again = after(gateway, "", &again.last_id).await;
    acquire(gateway, "f", &json!({})).await;
    assert_eq!(names(&mut again, "f").await, ["f"]);
}

#[tokio::test]
async fn an_id_that_this_gateway_did_not_give_is_answered_with_a_gap() {
    let site = Site::embedded();
    let gateway = site.gateway();
    let reader = Reader::all(gateway).await;
    let ours = reader.last_id.rsplit_once('-').unwrap().0;
    let future = format!("{ours}-7");
    let last = format!("{ours}-{}", u64::MAX);
    for id in ["0123456789abcdef-0", &future, &last, "x", "-", "-1", ours] {
        let mut reader = after(gateway, "?prefix=nothing", id).await;
        let gap = reader.expect("gap").await;
        assert_eq!(gap["reason"], "unknown-id", "{id}");
        assert_eq!(gap.get("name"), None);
    }
}

#[tokio::test]
async fn behind_a_gap_it_goes_on_and_the_gap_is_not_told_again() {
    let site = Site::embedded();
    let gateway = site.gateway();
    let mut reader = after(gateway, "", "x").await;
    let gap = reader.next().await.unwrap();
    acquire(gateway, "a", &json!({})).await;
    assert_eq!(reader.expect("acquired").await["name"], "a");
    let mut again = after(gateway, "", &gap.id).await;
    assert_eq!(again.expect("acquired").await["name"], "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_not_kept_any_more_is_a_gap_and_the_rest_is_read() {
    let service = Service::start();
    let mut reader = Reader::all(&service).await;
    let begin = reader.last_id.clone();
    for n in 0..8_193 {
        acquire(&service, &format!("lock-{n}"), &json!({})).await;
        // The reader keeps up with the events.
        reader.expect("acquired").await;
    }
    let mut again = after(&service, "", &begin).await;
    assert_eq!(again.expect("gap").await["reason"], "too-old");
    let first = again.next().await.unwrap();
    assert!(first.id.ends_with("-2"), "{first:?}");
    let heard = again.up_to(|heard| heard.id == reader.last_id).await;
    assert_eq!(heard.len(), 8_191);
}

#[tokio::test(start_paused = true)]
async fn events_are_kept_for_a_minute_after_the_last_has_left_and_no_longer() {
    let service = Service::start();
    let reader = Reader::all(&service).await;
    let id = reader.last_id.clone();
    drop(reader);
    sleep(Duration::from_secs(50)).await;
    service.acquire("{}").await;
    let mut again = after(&service, "", &id).await;
    again.expect("acquired").await;
    let id = again.last_id.clone();
    drop(again);
    sleep(Duration::from_secs(70)).await;
    service.acquire("{}").await;
    let mut again = after(&service, "", &id).await;
    assert_eq!(again.expect("gap").await["reason"], "too-old");
}

/// The number of events, which is more than a gateway keeps for readers that come back.
const EVENTS: usize = 13_000;

/// Acquires locks with an owner that makes each event a kilobyte long.
async fn happen(service: &Service, reader: &mut Reader) {
    let owner = "\u{1f512}".repeat(128);
    // No lease ends before the last grant: its end would be an event as well.
    let body = json!({"owner": owner, "ttl_ms": 3_600_000});
    for n in 0..EVENTS {
        acquire(service, &format!("lock-{n}"), &body).await;
        reader.expect("acquired").await;
    }
}

/// How many unread bytes the kernel keeps on either side.
const ROOM: u32 = 4_096;

/// Now and then reads a little more than the kernel keeps, so that the gateway can send more.
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
    let mut reader = Reader::all(&service).await;
    // The slow reader must read something, however long the events take: a reader that reads nothing for half a minute
    // is cut off.
    let mut came = Vec::new();
    tokio::select! {
        () = happen(&service, &mut reader) => {}
        error = trickle(&mut deaf, &mut came) => panic!("{error}"),
    }

    // After the events, the bytes on their way still come, and then the end.
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
    let mut slow = service.stream("GET /events", &[], "").await;
    let mut reader = Reader::all(&service).await;
    happen(&service, &mut reader).await;
    let mut came = String::new();
    while let Some(frame) = BodyExt::frame(&mut slow).await {
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

//! Requests that two readers could read in two ways, and callers who close half a connection.

use tokio::io::AsyncWriteExt;

use super::{
    service::{Service, until},
    socket::{answer, closed, send},
};

const HEAD: &str =
    "POST /locks/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
const CHUNKED: &str = "2\r\n{}\r\n0\r\n\r\n";

#[tokio::test]
async fn a_request_whose_end_is_in_doubt_takes_no_lock_and_ends_the_connection() {
    let service = Service::start();
    for framing in [
        "Transfer-Encoding: chunked\r\nContent-Length: 2",
        "Content-Length: 12\r\nTransfer-Encoding: chunked",
        "content-length: 12\r\nx: y\r\ntransfer-encoding: CHUNKED",
        "Transfer-Encoding: gzip, chunked",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: chunked, chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    ] {
        let mut stream = service.connect().await;
        // What comes behind it is not taken for a request.
        let smuggled = "DELETE /locks/a HTTP/1.1\r\nhost: localhost\r\n\r\n";
        send(
            &mut stream,
            &format!("{HEAD}{framing}\r\n\r\n{CHUNKED}{smuggled}"),
        )
        .await;
        let refused = answer(&mut stream).await;
        assert!(
            refused.starts_with("HTTP/1.1 400 "),
            "{framing:?}: {refused}"
        );
        assert!(refused.contains("connection: close\r\n"), "{refused}");
        assert!(
            refused.contains("\"code\":\"invalid-request\""),
            "{refused}"
        );
        assert!(refused.contains("x-request-id: "), "{refused}");
        assert_eq!(closed(&mut stream).await, "", "{framing:?}");
    }
    assert!(service.script.asked().is_empty());
}

#[tokio::test]
async fn it_is_in_doubt_as_well_behind_another_request_and_in_pieces() {
    let service = Service::start();
    let mut stream = service.connect().await;
    let before = format!("{HEAD}content-length: 2\r\n\r\n{{}}");
    let doubtful = format!("{HEAD}Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n");
    let (first, rest) = doubtful.split_at(HEAD.len() + 5);
    send(&mut stream, &format!("{before}{first}")).await;
    let granted = answer(&mut stream).await;
    assert!(granted.starts_with("HTTP/1.1 201 "), "{granted}");
    send(&mut stream, &format!("{rest}{CHUNKED}")).await;
    let refused = answer(&mut stream).await;
    assert!(refused.starts_with("HTTP/1.1 400 "), "{refused}");
    assert_eq!(closed(&mut stream).await, "");
    assert_eq!(service.script.asked().len(), 1);
}

#[tokio::test]
async fn a_connection_may_carry_both_kinds_of_requests_in_turn() {
    let service = Service::start();
    let mut stream = service.connect().await;
    for _ in 0..3 {
        for framing in [
            "content-length: 2\r\n\r\n{}".to_owned(),
            format!("transfer-encoding: chunked\r\n\r\n{CHUNKED}"),
        ] {
            send(&mut stream, &format!("{HEAD}{framing}")).await;
            let granted = answer(&mut stream).await;
            assert!(granted.starts_with("HTTP/1.1 201 "), "{granted}");
        }
    }
}

/// `nc -N` and the like: nobody can tell them from a caller that has gone, and a waiter that has gone
/// must not get the lock.
#[tokio::test]
async fn closing_the_sending_side_is_hanging_up() {
    let service = Service::start();
    service.script.paused.set();
    let mut stream = service.connect().await;
    send(&mut stream, &format!("{HEAD}content-length: 2\r\n\r\n{{}}")).await;
    until("the store is asked", || !service.script.asked().is_empty()).await;
    stream.shutdown().await.unwrap();
    assert_eq!(closed(&mut stream).await, "");
    service.script.paused.lift();
    until("it is given back", || {
        let asked = service.script.asked();
        asked
            .iter()
            .any(|asked| matches!(asked, super::scripted::Asked::GiveBack(_)))
    })
    .await;
}

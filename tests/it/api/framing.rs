//! Requests whose end a proxy could see elsewhere, and callers who close half a connection.

use tokio::io::AsyncWriteExt;

use super::{
    scripted::StoreCall,
    service::{Service, until},
    socket::{answer, closed, send},
};

const HEAD: &str =
    "POST /locks/a HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n";
const CHUNKED: &str = "2\r\n{}\r\n0\r\n\r\n";

#[tokio::test]
async fn nothing_behind_a_request_with_a_transfer_encoding_is_taken_for_a_request() {
    let service = Service::start();
    for (framing, status) in [
        // Where a proxy may have seen another end than the one that chunks have.
        ("Transfer-Encoding: chunked", "201"),
        ("Transfer-Encoding: chunked\r\nContent-Length: 2", "201"),
        ("Content-Length: 12\r\nTransfer-Encoding: chunked", "201"),
        (
            "content-length: 12\r\nx: y\r\ntransfer-encoding: CHUNKED",
            "201",
        ),
        ("Transfer-Encoding: identity, chunked", "201"),
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
        send(&mut stream, &format!("{HEAD}{framing}")).await;
        let granted = answer(&mut stream).await;
        assert!(granted.starts_with("HTTP/1.1 201 "), "{granted}");
    }
    assert_eq!(closed(&mut stream).await, "");
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
            .any(|asked| matches!(asked, StoreCall::GiveBack(_)))
    })
    .await;
}

//! Servers that answer what no Redis with our scripts answers.

use latchgate::{
    lifecycle::Lifecycle,
    store::{Store, StoreError, Unavailability, Uncertainty},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use super::rig::{attempt, name, open, quick, token};
use crate::support::url;

/// A server that gives this answer to each command.
async fn answering(answer: &'static [u8], lifecycle: &Lifecycle) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let tasks = lifecycle.clone();
    lifecycle.spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tasks.spawn(async move {
                let mut request = [0; 4096];
                while let Ok(length @ 1..) = client.read(&mut request).await {
                    let commands = request[..length].iter().filter(|&&byte| byte == b'*');
                    if client
                        .write_all(&answer.repeat(commands.count()))
                        .await
                        .is_err()
                    {
                        return;
                    }
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn an_answer_to_somebody_else_is_not_believed() {
    for answer in [
        &b"*2\r\n$8\r\nreleased\r\n$5\r\nother\r\n"[..],
        b"*2\r\n$7\r\ngranted\r\n$5\r\nother\r\n",
        b"+OK\r\n",
        b"*0\r\n",
        b"-ERR what is this\r\n",
    ] {
        let lifecycle = Lifecycle::new();
        let port = answering(answer, &lifecycle).await;
        let store = open(
            &url(&format!("redis://127.0.0.1:{port}")),
            &quick(),
            &lifecycle,
        );
        let unknown = store.release(&name("any"), &token()).await.unwrap_err();
        assert!(
            matches!(
                &unknown,
                StoreError::Indeterminate(Uncertainty::UnexpectedReply(_))
            ),
            "{unknown:?}"
        );
        let refused = store.acquire(&attempt("any")).await.unwrap_err();
        assert!(
            matches!(
                &refused,
                StoreError::Unavailable(Unavailability::Connect(_))
            ),
            "nothing is granted by a server that fails its examination: {refused:?}"
        );
    }
}

#[tokio::test]
async fn what_is_no_redis_at_all_is_never_taken_for_an_answer() {
    let lifecycle = Lifecycle::new();
    let port = answering(b"HTTP/1.1 400 Bad Request\r\n\r\n", &lifecycle).await;
    let store = open(
        &url(&format!("redis://127.0.0.1:{port}")),
        &quick(),
        &lifecycle,
    );
    let refused = store.release(&name("any"), &token()).await.unwrap_err();
    assert!(
        matches!(refused, StoreError::Unavailable(_)),
        "nothing was sent: {refused:?}"
    );
}

//! Gives a lock back, unless somebody still acts under it.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    client::{Client, ClientError, Lease, LeaseRenewer},
    lock::LockName,
};

use super::{
    super::{duration, output, signals::Signals, slow_notice::notify_if_slow},
    stopping::Leftover,
};

/// How long that of a lost lease is tried: most likely nothing is left of it.
const RELEASE_LOST: Duration = Duration::from_secs(1);
/// What is said while nobody answers.
const RELEASE_UNANSWERED: &str = "no answer to the release of the lock yet; a signal (Ctrl-C) leaves it \
                                  until its lease ends";
/// Why a lock was left that could have been released.
const IMPATIENT: &str = "a signal came before anybody had answered";
/// Why a lock is not released.
const STILL_ALIVE: &str = "a process of the command lives on although it was killed: it waits for a \
                           disk or a file system, or has changed its user";

/// Gives back the lock of a command that has ended. Whatever comes of it, the command has ended as it
/// has.
pub(super) async fn release_lock(
    name: &LockName,
    renewer: LeaseRenewer,
    leftover: Leftover,
    signals: &mut Signals,
) {
    let until = renewer.until();
    match (leftover, until) {
        // From here on it is not renewed.
        (Leftover::Somebody, Some(until)) => {
            drop(renewer);
            left_locked(name, until, STILL_ALIVE);
        }
        (Leftover::Somebody, None) => {
            output::note(&format!(
                "latchgate: {name}: the lock is lost, and {STILL_ALIVE}"
            ));
        }
        (Leftover::Nobody, Some(until)) => {
            // Until it is answered, or the lease is over by itself: nobody else can give it back.
            let left = until.saturating_duration_since(Instant::now());
            let release = notify_if_slow(name, RELEASE_UNANSWERED, renewer.release(left));
            match signals.until_second_signal(release).await {
                Some(Ok(())) => {}
                Some(Err(ClientError::Lost(problem))) => output::note(&format!(
                    "latchgate: {name}: the lease had ended before the command had: {problem}"
                )),
                Some(Err(error)) => left_locked(name, until, &error.to_string()),
                None => left_locked(name, until, IMPATIENT),
            }
        }
        (Leftover::Nobody, None) => {
            // Whatever is wrong is known already.
            let _: Option<Result<_, _>> = signals
                .until_second_signal(renewer.release(RELEASE_LOST))
                .await;
        }
    }
}

/// Gives back a lock under which nothing was run.
pub(super) async fn release_unused(client: &Client, lease: &Lease, signals: &mut Signals) {
    let (name, until) = (&lease.name, lease.good_until());
    let release = notify_if_slow(name, RELEASE_UNANSWERED, client.release(name, &lease.token));
    match signals.until_second_signal(release).await {
        // A lease that is lost needs no release.
        Some(Ok(()) | Err(ClientError::Lost(_))) => {}
        Some(Err(error)) => left_locked(name, until, &error.to_string()),
        None => left_locked(name, until, IMPATIENT),
    }
}

/// Says that the lock was not released, until when that matters and why.
fn left_locked(name: &LockName, until: Instant, why: &str) {
    let left = until.saturating_duration_since(Instant::now());
    let end = if left.is_zero() {
        "has ended by itself".to_owned()
    } else {
        format!("ends by itself in {}", duration::show(left))
    };
    output::note(&format!(
        "latchgate: {name}: could not release the lock, the lease {end}: {why}"
    ));
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;
    use crate::client::{AcquireRequest, ClientOptions};

    const LEASE: &str = r#"{"name":"deploy","token":"qL0vYHxFZ2mV1lQyqWb7m3Jc0r8sT5uK9dNfXaGhEiU","fencing_token":42,"ttl_ms":3000,"expires_in_ms":3000,"renew_after_ms":1000}"#;

    /// Grants, renews and releases, and tells what it was asked for.
    async fn gateway() -> (String, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        #[expect(
            clippy::disallowed_methods,
            reason = "it ends with the runtime of the test"
        )]
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut head = [0; 4096];
                let count = stream.read(&mut head).await.unwrap();
                let head = String::from_utf8_lossy(&head[..count]);
                let method = head.split(' ').next().unwrap().to_owned();
                log.lock().unwrap().push(method);
                let answer = format!(
                    "HTTP/1.1 200 X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{LEASE}",
                    LEASE.len()
                );
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (url, asked)
    }

    /// What a gateway was asked for when this remained of a command.
    async fn asked_with(leftover: Leftover) -> Vec<String> {
        let (url, asked) = gateway().await;
        let client = Client::new(ClientOptions {
            url,
            ..ClientOptions::default()
        });
        let client = client.unwrap();
        let name = LockName::new("deploy").unwrap();
        let lease = client.acquire(&name, &AcquireRequest::default()).await;
        let renewer = LeaseRenewer::start(&client, lease.unwrap()).await.unwrap();
        let mut signals = Signals::listen([]).unwrap();
        release_lock(&name, renewer, leftover, &mut signals).await;
        // Longer than it takes to renew.
        tokio::time::sleep(Duration::from_millis(1_500)).await;
        asked.lock().unwrap().clone()
    }

    #[tokio::test]
    async fn a_lock_under_which_somebody_lives_is_neither_released_nor_kept() {
        assert_eq!(asked_with(Leftover::Somebody).await, ["POST"]);
        assert_eq!(asked_with(Leftover::Nobody).await, ["POST", "DELETE"]);
    }
}

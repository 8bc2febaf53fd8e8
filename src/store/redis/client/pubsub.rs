//! A connection that listens to channels.

use std::time::Duration;

use bb8_redis::redis::{
    Value,
    aio::{PubSub, PubSubSink},
};
use futures_util::{Stream, StreamExt};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// A connection that listens to channels.
pub(crate) struct PubSubConnection {
    pub(crate) connection: PubSub,
    /// Cancelled when the server is given up.
    pub(crate) disconnected: CancellationToken,
}

/// How often it is found out whether the connection still carries anything.
const PING: Duration = Duration::from_secs(2);

// === impl PubSubConnection ===

impl PubSubConnection {
    /// What is published, until the connection is lost or silent, or the server is given up.
    pub(crate) fn messages(self) -> impl Stream<Item = String> + Send + 'static {
        let (mut requests, messages) = self.connection.split();
        let disconnected = self.disconnected;
        let lost = async move {
            tokio::select! {
                () = until_silent(&mut requests) => {}
                () = disconnected.cancelled() => {}
            }
        };
        messages
            .map(|message| String::from_utf8_lossy(message.get_payload_bytes()).into_owned())
            .take_until(lost)
    }
}

/// Ends when a connection does not answer any more: it may be lost without a sign. Any answer will do, a refusal
/// included.
async fn until_silent(requests: &mut PubSubSink) {
    loop {
        sleep(PING).await;
        if timeout(PING, requests.ping::<Value>()).await.is_err() {
            return;
        }
    }
}

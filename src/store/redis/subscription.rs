//! Listens to the messages of other gateways, on a connection of its own that comes back by itself.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use bb8_redis::redis::{Cmd, Value, aio::PubSubSink};
use futures_util::StreamExt;
use tokio::time::{sleep, timeout};

use crate::store::Unavailability;

use super::{
    client::PubSubConnection,
    dispatch::{Dispatch, Pauses},
    gateway::RedisGateway,
};

/// Hands on to the gateway what is published for it, or for all.
pub(super) struct Subscription {
    pub(super) gateway: Arc<RedisGateway>,
    pub(super) dispatch: Arc<Dispatch>,
}

/// How often it is found out whether the connection still carries anything.
const PING: Duration = Duration::from_secs(2);
/// How soon a server is asked again that refuses the user the channel.
const REFUSED: Duration = Duration::from_secs(5);

// === impl Subscription ===

impl Subscription {
    /// Listens for ever. Whenever a connection has been made, messages may have been missed before.
    pub(super) async fn listen(self) {
        let channel = self.gateway.id.channel();
        let mut pauses = Pauses::new();
        loop {
            let subscribed = match self.dispatch.topology.pubsub_shard() {
                Ok(pubsub_shard) => {
                    let channels = [&*channel, &self.gateway.channels.all];
                    pubsub_shard.pool.subscribe(&channels).await
                }
                Err(why) => Err(why),
            };
            let pause = match subscribed {
                Ok(pubsub) => {
                    pauses = Pauses::new();
                    self.note(None);
                    self.gateway.missed.send_modify(|times| *times += 1);
                    self.gateway.is_subscribed.store(true, Ordering::Relaxed);
                    self.read_messages(pubsub).await;
                    self.gateway.is_subscribed.store(false, Ordering::Relaxed);
                    pauses.next()
                }
                Err(Unavailability::Misconfigured(why)) => {
                    self.note(Some(why));
                    REFUSED
                }
                // The server is away, which the other connections find out and tell.
                Err(_) => pauses.next(),
            };
            sleep(pause).await;
        }
    }

    /// Hears messages until the connection is lost, or the server given up.
    async fn read_messages(
        &self,
        PubSubConnection {
            connection,
            disconnected,
        }: PubSubConnection,
    ) {
        let (mut requests, mut messages) = connection.split();
        let messages = async {
            while let Some(message) = messages.next().await {
                self.gateway
                    .ingest_message(&String::from_utf8_lossy(message.get_payload_bytes()));
            }
        };
        tokio::select! {
            () = messages => {}
            () = disconnected.cancelled() => {}
            () = until_silent(&mut requests) => {}
            () = self.announce() => {}
        }
    }

    /// Says that this gateway hears now what it may not have heard before, and answers others who say
    /// so. What is lost is said again by those who ask, every few seconds.
    async fn announce(&self) {
        let id = &self.gateway.id;
        self.publish_to_all(&format!("come {}", id.as_str())).await;
        loop {
            let lasts = self.gateway.news_wanted.newcomer().await;
            self.publish_to_all(&id.news_request(lasts)).await;
        }
    }

    async fn publish_to_all(&self, message: &str) {
        let mut command = Cmd::new();
        command
            .arg("PUBLISH")
            .arg(&self.gateway.channels.all)
            .arg(message);
        drop(self.dispatch.publish(&command).await);
    }

    fn note(&self, refusal: Option<String>) {
        let refused = &self.dispatch.unsubscribed;
        *refused.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
    }
}

/// Ends when a connection that listens does not answer any more: it may be lost without a sign. Any
/// answer is one of life, a refusal included.
pub(super) async fn until_silent(requests: &mut PubSubSink) {
    loop {
        sleep(PING).await;
        if timeout(PING, requests.ping::<Value>()).await.is_err() {
            return;
        }
    }
}

//! Carries news between gateways over two channels: one on which they are asked for, to which every
//! gateway subscribes, and one on which they are sent, to which those subscribe that want news.

use std::{
    pin::pin,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{StreamExt, future, stream::BoxStream};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::store::{StoreError, Unavailability, contract::Relay};

use super::{
    super::client::{
        PubSubConnection,
        dispatch::{Dispatch, Pauses},
    },
    gateway::RedisGateway,
};

/// The relay of one Redis.
pub(crate) struct RedisRelay {
    pub(crate) gateway: Arc<RedisGateway>,
    pub(crate) dispatch: Arc<Dispatch>,
    /// Ends what listens.
    pub(crate) closing: CancellationToken,
}

// === impl RedisRelay ===

#[async_trait]
impl Relay for RedisRelay {
    async fn ask(&self, lasts: Duration) -> Result<(), StoreError> {
        self.gateway.news_wanted.ask(lasts);
        let request = self.gateway.id.news_request(lasts);
        let all = &self.gateway.channels.all;
        self.dispatch.publish(all, &request).await
    }

    async fn asked(&self) -> Duration {
        self.gateway.news_wanted.next().await
    }

    async fn send(&self, batch: &str) -> Result<(), StoreError> {
        let id = self.gateway.id.as_str();
        let news = &self.gateway.channels.news;
        self.dispatch.publish(news, &format!("{id}\n{batch}")).await
    }

    async fn listen(&self) -> Result<BoxStream<'static, String>, StoreError> {
        let pubsub_shard = self.dispatch.topology.pubsub_shard()?;
        let news = [&*self.gateway.channels.news];
        let pubsub = pubsub_shard.pool.subscribe(&news).await?;
        let me = format!("{}\n", self.gateway.id.as_str());
        let batches = pubsub.messages().filter_map(move |message| {
            // What has no sender is left out, as is what this gateway has sent.
            let batch = message.split_once('\n').map(|(_, batch)| batch.to_owned());
            future::ready(batch.filter(|_| !message.starts_with(&me)))
        });
        let closing = self.closing.clone();
        Ok(batches.take_until(closing.cancelled_owned()).boxed())
    }
}

// === Subscription ===
//
// Listens to the messages of other gateways, on a connection of its own that comes back by itself.

/// Hands on to the gateway what is published for it, or for all.
pub(crate) struct Subscription {
    pub(crate) gateway: Arc<RedisGateway>,
    pub(crate) dispatch: Arc<Dispatch>,
}

/// How soon a server is asked again that refuses the user the channel.
const REFUSED: Duration = Duration::from_secs(5);

// === impl Subscription ===

impl Subscription {
    /// Listens for ever. Whenever a connection has been made, messages may have been missed before.
    pub(crate) async fn listen(self) {
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

    /// Reads messages until the connection is lost, or the server given up.
    async fn read_messages(&self, pubsub: PubSubConnection) {
        let mut messages = pin!(pubsub.messages());
        let read = async {
            while let Some(message) = messages.next().await {
                self.gateway.ingest_message(&message);
            }
        };
        tokio::select! {
            () = read => {}
            () = self.announce() => {}
        }
    }

    /// Announces that this gateway receives messages from now on, and answers others that announce it. Those
    /// who ask for news ask again every few seconds, so that a lost message is repeated.
    async fn announce(&self) {
        let id = &self.gateway.id;
        self.publish_to_all(&format!("come {}", id.as_str())).await;
        loop {
            let lasts = self.gateway.news_wanted.newcomer().await;
            self.publish_to_all(&id.news_request(lasts)).await;
        }
    }

    async fn publish_to_all(&self, message: &str) {
        let all = &self.gateway.channels.all;
        drop(self.dispatch.publish(all, message).await);
    }

    fn note(&self, refusal: Option<String>) {
        let refused = &self.dispatch.unsubscribed;
        *refused.lock().unwrap_or_else(PoisonError::into_inner) = refusal;
    }
}

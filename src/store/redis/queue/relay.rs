//! Carries news between gateways over two channels: one on which they are asked for, which every
//! gateway hears, and one on which they are sent, which those hear who take part.

use std::{
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use async_trait::async_trait;
use bb8_redis::redis::{Cmd, Value, aio::PubSubSink};
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::store::{StoreError, Unavailability, contract::Relay};

use super::{
    super::client::{
        PubSubConnection,
        dispatch::{Dispatch, Pauses},
        failure::Failure,
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

impl RedisRelay {
    async fn publish(&self, channel: &str, message: &str) -> Result<(), StoreError> {
        let mut command = Cmd::new();
        command.arg("PUBLISH").arg(channel).arg(message);
        let sent = self.dispatch.publish(&command);
        sent.await.map(drop).map_err(|failure| match failure {
            Failure::Unknown(why) => why.into(),
            Failure::NoScript | Failure::WrongType => {
                Unavailability::Refused("the server refuses PUBLISH".to_owned()).into()
            }
            known => known.reason().into(),
        })
    }
}

#[async_trait]
impl Relay for RedisRelay {
    async fn ask(&self, lasts: Duration) -> Result<(), StoreError> {
        self.gateway.news_wanted.ask(lasts);
        let request = self.gateway.id.news_request(lasts);
        self.publish(&self.gateway.channels.all, &request).await
    }

    async fn asked(&self) -> Duration {
        self.gateway.news_wanted.next().await
    }

    async fn send(&self, batch: &str) -> Result<(), StoreError> {
        let id = self.gateway.id.as_str();
        self.publish(&self.gateway.channels.news, &format!("{id}\n{batch}"))
            .await
    }

    async fn listen(&self) -> Result<BoxStream<'static, String>, StoreError> {
        let pubsub_shard = self.dispatch.topology.pubsub_shard()?;
        let PubSubConnection {
            connection,
            disconnected,
        } = pubsub_shard
            .pool
            .subscribe(&[&self.gateway.channels.news])
            .await?;
        let (mut requests, messages) = connection.split();
        let me = format!("{}\n", self.gateway.id.as_str());
        let closing = self.closing.clone();
        // What nobody knows to be of another gateway is left out.
        let messages = messages.filter_map(move |message| {
            let text = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
            let batch = (!text.starts_with(&me)).then_some(text);
            let batch = batch.and_then(|text| Some(text.split_once('\n')?.1.to_owned()));
            std::future::ready(batch)
        });
        let lost = async move {
            tokio::select! {
                () = until_silent(&mut requests) => {}
                () = disconnected.cancelled() => {}
                () = closing.cancelled() => {}
            }
        };
        let batches = messages.map(Some).chain(stream::once(async { None }));
        let until = stream::once(lost).map(|()| None);
        let both = stream::select(batches, until);
        Ok(both
            .take_while(|batch| std::future::ready(batch.is_some()))
            .filter_map(std::future::ready)
            .boxed())
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

/// How often it is found out whether the connection still carries anything.
const PING: Duration = Duration::from_secs(2);
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
pub(crate) async fn until_silent(requests: &mut PubSubSink) {
    loop {
        sleep(PING).await;
        if timeout(PING, requests.ping::<Value>()).await.is_err() {
            return;
        }
    }
}

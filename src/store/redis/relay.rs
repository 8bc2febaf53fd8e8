//! Carries news between gateways over two channels: one on which they are asked for, which every
//! gateway hears, and one on which they are sent, which those hear who take part.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use bb8_redis::redis::Cmd;
use futures_util::{
    StreamExt,
    stream::{self, BoxStream},
};
use tokio_util::sync::CancellationToken;

use crate::store::{StoreError, Unavailability, relay::Relay};

use super::{
    client::PubSubConnection, dispatch::Dispatch, failure::Failure, gateway::RedisGateway,
    subscription::until_silent,
};

/// The relay of one Redis.
pub(super) struct RedisRelay {
    pub(super) gateway: Arc<RedisGateway>,
    pub(super) dispatch: Arc<Dispatch>,
    /// Ends what listens.
    pub(super) closing: CancellationToken,
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

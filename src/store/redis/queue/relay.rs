//! Carries news between gateways over two channels: one on which they are asked for, to which every
//! gateway subscribes, and one on which they are sent, to which those subscribe that want news.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use futures_util::{StreamExt, future, stream::BoxStream};
use tokio_util::sync::CancellationToken;

use crate::store::{StoreError, contract::Relay};

use super::{super::client::dispatch::Dispatch, gateway::RedisGateway};

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
        let pubsub = pubsub_shard.pool.route.subscribe(&news).await?;
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

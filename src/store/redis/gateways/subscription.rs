//! Listens to the messages of other gateways, on a connection of its own that comes back by itself.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::StreamExt;
use tokio::time::sleep;

use crate::store::Unavailability;

use super::{
    super::{
        client::{
            PubSubConnection,
            dispatch::{Dispatch, Pauses},
        },
        keys::GatewayId,
    },
    channels::Channels,
    news_wanted::NewsWanted,
};

/// Hands on what is published for this gateway, or for all.
pub(crate) struct Subscription {
    pub(crate) id: GatewayId,
    pub(crate) channels: Channels,
    pub(crate) news_wanted: Arc<NewsWanted>,
    pub(crate) dispatch: Arc<Dispatch>,
}

/// What is handed on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Heard<'a> {
    /// A connection has been made. Messages may have been missed before.
    Connected,
    /// A message that is not about who wants news.
    Message(&'a str),
    /// The connection is lost.
    Disconnected,
}

/// How soon a server is asked again that refuses the user the channel.
const REFUSED: Duration = Duration::from_secs(5);

// === impl Subscription ===

impl Subscription {
    /// Listens for ever.
    pub(crate) async fn listen(self, hand_on: impl Fn(Heard<'_>) + Send + Sync) {
        let channel = self.id.channel();
        let mut pauses = Pauses::new();
        loop {
            let channels = [&*channel, &self.channels.all];
            let subscribed = match self.dispatch.topology.pubsub_shard() {
                Ok(shard) => {
                    let subscribed = shard.pool.route.subscribe(&channels).await;
                    subscribed.map(|pubsub| (shard, pubsub))
                }
                Err(why) => Err(why),
            };
            let pause = match subscribed {
                Ok((shard, pubsub)) => {
                    pauses = Pauses::new();
                    self.note(None);
                    hand_on(Heard::Connected);
                    self.read_messages(pubsub, &hand_on).await;
                    shard.pool.route.note_lost_connection();
                    hand_on(Heard::Disconnected);
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
    async fn read_messages(
        &self,
        pubsub: PubSubConnection,
        hand_on: &(impl Fn(Heard<'_>) + Send + Sync),
    ) {
        let mut messages = pin!(pubsub.messages());
        let read = async {
            while let Some(message) = messages.next().await {
                if let Some(asked) = message.strip_prefix("listening ") {
                    self.news_wanted.note_request(asked, &self.id);
                } else if let Some(id) = message.strip_prefix("come ") {
                    self.news_wanted.note_newcomer(id, &self.id);
                } else {
                    hand_on(Heard::Message(&message));
                }
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
        let id = &self.id;
        self.publish_to_all(&format!("come {}", id.as_str())).await;
        loop {
            let lasts = self.news_wanted.newcomer().await;
            self.publish_to_all(&id.news_request(lasts)).await;
        }
    }

    async fn publish_to_all(&self, message: &str) {
        let all = &self.channels.all;
        drop(self.dispatch.publish(all, message).await);
    }

    fn note(&self, refusal: Option<String>) {
        let refused = &self.dispatch.unsubscribed;
        *refused.lock() = refusal;
    }
}

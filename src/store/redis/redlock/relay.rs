//! Carries messages between gateways over all nodes of a quorum. Each message arrives by every node that can carry it,
//! and is delivered once.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::{
    StreamExt, future,
    stream::{self, BoxStream, SelectAll},
};

use crate::{
    lock::{LockName, TokenHash},
    store::{
        StoreError, Unavailability,
        relay::{DeclarationHashes, Relay},
    },
};

use super::{super::client::PubSubConnection, quorum::too_few, shared::Shared};

/// Carries messages between the gateways on a quorum.
pub(super) struct QuorumRelay {
    pub(super) shared: Arc<Shared>,
    /// How many batches of news this gateway has sent.
    pub(super) sent: AtomicU64,
}

/// Marks of the last messages, to recognize copies that arrive by other nodes.
#[derive(Debug, Default)]
struct RecentMessages(VecDeque<String>);

/// How many messages are remembered: the messages of many gateways, for longer than one node may lag behind another.
const REMEMBERED: usize = 1_024;

// === impl QuorumRelay ===

impl QuorumRelay {
    /// Publishes a message at all nodes. A majority of the nodes must take the message, so that at least one of them is
    /// among the majority on which another gateway listens.
    async fn publish(&self, channel: &str, message: &str) -> Result<(), StoreError> {
        let quorum = &self.shared.quorum;
        let majority = quorum.majority();
        let answers = quorum.ask(
            |node| node.dispatch.publish(channel, message),
            |answers| answers.count(Result::is_ok) >= majority,
        );
        let answers = answers.await;
        if answers.count(Result::is_ok) >= majority {
            return Ok(());
        }
        Err(self.shared.unknown(&answers, false))
    }
}

#[async_trait]
impl Relay for QuorumRelay {
    async fn ask(&self, lasts: Duration) -> Result<(), StoreError> {
        let shared = &self.shared;
        shared.news_wanted.ask(lasts);
        self.publish(&shared.channels.all, &shared.id.news_request(lasts))
            .await
    }

    async fn asked(&self) -> Duration {
        self.shared.news_wanted.next().await
    }

    async fn tell_lost(&self, name: &LockName, token: &TokenHash) -> Result<(), StoreError> {
        let all = &self.shared.channels.all;
        self.publish(all, &format!("broken {token} {name}")).await
    }

    async fn send(&self, batch: &str) -> Result<(), StoreError> {
        let id = self.shared.id.as_str();
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        let news = &self.shared.channels.news;
        self.publish(news, &format!("{id} {number}\n{batch}")).await
    }

    async fn listen(&self) -> Result<BoxStream<'static, String>, StoreError> {
        let nodes = self.shared.quorum.nodes();
        let majority = self.shared.quorum.majority();
        let news = [&*self.shared.channels.news];
        let pubsubs = future::join_all(
            nodes
                .iter()
                .map(|node| node.shard.pool.route.subscribe(&news)),
        )
        .await;
        let (mut all, mut refused) = (SelectAll::new(), None);
        for pubsub in pubsubs {
            match pubsub {
                Ok(pubsub) => all.push(messages(pubsub)),
                Err(why) => refused = Some(why),
            }
        }
        if all.len() < majority {
            let why = refused.unwrap_or(Unavailability::Closing).into();
            return Err(too_few(nodes.len(), all.len(), Some(&why)));
        }
        let (mut listening, mut recent) = (all.len(), RecentMessages::default());
        let me = format!("{} ", self.shared.id.as_str());
        let closing = self.shared.closing.clone();
        // The listener ends when fewer than a majority of the nodes are connected, because some messages may not arrive
        // any more.
        let until = all.take_while(move |message| {
            listening -= usize::from(message.is_none());
            future::ready(listening >= majority)
        });
        let batches = until.filter_map(move |message| {
            let new = message.and_then(|message| {
                let (mark, batch) = message.split_once('\n')?;
                let is_new = !mark.starts_with(&me) && recent.is_new(mark);
                is_new.then(|| batch.to_owned())
            });
            future::ready(new)
        });
        Ok(batches.take_until(closing.cancelled_owned()).boxed())
    }

    fn declarations(&self) -> &DeclarationHashes {
        &self.shared.news_wanted.declarations
    }
}

/// The messages that are published at one node, and `None` when the connection to the node is lost.
fn messages(pubsub: PubSubConnection) -> BoxStream<'static, Option<String>> {
    let end = stream::once(future::ready(None));
    pubsub.messages().map(Some).chain(end).boxed()
}

// === impl RecentMessages ===

impl RecentMessages {
    /// Whether no message with this mark has arrived before.
    fn is_new(&mut self, mark: &str) -> bool {
        if self.0.iter().rev().any(|recent| recent == mark) {
            return false;
        }
        if self.0.len() >= REMEMBERED {
            self.0.pop_front();
        }
        self.0.push_back(mark.to_owned());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_delivered_once_although_it_comes_by_every_node() {
        let mut recent = RecentMessages::default();
        for number in 0..2 * REMEMBERED {
            let mark = format!("gateway {number}");
            assert!(recent.is_new(&mark));
            assert!(!recent.is_new(&mark));
        }
        assert_eq!(recent.0.len(), REMEMBERED);
    }
}

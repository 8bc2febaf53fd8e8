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
    client::Ear,
    dispatch::{Dispatch, Pauses},
    gateway::Gateway,
};

/// Hands on to the gateway what is published for it, or for all.
pub(super) struct Subscription {
    pub(super) gateway: Arc<Gateway>,
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
            let subscribed = match self.dispatch.topology.messenger() {
                Ok(messenger) => {
                    let channels = [&*channel, &self.gateway.channels.all];
                    messenger.pool.subscribe(&channels).await
                }
                Err(why) => Err(why),
            };
            let pause = match subscribed {
                Ok(ear) => {
                    pauses = Pauses::new();
                    self.note(None);
                    self.gateway.missed.send_modify(|times| *times += 1);
                    self.gateway.hears.store(true, Ordering::Relaxed);
                    self.hear(ear).await;
                    self.gateway.hears.store(false, Ordering::Relaxed);
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
    async fn hear(&self, Ear { connection, over }: Ear) {
        let (mut requests, mut messages) = connection.split();
        let messages = async {
            while let Some(message) = messages.next().await {
                self.gateway
                    .hear_message(&String::from_utf8_lossy(message.get_payload_bytes()));
            }
        };
        tokio::select! {
            () = messages => {}
            () = over.cancelled() => {}
            () = silence(&mut requests) => {}
            () = self.talk() => {}
        }
    }

    /// Says that this gateway hears now what it may not have heard before, and answers others who say
    /// so. What is lost is said again by those who ask, every few seconds.
    async fn talk(&self) {
        let id = &self.gateway.id;
        self.tell_all(&format!("come {}", id.as_str())).await;
        loop {
            let lasts = self.gateway.news_wanted.newcomer().await;
            self.tell_all(&id.question(lasts)).await;
        }
    }

    async fn tell_all(&self, message: &str) {
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
pub(super) async fn silence(requests: &mut PubSubSink) {
    loop {
        sleep(PING).await;
        if timeout(PING, requests.ping::<Value>()).await.is_err() {
            return;
        }
    }
}

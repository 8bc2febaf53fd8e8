//! Messages between gateways: where they are published, what every gateway receives, and for how long other gateways want
//! to hear the news of this one.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::StreamExt;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep},
};

use crate::store::Unavailability;

use super::{
    client::{
        PubSubConnection,
        dispatch::{Dispatch, Pauses},
    },
    keys::GatewayId,
};

/// The channels by which all gateways of one database send messages to each other.
///
/// Channels belong to a server and not to a database, so each database has names of its own: whoever uses
/// another one has other locks, and is told nothing of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Channels {
    /// For messages to all gateways. In scripts stands that of the first database, and is replaced.
    pub(crate) all: String,
    /// For events, to those gateways at which somebody listens.
    pub(crate) news: String,
}

// === impl Channels ===

impl Channels {
    /// Those of a database, by its number.
    pub(crate) fn of(database: u16) -> Self {
        let of_it = match database {
            0 => String::new(),
            number => format!(":{number}"),
        };
        Self {
            all: format!("lg:gw:all{of_it}"),
            news: format!("lg:events{of_it}"),
        }
    }
}

// === News ===

/// What other gateways have asked, until somebody looks at it.
#[derive(Debug, Default)]
pub(crate) struct NewsWanted {
    lasts: Mutex<Option<Duration>>,
    asked: Notify,
    /// Until when this gateway has asked itself.
    ours: Mutex<Option<Instant>>,
    newcomer: Notify,
}

/// Nobody asks for longer, whatever a message says: whoever asks, asks again.
const LONGEST: Duration = Duration::from_mins(1);

// === impl NewsWanted ===

impl NewsWanted {
    /// Takes in what a gateway has asked: its id, and for how long in milliseconds. What this one
    /// has asked itself comes back to it, and is no reason to send anything.
    pub(crate) fn note_request(&self, asked: &str, me: &GatewayId) {
        let mut words = asked.split(' ');
        let (id, lasts) = (words.next(), words.next().map(str::parse));
        if let (Some(id), Some(Ok(ms))) = (id, lasts)
            && id != me.as_str()
        {
            *self.lasts.lock() = Some(Duration::from_millis(ms).min(LONGEST));
            self.asked.notify_one();
        }
    }

    /// Takes in that a gateway with this id has come. It was not there when this one asked.
    pub(crate) fn note_newcomer(&self, id: &str, me: &GatewayId) {
        if id != me.as_str() {
            self.newcomer.notify_one();
        }
    }

    /// This gateway asks all others for so long.
    pub(crate) fn ask(&self, lasts: Duration) {
        let until = Instant::now() + lasts.min(LONGEST);
        *self.ours.lock() = Some(until);
    }

    /// Ends when a gateway has come that does not know yet that this one wants news, with for how long.
    pub(crate) async fn newcomer(&self) -> Duration {
        loop {
            self.newcomer.notified().await;
            let ours = *self.ours.lock();
            let left = ours.map(|until| until.saturating_duration_since(Instant::now()));
            if let Some(left) = left.filter(|left| !left.is_zero()) {
                return left;
            }
        }
    }

    /// Ends when something was asked since the last call.
    pub(crate) async fn next(&self) -> Duration {
        loop {
            if let Some(lasts) = self.lasts.lock().take() {
                return lasts;
            }
            self.asked.notified().await;
        }
    }
}

// === Subscription ===
//
// Listens to the messages of other gateways, on a connection of its own that comes back by itself.

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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;
    use tokio::time::advance;

    use super::*;

    #[tokio::test]
    async fn what_others_ask_is_answered_once_and_what_we_asked_ourselves_is_not() {
        let (wanted, me) = (NewsWanted::default(), GatewayId::random());
        wanted.note_request(&format!("{} 5000", me.as_str()), &me);
        for odd in ["", "x", "x y", "x -1"] {
            wanted.note_request(odd, &me);
        }
        assert_eq!(wanted.next().now_or_never(), None);
        wanted.note_request("another 5000", &me);
        assert_eq!(wanted.next().await, Duration::from_secs(5));
        assert_eq!(wanted.next().now_or_never(), None);
        wanted.note_request(&format!("another {}", u64::MAX), &me);
        assert_eq!(wanted.next().await, LONGEST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_newcomer_is_asked_as_long_as_we_want_news() {
        let (wanted, me) = (NewsWanted::default(), GatewayId::random());
        let lasts = Duration::from_secs(10);
        wanted.note_newcomer("another", &me);
        assert_eq!(wanted.newcomer().now_or_never(), None, "we want none");
        wanted.ask(lasts);
        wanted.note_newcomer(me.as_str(), &me);
        assert_eq!(wanted.newcomer().now_or_never(), None, "it is ourselves");
        wanted.note_newcomer("another", &me);
        assert_eq!(wanted.newcomer().now_or_never(), Some(lasts));
        advance(lasts).await;
        wanted.note_newcomer("another", &me);
        assert_eq!(wanted.newcomer().now_or_never(), None, "no longer");
    }

    #[test]
    fn each_database_has_its_own() {
        let (first, second) = (Channels::of(0), Channels::of(1));
        assert_eq!((&*first.all, &*first.news), ("lg:gw:all", "lg:events"));
        assert_eq!(
            (&*second.all, &*second.news),
            ("lg:gw:all:1", "lg:events:1")
        );
        assert_ne!(Channels::of(1), Channels::of(11));
    }
}

//! Messages between gateways: their channels, the subscription of each gateway, and the requests of gateways for news
//! of other gateways.

use std::{pin::pin, sync::Arc, time::Duration};

use futures_util::StreamExt;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Instant, sleep, timeout},
};

use crate::store::{
    Unavailability,
    relay::{DeclarationHashes, TELL_EVERY},
};

use super::{
    client::{
        PubSubConnection,
        dispatch::{Dispatch, Pauses},
    },
    keys::GatewayId,
};

/// The channels by which all gateways of one database send messages to each other.
///
/// A channel belongs to a server and not to a database. So each database has its own channel names, because gateways on
/// another database have other locks and must not receive these messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Channels {
    /// Channel for messages to all gateways. The texts of scripts have the name for database 0, which is replaced for
    /// any other database.
    pub(crate) all: String,
    /// Channel for events, to which gateways with event listeners subscribe.
    pub(crate) news: String,
}

// === impl Channels ===

impl Channels {
    /// The channels of the database with this number.
    pub(crate) fn for_database(database: u16) -> Self {
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

/// Requests of gateways for the news of this gateway, kept until `next` takes them; and the request of this gateway for
/// the news of other gateways.
#[derive(Debug, Default)]
pub(crate) struct NewsWanted {
    lasts: Mutex<Option<Duration>>,
    asked: Notify,
    /// Until when this gateway has requested the news of other gateways.
    ours: Mutex<Option<Instant>>,
    newcomer: Notify,
    /// What the gateways tell of their declarations of locks.
    pub(crate) declarations: DeclarationHashes,
}

/// How long a request for news counts at most, whatever a message says. A gateway repeats its request.
const MAX_REQUEST_DURATION: Duration = Duration::from_mins(1);

// === impl NewsWanted ===

impl NewsWanted {
    /// Records the request of a gateway for news: the id of the gateway, and the time in milliseconds. The gateway that
    /// has sent the request receives it, too, and sends its news: otherwise another gateway would report a lease as
    /// expired that was released at this gateway.
    pub(crate) fn note_request(&self, asked: &str) {
        let lasts = asked.split(' ').nth(1).map(str::parse);
        if let Some(Ok(ms)) = lasts {
            *self.lasts.lock() = Some(Duration::from_millis(ms).min(MAX_REQUEST_DURATION));
            self.asked.notify_one();
        }
    }

    /// Records that a gateway has started to listen. That gateway has missed the earlier request of this gateway for
    /// news.
    pub(crate) fn note_newcomer(&self, id: &str, me: &GatewayId) {
        if id != me.as_str() {
            self.newcomer.notify_one();
        }
    }

    /// Records that this gateway requests the news of all other gateways for this long.
    pub(crate) fn ask(&self, lasts: Duration) {
        let until = Instant::now() + lasts.min(MAX_REQUEST_DURATION);
        *self.ours.lock() = Some(until);
    }

    /// Waits until a new gateway listens that does not know that this gateway wants news. Answers for how much longer
    /// this gateway wants news.
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

    /// Waits for the next request of a gateway for news, and answers for how long that gateway wants them.
    pub(crate) async fn next(&self) -> Duration {
        loop {
            if let Some(lasts) = self.lasts.lock().take() {
                return lasts;
            }
            self.asked.notified().await;
        }
    }
}

// Listens to the messages of other gateways, on a separate connection that reconnects automatically.

/// Subscribes to the messages for this gateway and for all gateways, and passes the messages on.
pub(crate) struct Subscription {
    pub(crate) id: GatewayId,
    pub(crate) channels: Channels,
    pub(crate) news_wanted: Arc<NewsWanted>,
    pub(crate) dispatch: Arc<Dispatch>,
}

/// An event of the subscription to messages of gateways.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Heard<'a> {
    /// The subscription is connected. Messages may have been missed before.
    Connected,
    /// A message, except for those that the subscription handles: requests for news, announcements of new gateways, and
    /// hashes of declarations.
    Message(&'a str),
    /// The connection of the subscription is lost.
    Disconnected,
}

/// Pause before the gateway subscribes again if the user has no permission for the channel.
const REFUSED: Duration = Duration::from_secs(5);

// === impl Subscription ===

impl Subscription {
    /// Listens to messages until the subscription is dropped.
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
                // The server is unavailable. Other connections find and report this.
                Err(_) => pauses.next(),
            };
            sleep(pause).await;
        }
    }

    /// Reads messages until the connection is lost, or the gateway stops using the server.
    async fn read_messages(
        &self,
        pubsub: PubSubConnection,
        hand_on: &(impl Fn(Heard<'_>) + Send + Sync),
    ) {
        let mut messages = pin!(pubsub.messages());
        let read = async {
            while let Some(message) = messages.next().await {
                if let Some(asked) = message.strip_prefix("listening ") {
                    self.news_wanted.note_request(asked);
                } else if let Some(id) = message.strip_prefix("come ") {
                    self.news_wanted.note_newcomer(id, &self.id);
                } else if let Some(hash) = message.strip_prefix("declares ") {
                    self.news_wanted.declarations.hear(hash);
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

    /// Announces that this gateway now receives messages, tells the hash of its declarations of locks, and repeats the
    /// gateway's request for news to gateways that announce themselves. A lost message does no harm, because gateways repeat their requests every few seconds.
    async fn announce(&self) {
        let id = &self.id;
        self.publish_to_all(&format!("come {}", id.as_str())).await;
        loop {
            let declared = self.news_wanted.declarations.own();
            if let Some(hash) = declared {
                self.publish_to_all(&format!("declares {hash}")).await;
            }
            if let Ok(lasts) = timeout(TELL_EVERY, self.news_wanted.newcomer()).await {
                self.publish_to_all(&id.news_request(lasts)).await;
            }
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
    async fn a_request_for_news_is_answered_once() {
        let wanted = NewsWanted::default();
        for odd in ["", "x", "x y", "x -1"] {
            wanted.note_request(odd);
        }
        assert_eq!(wanted.next().now_or_never(), None);
        wanted.note_request("another 5000");
        assert_eq!(wanted.next().await, Duration::from_secs(5));
        assert_eq!(wanted.next().now_or_never(), None);
        wanted.note_request(&format!("another {}", u64::MAX));
        assert_eq!(wanted.next().await, MAX_REQUEST_DURATION);
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
        let (first, second) = (Channels::for_database(0), Channels::for_database(1));
        assert_eq!((&*first.all, &*first.news), ("lg:gw:all", "lg:events"));
        assert_eq!(
            (&*second.all, &*second.news),
            ("lg:gw:all:1", "lg:events:1")
        );
        assert_ne!(Channels::for_database(1), Channels::for_database(11));
    }
}

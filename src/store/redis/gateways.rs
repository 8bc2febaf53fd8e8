//! Messages between gateways: their channels, the subscription of each gateway, and requests of gateways for the news
//! of others.

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
/// A channel belongs to a server and not to a database. So each database has its own channel names, because gateways on
/// another database have other locks and must not receive these messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Channels {
    /// Channel for messages to all gateways. Scripts are written with the name of database 0, which is replaced.
    pub(crate) all: String,
    /// Channel for events, to which gateways with event listeners subscribe.
    pub(crate) news: String,
}

// === impl Channels ===

impl Channels {
    /// The channels of a database, by its number.
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

/// Requests of other gateways for the news of this one, until `next` takes them; and the request of this gateway for
/// their news.
#[derive(Debug, Default)]
pub(crate) struct NewsWanted {
    lasts: Mutex<Option<Duration>>,
    asked: Notify,
    /// Until when this gateway has requested news of the others.
    ours: Mutex<Option<Instant>>,
    newcomer: Notify,
}

/// Longest time of a request, whatever a message says. A gateway repeats its request.
const MAX_REQUEST_DURATION: Duration = Duration::from_mins(1);

// === impl NewsWanted ===

impl NewsWanted {
    /// Records the request of a gateway: its id, and the time in milliseconds. The gateway also receives its own
    /// request, which must not make it send news.
    pub(crate) fn note_request(&self, asked: &str, me: &GatewayId) {
        let mut words = asked.split(' ');
        let (id, lasts) = (words.next(), words.next().map(str::parse));
        if let (Some(id), Some(Ok(ms))) = (id, lasts)
            && id != me.as_str()
        {
            *self.lasts.lock() = Some(Duration::from_millis(ms).min(MAX_REQUEST_DURATION));
            self.asked.notify_one();
        }
    }

    /// Records that a gateway has started to listen. It has missed the earlier request of this gateway.
    pub(crate) fn note_newcomer(&self, id: &str, me: &GatewayId) {
        if id != me.as_str() {
            self.newcomer.notify_one();
        }
    }

    /// Records that this gateway requests news of all others for so long.
    pub(crate) fn ask(&self, lasts: Duration) {
        let until = Instant::now() + lasts.min(MAX_REQUEST_DURATION);
        *self.ours.lock() = Some(until);
    }

    /// Waits until a new gateway listens that does not know that this gateway wants news. Answers for how much longer
    /// it wants news.
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

    /// Waits for the next request of another gateway, and answers for how long it wants news.
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

/// Subscribes to the messages for this gateway and for all gateways, and passes them on.
pub(crate) struct Subscription {
    pub(crate) id: GatewayId,
    pub(crate) channels: Channels,
    pub(crate) news_wanted: Arc<NewsWanted>,
    pub(crate) dispatch: Arc<Dispatch>,
}

/// An event of the subscription.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Heard<'a> {
    /// The subscription is connected. Messages may have been missed before.
    Connected,
    /// A message, except for requests for news and for new gateways, which are handled here.
    Message(&'a str),
    /// The connection is lost.
    Disconnected,
}

/// Pause before the next try if the server refuses the user the channel.
const REFUSED: Duration = Duration::from_secs(5);

// === impl Subscription ===

impl Subscription {
    /// Listens until it is dropped.
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
                // The server is unavailable, which other connections find and report.
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

    /// Announces that this gateway now receives messages, and repeats its own request for news to gateways that
    /// announce themselves. A lost message does no harm, because gateways repeat their requests every few seconds.
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

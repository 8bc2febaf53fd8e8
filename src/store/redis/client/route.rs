//! To which server a connection is made.

use std::sync::Arc;

use tokio::time::Duration;

use crate::{
    config::{RedisConfig, RedisUrl},
    store::Unavailability,
};

use super::{
    connection::Connection, credentials::Credentials, endpoint::Endpoint, pubsub::PubSubConnection,
    sentinels::FollowedMaster,
};

/// To which server a connection is made.
#[derive(Clone)]
pub(crate) enum Route {
    /// Always to this one.
    Fixed(Arc<Endpoint>),
    /// To the one that is the master when it is made.
    Followed(Arc<FollowedMaster>),
}

// === impl Route ===

impl Route {
    pub(crate) fn to(endpoint: Endpoint) -> Self {
        Self::Fixed(Arc::new(endpoint))
    }

    pub(crate) fn to_one(url: &RedisUrl, config: &RedisConfig) -> Self {
        let credentials = Arc::new(Credentials::of_redis(&url.login(), config));
        let connect_timeout = config.connect_timeout_ms.duration();
        let endpoint = Endpoint::new(url.node(), credentials, connect_timeout);
        Self::to(endpoint)
    }

    /// How long it takes at most until there is a connection, or none.
    pub(crate) fn longest_connect(&self) -> Duration {
        match self {
            Self::Fixed(endpoint) => endpoint.connect_timeout(),
            Self::Followed(followed) => followed.longest_connect(),
        }
    }

    pub(crate) async fn connect(&self) -> Result<Connection, Unavailability> {
        match self {
            Self::Fixed(endpoint) => endpoint.connect().await,
            Self::Followed(followed) => followed.connect().await,
        }
    }

    /// A connection of its own that listens to channels.
    pub(crate) async fn subscribe(
        &self,
        channels: &[&str],
    ) -> Result<PubSubConnection, Unavailability> {
        match self {
            Self::Fixed(endpoint) => endpoint.subscribe(channels).await,
            Self::Followed(followed) => followed.subscribe(channels).await,
        }
    }

    /// Takes note that a connection was lost that listened to channels.
    pub(crate) fn note_lost_connection(&self) {
        if let Some(endpoint) = self.endpoint() {
            endpoint.lost.notify_one();
        }
    }

    /// The endpoint of the server to which connections are made now, if that is known.
    pub(crate) fn endpoint(&self) -> Option<Arc<Endpoint>> {
        match self {
            Self::Fixed(endpoint) => Some(Arc::clone(endpoint)),
            Self::Followed(followed) => followed.current_endpoint(),
        }
    }

    /// Gives a server up. Of a master that is followed whoever follows it does.
    pub(crate) fn disconnect(&self) {
        match self {
            Self::Fixed(endpoint) => endpoint.disconnect(),
            Self::Followed(_) => {}
        }
    }

    /// Closes every connection, whoever still has one.
    pub(crate) async fn close(&self) {
        match self {
            Self::Fixed(endpoint) => endpoint.close().await,
            Self::Followed(followed) => followed.close().await,
        }
    }
}

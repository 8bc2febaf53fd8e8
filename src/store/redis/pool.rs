//! The connections to one server, or to whichever is the master.
//!
//! A connection is taken from the pool, cloned, and given back before anything is sent: requests
//! share connections, and their commands travel together.

use std::{
    convert::Infallible,
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use bb8_redis::bb8;
use tokio::{
    sync::Notify,
    time::{Duration, Instant, timeout_at},
};

use crate::{config::RedisConfig, store::Unavailability};

use super::{ear::Ear, link::Link, route::Route, run::RunId};

/// The pool of one server's connections.
pub(super) struct Pool {
    connections: bb8::Pool<Manager>,
    route: Route,
    news: Arc<News>,
}

struct Manager {
    route: Route,
    news: Arc<News>,
}

/// What came of connecting.
#[derive(Default)]
struct News {
    connected: Notify,
    /// Why the last connection could not be made, if it could not.
    trouble: Mutex<Option<String>>,
    /// To which run of which server the last one led, if that was asked.
    run: Mutex<Option<RunId>>,
}

/// What the pool keeps. A failed connect is kept too, for the one who asked for it: the pool itself
/// would keep the reason and let the caller wait until the time is over.
enum Place {
    Up(Link),
    Down(Instant, Unavailability),
}

/// How much longer than one connect the pool lets a caller wait, so that the caller hears the
/// reason.
const GRACE: Duration = Duration::from_millis(100);

// === impl Pool ===

impl Pool {
    pub(super) fn new(route: Route, config: &RedisConfig) -> Self {
        let longest = route.longest_connect();
        let news = Arc::new(News::default());
        let manager = Manager {
            route: route.clone(),
            news: Arc::clone(&news),
        };
        let size = config.connections.max(1);
        let connections = bb8::Pool::builder()
            .max_size(size)
            .min_idle(size)
            // It would double the round trips. `has_broken` knows.
            .test_on_check_out(false)
            .retry_connection(false)
            .max_lifetime(None)
            .idle_timeout(None)
            .connection_timeout(longest + GRACE)
            .build_unchecked(manager);
        Self {
            connections,
            route,
            news,
        }
    }

    /// A connection that was whole a moment ago.
    pub(super) async fn link(&self, limit: Instant) -> Result<Link, Unavailability> {
        let asked = Instant::now();
        loop {
            let Ok(Ok(place)) = timeout_at(limit, self.connections.get()).await else {
                let reason = "no connection was made in time".to_owned();
                return Err(Unavailability::Connect(reason));
            };
            match &*place {
                // The name leads to another server by now: all that is asked is asked of one.
                Place::Up(link) if !self.leads_to(link) => link.retire(),
                Place::Up(link) if !link.is_broken() => return Ok(link.clone()),
                Place::Down(at, reason) if *at >= asked => return Err(reason.clone()),
                // Broken, or failed for somebody else some time ago: the pool drops it and connects
                // anew.
                Place::Up(_) | Place::Down(..) => {}
            }
        }
    }

    /// How many connections are open.
    pub(super) fn open(&self) -> u32 {
        self.connections.state().connections
    }

    /// Ends when a new connection has been made.
    pub(super) async fn connected(&self) {
        self.news.connected.notified().await;
    }

    /// Why the last connection could not be made, if it could not.
    pub(super) fn trouble(&self) -> Option<String> {
        self.news.trouble().clone()
    }

    /// Whether the last connection could not be made.
    pub(super) fn is_in_trouble(&self) -> bool {
        self.news.trouble().is_some()
    }

    /// A connection outside the pool that listens to channels.
    pub(super) async fn subscribe(&self, channels: &[&str]) -> Result<Ear, Unavailability> {
        self.route.subscribe(channels).await
    }

    /// A connection outside the pool, for commands that keep others waiting.
    pub(super) async fn dedicated(&self) -> Result<Link, Unavailability> {
        let link = self.route.connect().await?;
        self.news.note(&link);
        Ok(link)
    }

    /// Whether a connection leads to the run of the server to which the last one led.
    pub(super) fn leads_to(&self, link: &Link) -> bool {
        link.run()
            .is_none_or(|run| self.news.run().as_ref() == Some(run))
    }

    /// Gives the server up: from now on nothing is sent to it, and every connection ends.
    pub(super) fn cut(&self) {
        self.route.cut();
    }

    pub(super) async fn close(&self) {
        self.route.close().await;
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

// === impl News ===

impl News {
    /// A connection was made.
    fn note(&self, link: &Link) {
        if let Some(run) = link.run() {
            *self.run() = Some(run.clone());
        }
    }

    fn run(&self) -> std::sync::MutexGuard<'_, Option<RunId>> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trouble(&self) -> std::sync::MutexGuard<'_, Option<String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Manager ===

impl bb8::ManageConnection for Manager {
    type Connection = Place;
    type Error = Infallible;

    async fn connect(&self) -> Result<Place, Infallible> {
        Ok(match self.route.connect().await {
            Ok(link) => {
                *self.news.trouble() = None;
                self.news.note(&link);
                self.news.connected.notify_one();
                Place::Up(link)
            }
            Err(reason) => {
                *self.news.trouble() = Some(reason.to_string());
                Place::Down(Instant::now(), reason)
            }
        })
    }

    async fn is_valid(&self, _place: &mut Place) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, place: &mut Place) -> bool {
        match place {
            Place::Up(link) => link.is_broken(),
            Place::Down(..) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::{
        super::{credentials::Credentials, link::Endpoint},
        *,
    };
    use crate::{
        config::{RedisLogin, RedisNode},
        lifecycle::Lifecycle,
    };

    #[tokio::test]
    async fn a_failure_of_some_time_ago_is_not_told_to_the_next_caller() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let config = RedisConfig::default();
        let node = RedisNode::new("127.0.0.1", address.port());
        let credentials = Credentials::of_redis(&RedisLogin::default(), &config);
        let connect_timeout = config.connect_timeout_ms.duration();
        let endpoint = Endpoint::new(node, Arc::new(credentials), connect_timeout);
        let pool = Pool::new(Route::to(endpoint), &config);
        let limit = Instant::now() + Duration::from_secs(20);
        let refused = pool.link(limit).await.err();
        assert!(
            matches!(refused, Some(Unavailability::Connect(_))),
            "{refused:?}"
        );
        // The pool connects again by itself, in vain, and keeps the failures.
        while pool.connections.state().idle_connections < 2 {
            tokio::task::yield_now().await;
        }

        let listener = TcpListener::bind(address).await.unwrap();
        let lifecycle = Lifecycle::new();
        lifecycle.spawn(async move {
            let mut clients = Vec::new();
            while let Ok((mut client, _)) = listener.accept().await {
                drop(client.read(&mut [0; 64]).await);
                drop(client.write_all(b"+PONG\r\n").await);
                clients.push(client);
            }
        });
        pool.link(limit).await.map(drop).expect("the server is up");
    }
}

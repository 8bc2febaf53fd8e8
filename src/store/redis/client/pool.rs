//! The connections to one server, or to whichever is the master.
//!
//! bb8 keeps, dials and checks them. Requests share them, and their commands travel together, so that a
//! request takes none out: it reads a snapshot of the connections that are live, and comes to bb8 only when it
//! finds one broken or none at all.

use std::{
    convert::Infallible,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use arc_swap::ArcSwap;
use bb8_redis::bb8;
use tokio::{
    sync::Notify,
    time::{Duration, Instant, timeout_at},
};

use crate::{config::RedisConfig, store::Unavailability};

use super::{connection::Link, endpoint::Ear, route::Route, run::RunId};

/// The connections to one server.
pub(crate) struct Pool {
    connections: bb8::Pool<Manager>,
    route: Route,
    known: Arc<Known>,
    /// Which connection of the snapshot is used next.
    turn: AtomicUsize,
}

struct Manager {
    route: Route,
    known: Arc<Known>,
}

/// What came of connecting.
#[derive(Default)]
struct Known {
    /// The connections that bb8 has: each from when it was made until bb8 finds it broken.
    live: ArcSwap<Vec<Link>>,
    connected: Notify,
    /// Why the last connection could not be made, if it could not.
    trouble: Mutex<Option<String>>,
    /// To which run of which server the last one led, if that was asked.
    run: Mutex<Option<RunId>>,
}

/// What the pool keeps. A failed connect is kept too, for the one who asked for it: the pool itself
/// would keep the reason and let the caller wait until the time is over.
enum Dialled {
    Up(Link),
    Down(Instant, Unavailability),
}

/// How much longer than one connect the pool lets a caller wait, so that the caller hears the
/// reason.
const GRACE: Duration = Duration::from_millis(100);

// === impl Pool ===

impl Pool {
    pub(crate) fn new(route: Route, config: &RedisConfig) -> Self {
        let longest = route.longest_connect();
        let known = Arc::new(Known::default());
        let manager = Manager {
            route: route.clone(),
            known: Arc::clone(&known),
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
            known,
            turn: AtomicUsize::new(0),
        }
    }

    /// A connection that was whole a moment ago.
    pub(crate) async fn link(&self, limit: Instant) -> Result<Link, Unavailability> {
        match self.live() {
            Some(link) => Ok(link),
            None => self.checked_out(limit).await,
        }
    }

    /// The next connection of the snapshot, if it is whole.
    fn live(&self) -> Option<Link> {
        let live = self.known.live.load();
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let link = live.get(turn.checked_rem(live.len())?)?;
        (!link.is_broken()).then(|| link.clone())
    }

    /// One that bb8 has, or makes. It drops those that it finds broken, and replaces them.
    async fn checked_out(&self, limit: Instant) -> Result<Link, Unavailability> {
        let asked = Instant::now();
        loop {
            let Ok(Ok(dialled)) = timeout_at(limit, self.connections.get()).await else {
                let reason = "no connection was made in time".to_owned();
                return Err(Unavailability::Connect(reason));
            };
            match &*dialled {
                Dialled::Up(link) if !link.is_broken() => return Ok(link.clone()),
                Dialled::Down(at, reason) if *at >= asked => return Err(reason.clone()),
                // Broken, or failed for somebody else some time ago.
                Dialled::Up(_) | Dialled::Down(..) => {}
            }
        }
    }

    /// How many connections are open.
    pub(crate) fn open(&self) -> u32 {
        self.connections.state().connections
    }

    /// Ends when a new connection has been made.
    pub(crate) async fn connected(&self) {
        self.known.connected.notified().await;
    }

    /// Why the last connection could not be made, if it could not.
    pub(crate) fn trouble(&self) -> Option<String> {
        self.known.trouble().clone()
    }

    /// Whether the last connection could not be made.
    pub(crate) fn is_in_trouble(&self) -> bool {
        self.known.trouble().is_some()
    }

    /// A connection outside the pool that listens to channels.
    pub(crate) async fn subscribe(&self, channels: &[&str]) -> Result<Ear, Unavailability> {
        self.route.subscribe(channels).await
    }

    /// A connection outside the pool, for commands that keep others waiting.
    pub(crate) async fn dedicated(&self) -> Result<Link, Unavailability> {
        let link = self.route.connect().await?;
        self.known.leads_on(&link, &mut self.known.run());
        Ok(link)
    }

    /// Whether a connection leads to the run of the server to which the last one led.
    pub(crate) fn leads_to(&self, link: &Link) -> bool {
        link.run()
            .is_none_or(|run| self.known.run().as_ref() == Some(run))
    }

    /// Gives the server up: from now on nothing is sent to it, and every connection ends.
    pub(crate) fn cut(&self) {
        self.route.cut();
    }

    pub(crate) async fn close(&self) {
        self.route.close().await;
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}

// === impl Known ===

impl Known {
    /// A connection was made for bb8 to keep.
    fn add(&self, link: &Link) {
        *self.trouble() = None;
        let mut last = self.run();
        self.live.rcu(|live| {
            let mut live = Vec::clone(live);
            live.push(link.clone());
            live
        });
        self.leads_on(link, &mut last);
        drop(last);
        self.connected.notify_one();
    }

    /// bb8 drops a connection.
    fn remove(&self, link: &Link) {
        self.live.rcu(|live| {
            let others = live.iter().filter(|it| !it.is(link));
            others.cloned().collect::<Vec<_>>()
        });
    }

    /// Takes note of the run that a new connection leads to. If it is another one than before, the name leads
    /// to another server by now, and those before are retired: all that is asked is asked of one.
    fn leads_on(&self, link: &Link, last: &mut Option<RunId>) {
        let Some(run) = link.run().filter(|&run| last.as_ref() != Some(run)) else {
            return;
        };
        *last = Some(run.clone());
        for other in self.live.load().iter() {
            if other.run().is_some_and(|other| other != run) {
                other.retire();
            }
        }
    }

    fn run(&self) -> MutexGuard<'_, Option<RunId>> {
        self.run.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trouble(&self) -> MutexGuard<'_, Option<String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Manager ===

impl bb8::ManageConnection for Manager {
    type Connection = Dialled;
    type Error = Infallible;

    async fn connect(&self) -> Result<Dialled, Infallible> {
        Ok(match self.route.connect().await {
            Ok(link) => {
                self.known.add(&link);
                Dialled::Up(link)
            }
            Err(reason) => {
                *self.known.trouble() = Some(reason.to_string());
                Dialled::Down(Instant::now(), reason)
            }
        })
    }

    async fn is_valid(&self, _dialled: &mut Dialled) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, dialled: &mut Dialled) -> bool {
        match dialled {
            Dialled::Up(link) => {
                let is_broken = link.is_broken();
                if is_broken {
                    self.known.remove(link);
                }
                is_broken
            }
            Dialled::Down(..) => true,
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
        super::{credentials::Credentials, endpoint::Endpoint},
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

//! The pool of connections to one server, or to the current master.
//!
//! bb8 opens, keeps and replaces the connections. Requests share them, and the commands of many requests travel
//! together. So a request checks no connection out: it reads a snapshot of the live connections, and asks bb8 only if
//! the connection that it finds is broken, or if there is none. The connections are spread over the threads that
//! answer requests, and a request prefers a connection of its own thread: then its command and its reply wake no
//! other thread.

use std::{
    convert::Infallible,
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use arc_swap::ArcSwap;
use bb8_redis::bb8;
use parking_lot::Mutex;
use tokio::{
    sync::Notify,
    time::{Duration, Instant, sleep, timeout_at},
};

use crate::{
    config::{RedisConfig, ServersUrl},
    lifecycle::{Worker, Workers},
    store::Unavailability,
};

use super::{
    connection::Connection,
    credentials::Credentials,
    endpoint::{Endpoint, PubSubConnection},
    sentinels::FollowedMaster,
};

/// The pool of connections to one server, or to the current master.
pub(crate) struct Pool {
    connections: bb8::Pool<Manager>,
    /// Opens connections to the server, including connections outside the pool.
    pub(crate) route: Route,
    state: Arc<PoolState>,
    /// Counter that selects the next connection of the snapshot of live connections.
    turn: AtomicUsize,
}

struct Manager {
    route: Route,
    state: Arc<PoolState>,
    workers: Workers,
    /// How many connections each worker is opening now, by worker number.
    making: Mutex<Vec<usize>>,
}

/// The live connections, each with the worker that runs it. A connection stays in the list until bb8 finds it broken.
type Live = Vec<(Option<Worker>, Connection)>;

/// State that the pool and its manager share: the live connections, and the last connect error.
#[derive(Default)]
struct PoolState {
    live: ArcSwap<Live>,
    connected: Notify,
    /// Error of the last connect; `None` if the connect succeeded.
    last_error: Mutex<Option<String>>,
}

/// An entry of the pool: a connection, or a failed connect with its time. A failed connect is an entry too, so that its
/// caller gets the reason at once: bb8 itself would keep the reason and let the caller wait until the time is over.
type Dialled = Result<Connection, (Instant, Unavailability)>;

/// How much longer than one connect bb8 lets a caller wait, so that the caller gets the connect error and no
/// time-out.
const GRACE: Duration = Duration::from_millis(100);

/// How often the pool checks whether the address still leads to the same server, if no connection is lost.
const ADDRESS_CHECK: Duration = Duration::from_secs(2);

// === impl Pool ===

impl Pool {
    pub(crate) fn new(route: Route, config: &RedisConfig, workers: &Workers) -> Self {
        let longest = route.longest_connect();
        let state = Arc::new(PoolState::default());
        let manager = Manager {
            route: route.clone(),
            state: Arc::clone(&state),
            workers: workers.clone(),
            making: Mutex::new(vec![0; workers.count()]),
        };
        let size = match config.connections {
            0 => u32::try_from(workers.count()).unwrap_or(u32::MAX).max(1),
            size => size,
        };
        let connections = bb8::Pool::builder()
            .max_size(size)
            .min_idle(size)
            // bb8's test at each check-out would double the round trips; `has_broken` finds broken connections without
            // a round trip.
            .test_on_check_out(false)
            .retry_connection(false)
            .max_lifetime(None)
            .idle_timeout(None)
            .connection_timeout(longest + GRACE)
            .build_unchecked(manager);
        Self {
            connections,
            route,
            state,
            turn: AtomicUsize::new(0),
        }
    }

    /// Returns a connection that was not broken a moment ago.
    pub(crate) async fn connection(&self, limit: Instant) -> Result<Connection, Unavailability> {
        match self.live() {
            Some(connection) => Ok(connection),
            None => self.check_out(limit).await,
        }
    }

    /// The next live connection of this thread, or of any thread if this thread has none. `None` if that connection is
    /// broken.
    fn live(&self) -> Option<Connection> {
        let live = self.state.live.load();
        let here = Worker::current();
        let is_own = |home: Option<Worker>| here.is_some() && home == here;
        let own = live.iter().filter(|(home, _)| is_own(*home)).count();
        let turn = match if own > 0 { own } else { live.len() } {
            0 | 1 => 0,
            count => self.turn.fetch_add(1, Ordering::Relaxed) % count,
        };
        let mut usable = live.iter().filter(|(home, _)| own == 0 || is_own(*home));
        let (_, connection) = usable.nth(turn)?;
        (!connection.is_broken()).then(|| connection.clone())
    }

    /// Gets a connection from bb8, which replaces broken connections by new ones.
    async fn check_out(&self, limit: Instant) -> Result<Connection, Unavailability> {
        let asked = Instant::now();
        loop {
            let Ok(Ok(dialled)) = timeout_at(limit, self.connections.get()).await else {
                let reason = "no connection was made in time".to_owned();
                return Err(Unavailability::Connect(reason));
            };
            match &*dialled {
                Ok(connection) if !connection.is_broken() => return Ok(connection.clone()),
                Err((at, reason)) if *at >= asked => return Err(reason.clone()),
                // The connection is broken, or the entry is a connect that failed before this call: bb8 drops the entry
                // and connects again.
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// How many connections of the pool are open.
    pub(crate) fn open(&self) -> u32 {
        self.connections.state().connections
    }

    /// Waits until the pool has opened a new connection.
    pub(crate) async fn wait_connected(&self) {
        self.state.connected.notified().await;
    }

    /// Error of the last connect; `None` if the connect succeeded.
    pub(crate) fn last_error(&self) -> Option<String> {
        self.state.last_error.lock().clone()
    }

    /// Checks repeatedly whether the address still leads to the same server: every two seconds, and when a connection
    /// was lost, which may be the only sign of a change. Each check opens a new connection. If that leads to another
    /// server, all other connections are closed.
    pub(crate) async fn watch_address(&self) {
        loop {
            let endpoint = self.route.endpoint();
            let lost = async {
                match &endpoint {
                    Some(endpoint) => endpoint.lost.notified().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = sleep(ADDRESS_CHECK) => {}
                () = lost => {}
            }
            // An error of the check is ignored: while no new connection can be opened, the open connections remain in
            // use.
            drop(self.route.connect().await);
        }
    }
}

// === impl Manager ===

impl Manager {
    /// Selects the worker with the fewest connections, open or being opened, and counts a further connection for this
    /// worker. `None` if there are no workers.
    fn next_worker(&self) -> Option<Worker> {
        // The count of connections being opened is locked before the live connections are read: a connection may then
        // be counted twice, but is never missed.
        let mut making = self.making.lock();
        let live = self.state.live.load();
        let worker = self.workers.all().min_by_key(|worker| {
            let moved = live.iter().filter(|(home, _)| *home == Some(*worker));
            moved.count() + making[worker.number()]
        })?;
        making[worker.number()] += 1;
        Some(worker)
    }

    /// Connects on a worker, because the thread that connects also runs the connection's driver.
    async fn connect_on(&self, worker: Option<Worker>) -> Result<Connection, Unavailability> {
        let route = self.route.clone();
        let connecting = async move { route.connect().await };
        let Some(worker) = worker else {
            return connecting.await;
        };
        let connected = self.workers.carry_out(worker, connecting).await;
        let ended = || Unavailability::Connect("the gateway has ended".to_owned());
        connected.unwrap_or_else(|| Err(ended()))
    }
}

impl bb8::ManageConnection for Manager {
    type Connection = Dialled;
    type Error = Infallible;

    async fn connect(&self) -> Result<Dialled, Infallible> {
        let worker = self.next_worker();
        let connected = self.connect_on(worker).await;
        *self.state.last_error.lock() = connected.as_ref().err().map(ToString::to_string);
        if let Ok(connection) = &connected {
            self.state
                .change_live(|live| live.push((worker, connection.clone())));
            self.state.connected.notify_one();
        }
        if let Some(worker) = worker {
            self.making.lock()[worker.number()] -= 1;
        }
        Ok(connected.map_err(|reason| (Instant::now(), reason)))
    }

    async fn is_valid(&self, _dialled: &mut Dialled) -> Result<(), Infallible> {
        Ok(())
    }

    fn has_broken(&self, dialled: &mut Dialled) -> bool {
        let Ok(connection) = dialled else {
            return true;
        };
        let is_broken = connection.is_broken();
        if is_broken {
            self.state
                .change_live(|live| live.retain(|(_, it)| !it.is(connection)));
        }
        is_broken
    }
}

// === impl PoolState ===

impl PoolState {
    fn change_live(&self, change: impl Fn(&mut Live)) {
        self.live.rcu(|live| {
            let mut live = Live::clone(live);
            change(&mut live);
            live
        });
    }
}

// === Route ===

/// Which server new connections of a pool lead to.
#[derive(Clone)]
pub(crate) enum Route {
    /// New connections always lead to this server.
    Fixed(Arc<Endpoint>),
    /// New connections lead to the server that is the master when they are opened.
    Followed(Arc<FollowedMaster>),
}

// === impl Route ===

impl Route {
    pub(crate) fn to(endpoint: Endpoint) -> Self {
        Self::Fixed(Arc::new(endpoint))
    }

    pub(crate) fn to_one(url: &ServersUrl, config: &RedisConfig) -> Self {
        let credentials = Arc::new(Credentials::of_redis(&url.login(), config));
        let connect_timeout = config.connect_timeout_ms.duration();
        let endpoint = Endpoint::new(url.node(), credentials, connect_timeout);
        Self::to(endpoint)
    }

    /// Maximum time until a connect to the server succeeds or fails.
    fn longest_connect(&self) -> Duration {
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

    /// Opens a separate connection to the server that is subscribed to channels.
    pub(crate) async fn subscribe(
        &self,
        channels: &[&str],
    ) -> Result<PubSubConnection, Unavailability> {
        match self {
            Self::Fixed(endpoint) => endpoint.subscribe(channels).await,
            Self::Followed(followed) => followed.subscribe(channels).await,
        }
    }

    /// Reports that a subscribed connection was lost, so that the address is checked at once.
    pub(crate) fn note_lost_connection(&self) {
        if let Some(endpoint) = self.endpoint() {
            endpoint.lost.notify_one();
        }
    }

    /// The endpoint of the server that new connections lead to now, if the server is known.
    pub(crate) fn endpoint(&self) -> Option<Arc<Endpoint>> {
        match self {
            Self::Fixed(endpoint) => Some(Arc::clone(endpoint)),
            Self::Followed(followed) => followed.current_endpoint(),
        }
    }

    /// The followed master, if sentinels are used.
    pub(crate) fn followed(&self) -> Option<&Arc<FollowedMaster>> {
        match self {
            Self::Fixed(_) => None,
            Self::Followed(followed) => Some(followed),
        }
    }

    /// Examines a fixed server again before it is used, because it says that it is no node of the cluster.
    pub(crate) fn doubt(&self) {
        if let Self::Fixed(endpoint) = self {
            endpoint.doubt();
        }
    }

    /// Disconnects from a fixed server. A followed master is disconnected by `FollowedMaster` itself.
    pub(crate) fn disconnect(&self) {
        if let Self::Fixed(endpoint) = self {
            endpoint.disconnect();
        }
    }

    /// Closes every connection to the server, even those that are still in use.
    pub(crate) async fn close(&self) {
        match self {
            Self::Fixed(endpoint) => endpoint.close().await,
            Self::Followed(followed) => followed.close().await,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;
    use crate::{config::StoreUrl, lifecycle::Lifecycle};

    pub(crate) fn pool_at(port: u16, config: &RedisConfig) -> Pool {
        let url = format!("redis://127.0.0.1:{port}").parse::<StoreUrl>();
        let route = Route::to_one(url.unwrap().servers().unwrap(), config);
        Pool::new(route, config, &Workers::default())
    }

    #[tokio::test]
    async fn a_failure_of_some_time_ago_is_not_told_to_the_next_caller() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let config = RedisConfig {
            connections: 2,
            ..RedisConfig::default()
        };
        let pool = pool_at(address.port(), &config);
        let limit = Instant::now() + Duration::from_secs(20);
        let refused = pool.connection(limit).await.err();
        assert!(
            matches!(refused, Some(Unavailability::Connect(_))),
            "{refused:?}"
        );
        // The pool connects again, without success, and keeps each failure as an idle entry.
        while pool.connections.state().idle_connections < 2 {
            tokio::task::yield_now().await;
        }

        let listener = TcpListener::bind(address).await.unwrap();
        let lifecycle = Lifecycle::new();
        lifecycle.spawn(async move {
            let mut clients = Vec::new();
            while let Ok((mut client, _)) = listener.accept().await {
                drop(client.read(&mut [0; 64]).await);
                drop(client.write_all(b"+PONG\r\n$-1\r\n").await);
                clients.push(client);
            }
        });
        pool.connection(limit)
            .await
            .map(drop)
            .expect("the server is up");
    }
}

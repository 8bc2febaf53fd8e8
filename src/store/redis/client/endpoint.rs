//! Opens connections to one server: connects, negotiates TLS if it is configured, logs in, and subscribes to
//! channels.

use std::{
    io,
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use bb8_redis::redis::{
    RedisConnectionInfo, RedisError, ServerError, Value,
    aio::{PubSub, PubSubSink},
};
use bytes::BytesMut;
use futures_util::{Stream, StreamExt, future::join_all};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Notify,
    task::spawn_blocking,
    time::{Duration, Instant, sleep, timeout},
};
use tokio_rustls::client::TlsStream;
use tokio_util::{either::Either, sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use crate::{
    config::{RedisLogin, RedisNode},
    store::Unavailability,
    tls::distrust,
};

use super::{
    cluster::BelievedRoster,
    connection::{Connection, ConnectionShared, Driver, answered},
    credentials::{Credentials, LoadedCredentials, server_name},
    failure::{Failure, tells_of_too_many_clients},
    identity::{Identity, Reached, Run},
    resp::Replies,
    script::Command,
};

/// The address of one server, and the connections that were opened to it.
pub(crate) struct Endpoint {
    node: RedisNode,
    credentials: Arc<Credentials>,
    connect_timeout: Duration,
    /// Whether all connections must lead to the same run of one server. If so, each connection first asks the server
    /// for its run.
    one_server: bool,
    /// The nodes of the cluster, if the server must be one of them.
    cluster: Option<Arc<BelievedRoster>>,
    identity: Identity,
    /// How often the server was started again, and how often the address led to another server.
    restarts: AtomicU64,
    moves: AtomicU64,
    /// Notified when a connection to the server was lost.
    pub(super) lost: Arc<Notify>,
    /// The connections to the server that are open.
    open_connections: Mutex<Vec<Weak<ConnectionShared>>>,
    /// The driver tasks, one for each connection. The driver tasks outlive all other tasks, because undelivered leases
    /// are released at the very end; closing the store ends them.
    drivers: TaskTracker,
    closing: CancellationToken,
}

/// The byte stream of a connection, with or without TLS.
type Wire = Either<TcpStream, Box<TlsStream<TcpStream>>>;

// === impl Endpoint ===

impl Endpoint {
    pub(crate) fn new(
        node: RedisNode,
        credentials: Arc<Credentials>,
        connect_timeout: Duration,
    ) -> Self {
        let closing = CancellationToken::new();
        Self {
            node,
            credentials,
            connect_timeout,
            one_server: true,
            cluster: None,
            identity: Identity::new(closing.child_token()),
            restarts: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            lost: Arc::default(),
            open_connections: Mutex::default(),
            drivers: TaskTracker::new(),
            closing,
        }
    }

    /// The same endpoint, but its connections may lead to different servers.
    pub(crate) fn for_any_server(self) -> Self {
        Self {
            one_server: false,
            ..self
        }
    }

    /// The same endpoint, but a server is used only if it is a node of this cluster.
    pub(super) fn of_cluster(self, roster: Arc<BelievedRoster>) -> Self {
        Self {
            cluster: Some(roster),
            ..self
        }
    }

    /// Address of the server to which the endpoint connects.
    pub(crate) fn node(&self) -> &RedisNode {
        &self.node
    }

    /// How long connecting to the server may take.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    pub(crate) async fn connect(&self) -> Result<Connection, Unavailability> {
        let open = async {
            let (wire, run, connections) = self.reach().await?;
            let shared = Arc::new(ConnectionShared::default());
            self.drive(&shared, wire, &connections);
            Ok(Connection::new(shared, run))
        };
        self.in_time(open).await
    }

    /// How often the server was started again, and how often the address led to another server.
    pub(crate) fn replacements(&self) -> (u64, u64) {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        (count(&self.restarts), count(&self.moves))
    }

    /// Readiness warning about which servers the address leads to, which applies although connections can be opened.
    pub(crate) fn warning(&self) -> Option<&'static str> {
        self.identity.warning()
    }

    /// Waits for a connect, but at most until the connect timeout has passed or the endpoint is disconnected.
    async fn in_time<T>(
        &self,
        connecting: impl Future<Output = Result<T, Unavailability>>,
    ) -> Result<T, Unavailability> {
        tokio::select! {
            biased;
            () = self.closing.cancelled() => {
                let reason = "the server is not used any more".to_owned();
                Err(Unavailability::Connect(reason))
            }
            connected = timeout(self.connect_timeout, connecting) => {
                connected.unwrap_or_else(|_elapsed| Err(self.too_slow()))
            }
        }
    }

    fn too_slow(&self) -> Unavailability {
        let ms = self.connect_timeout.as_millis();
        let tls = if self.credentials.is_tls() {
            "TLS "
        } else {
            ""
        };
        Unavailability::Connect(format!("no {tls}connection within {ms} ms"))
    }

    /// Opens a connection to the same run of the server as all other connections. Also returns the token that is
    /// cancelled when those connections are closed.
    async fn reach(&self) -> Result<(Wire, Run, CancellationToken), Unavailability> {
        loop {
            self.settle().await?;
            let connections = self.identity.connections();
            let (wire, run) = self.dial().await?;
            let next = || self.closing.child_token();
            match self.identity.note(&run, &connections, next) {
                Reached::Same(connections) => return Ok((wire, run, connections)),
                Reached::Outdated => {}
                Reached::Another { moved } => {
                    self.close_connections();
                    let node = &self.node;
                    let count = if moved { &self.moves } else { &self.restarts };
                    count.fetch_add(1, Ordering::Relaxed);
                    if moved {
                        warn!(%node, "the address leads to another server than before: all \
                                      connections are made again, and this server knows no \
                                      lock of the previous one");
                    } else {
                        info!(%node, "the server was started again, or its address leads to \
                                      another server");
                    }
                }
            }
        }
    }

    /// Closes all connections and examines the server again, because the server says that it is no node of the cluster.
    pub(super) fn doubt(&self) {
        if self.identity.put_in_doubt(|| self.closing.child_token()) {
            let node = &self.node;
            warn!(%node, "the server is not a node of the cluster any more: all connections are closed");
            self.close_connections();
        }
    }

    /// Opens several connections to find out which server the address leads to, if that is in doubt.
    async fn settle(&self) -> Result<(), Unavailability> {
        let _turn = self.identity.turn.lock().await;
        if let Some(connections) = self.identity.doubt()? {
            let dialled = join_all((0..connections).map(|_| self.dial())).await;
            // All of these connections stay open until now, so that a proxy spreads the connections over all of its
            // servers.
            let runs = dialled.into_iter().map(|it| Ok(it?.1)).collect();
            if self.identity.settle(runs) {
                let node = &self.node;
                warn!(%node, "the address leads to several servers in turn: no lock is granted there");
            }
            self.identity.doubt()?;
        }
        Ok(())
    }

    /// Connects, logs in, and waits for the replies of the server before any command with an effect is sent: a server
    /// that is frozen, full or protected accepts a connection all the same.
    async fn dial(&self) -> Result<(Wire, Run), Unavailability> {
        let failed = |error: io::Error| Unavailability::Connect(error.to_string());
        let credentials = Arc::clone(&self.credentials);
        let loaded = spawn_blocking(move || credentials.current()).await;
        // The blocking task that reads the credentials fails only when the runtime ends.
        let loaded = loaded.map_err(|stopped| Unavailability::Connect(stopped.to_string()))?;
        let LoadedCredentials { login, tls } =
            loaded.map_err(|error| Unavailability::Misconfigured(error.to_string()))?;
        let stream = TcpStream::connect((self.node.host(), self.node.port()))
            .await
            .map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let mut wire = match tls {
            None => Either::Left(stream),
            Some(connector) => {
                let name = server_name(&self.node)
                    .map_err(|error| Unavailability::Misconfigured(error.to_string()))?;
                let encrypted = connector.connect(name, stream).await;
                Either::Right(Box::new(encrypted.map_err(|error| no_tls(&error))?))
            }
        };
        let run = self.greet(&mut wire, &login).await?;
        Ok((wire, run))
    }

    async fn greet(&self, wire: &mut Wire, login: &RedisLogin) -> Result<Run, Unavailability> {
        let cluster = self.cluster.as_ref();
        let cluster = cluster.filter(|_| !self.identity.is_certain());
        // The time is taken before the reply comes, so that the round trip counts as uptime.
        let asked = Instant::now();
        let mut greeting = Vec::new();
        for command in self.greeting(login) {
            command.write_to(&mut greeting);
        }
        if cluster.is_some() {
            Command::new("CLUSTER")
                .with("SLOTS")
                .write_to(&mut greeting);
        }
        // A write error is ignored: a server that is full may say so and close before it reads anything.
        let _sent = wire.write_all(&greeting).await.and(wire.flush().await);
        let (mut replies, mut input) = (Replies::default(), BytesMut::new());
        // The replies are read one by one: a server that refuses a client says so once, whatever the client sent, and
        // closes.
        let mut next = async || loop {
            match replies.next(&mut input) {
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) if matches!(wire.read_buf(&mut input).await, Ok(1..)) => {}
                Ok(None) | Err(_) => return Err(self.closed()),
            }
        };
        if login.password.is_some() {
            judge_login(next().await?)?;
        }
        if login.database != 0 {
            judge_database(login.database, next().await?)?;
        }
        judge_greeting(next().await?)?;
        if !self.one_server {
            return Ok(Run::default());
        }
        let run = match next().await? {
            Value::BulkString(info) => Run::read(&String::from_utf8_lossy(&info), asked),
            // If the user may not send INFO, the run is unknown. If the server cannot answer at the moment, this
            // connection fails, so that the next connection asks again.
            Value::ServerError(error) => match answered(&error) {
                Failure::Transient(why) => return Err(why),
                _ => Run::default(),
            },
            _ => Run::default(),
        };
        if let Some(cluster) = cluster {
            cluster.admit(&next().await?, &self.node)?;
        }
        Ok(run)
    }

    /// The commands that are sent first on a connection, all at once.
    fn greeting(&self, login: &RedisLogin) -> Vec<Command> {
        let mut commands = Vec::new();
        if let Some(password) = &login.password {
            let named = Command::new("AUTH").with(login.username.as_deref());
            commands.push(named.with(password));
        }
        if login.database != 0 {
            commands.push(Command::new("SELECT").with(login.database));
        }
        commands.push(Command::new("PING"));
        if self.one_server {
            commands.push(Command::new("INFO").with("server"));
        }
        commands
    }

    /// Starts the driver task of a connection.
    fn drive(&self, shared: &Arc<ConnectionShared>, stream: Wire, connections: &CancellationToken) {
        let mut open_connections = self.open_connections.lock();
        open_connections.retain(|shared| shared.strong_count() > 0);
        open_connections.push(Arc::downgrade(shared));
        drop(open_connections);
        // The connections may have been closed before this connection was listed, which would then stay open.
        if connections.is_cancelled() {
            shared.close();
        }
        let (shared, lost) = (Arc::clone(shared), Arc::clone(&self.lost));
        self.drivers.spawn(async move {
            Driver::new(Arc::clone(&shared), stream).run().await;
            if !shared.is_closed() {
                lost.notify_one();
            }
        });
    }

    /// Opens a separate connection to the server that is subscribed to channels.
    pub(crate) async fn subscribe(
        &self,
        channels: &[&str],
    ) -> Result<PubSubConnection, Unavailability> {
        let open = async {
            let (wire, _run, disconnected) = self.reach().await?;
            // The stream is logged in already, so the library needs no login.
            let subscription = PubSub::new(&RedisConnectionInfo::default(), wire).await;
            let mut connection = subscription.map_err(|error| refused(&error))?;
            let subscribed = connection.subscribe(channels).await;
            subscribed.map_err(|error| refused(&error))?;
            Ok(PubSubConnection {
                connection,
                disconnected,
            })
        };
        self.in_time(open).await
    }

    /// The error for a connection that ended before the server replied. A server that requires a client certificate
    /// may close the connection like this, after TLS has begun.
    fn closed(&self) -> Unavailability {
        let hint = if self.credentials.shows_no_certificate() {
            "; it may want a certificate, which redis.tls.cert_file names"
        } else {
            ""
        };
        Unavailability::Connect(format!("the server closed the connection{hint}"))
    }

    /// Stops using the server: nothing more is sent to it, and every connection ends.
    pub(crate) fn disconnect(&self) {
        self.closing.cancel();
        self.close_connections();
    }

    fn close_connections(&self) {
        let open_connections = self.open_connections.lock();
        for shared in open_connections.iter().filter_map(Weak::upgrade) {
            shared.close();
        }
    }

    /// Closes every connection to the server, even those that are still in use.
    pub(crate) async fn close(&self) {
        self.disconnect();
        self.drivers.close();
        self.drivers.wait().await;
    }
}

// === Login ===
//
// Judges the replies to the first commands on a connection, and names the reason if the login failed.

/// Why the server refuses and closes the connection: the server has too many clients, or is in protected mode. `None`
/// for any other error.
fn turned_away(error: &ServerError) -> Option<Unavailability> {
    let is_full = error.details().is_some_and(tells_of_too_many_clients);
    (is_full || error.code() == "DENIED").then(|| answered(error).reason())
}

/// Judges the reply to AUTH. The text of an error may repeat the password, so none of it is passed on.
fn judge_login(reply: Value) -> Result<(), Unavailability> {
    let why = match reply {
        Value::Okay => return Ok(()),
        Value::ServerError(error) => turned_away(&error),
        _ => None,
    };
    let wrong = "the server refuses the user or the password";
    Err(why.unwrap_or_else(|| Unavailability::Misconfigured(wrong.to_owned())))
}

fn judge_database(database: u16, reply: Value) -> Result<(), Unavailability> {
    let Value::ServerError(error) = reply else {
        return Ok(());
    };
    if let Some(why) = turned_away(&error) {
        return Err(why);
    }
    let detail = error.details().unwrap_or_default();
    // A cluster replies with the second text for any database but 0; the first is the text of a single server.
    let has_none = detail.contains("DB index") || detail.contains("SELECT is not allowed");
    let why = if has_none {
        format!(
            "the server has no database {database}; name another at the end of the store's \
             URL, or raise `databases` in the server's configuration (a cluster has database 0 \
             only)"
        )
    } else if detail.contains("no permissions to run the 'select'") {
        format!("the user may not choose database {database}; give it +select, or use database 0")
    } else {
        // Only the code of the error is used, because its text may repeat the password.
        match Failure::classify(error.code(), "") {
            Failure::NoScript | Failure::WrongType | Failure::Unknown(_) => {
                format!("the server refuses the login: {}", error.code())
            }
            known => return Err(known.reason()),
        }
    };
    Err(Unavailability::Misconfigured(why))
}

/// Judges the reply to PING. Nearly any reply shows that the server answers, even that it is busy or that the user may
/// not send PING.
fn judge_greeting(reply: Value) -> Result<(), Unavailability> {
    let Value::ServerError(error) = reply else {
        return Ok(());
    };
    match answered(&error) {
        Failure::Refused(why @ Unavailability::Misconfigured(_)) if error.code() != "NOPERM" => {
            Err(why)
        }
        _ => turned_away(&error).map_or(Ok(()), Err),
    }
}

/// Why a TLS handshake failed. A refused certificate is a wrong configuration; a lost connection may be temporary.
fn no_tls(error: &io::Error) -> Unavailability {
    if let Some(why) = distrust(error, "redis.tls.ca_file") {
        return Unavailability::Misconfigured(format!(
            "the certificate of the server is not trusted: {why}"
        ));
    }
    let rustls = error.get_ref().and_then(|cause| cause.downcast_ref());
    match rustls {
        Some(why @ rustls::Error::InvalidMessage(_)) => Unavailability::Misconfigured(format!(
            "the server does not speak TLS on this port ({why})"
        )),
        Some(why @ rustls::Error::AlertReceived(_)) => {
            Unavailability::Misconfigured(format!("the server refuses the TLS connection: {why}"))
        }
        _ => Unavailability::Connect(format!("no TLS connection: {error}")),
    }
}

/// Why a subscription to channels failed.
fn refused(error: &RedisError) -> Unavailability {
    let code = error.code().unwrap_or_default();
    match Failure::classify(code, error.detail().unwrap_or_default()) {
        Failure::NoScript | Failure::WrongType | Failure::Unknown(_) => {
            Unavailability::Connect("the connection was lost".to_owned())
        }
        known => known.reason(),
    }
}

// === Subscriptions ===

/// A connection that is subscribed to channels.
pub(crate) struct PubSubConnection {
    connection: PubSub,
    /// Cancelled when the connections to the server are closed.
    disconnected: CancellationToken,
}

/// How long a subscribed connection pauses between PINGs, and how long each reply may take.
const PING: Duration = Duration::from_secs(2);

// === impl PubSubConnection ===

impl PubSubConnection {
    /// The messages on the subscribed channels, until the connection is lost, no longer answers, or is closed by the
    /// gateway.
    pub(crate) fn messages(self) -> impl Stream<Item = String> + Send + 'static {
        let (mut requests, messages) = self.connection.split();
        let disconnected = self.disconnected;
        let lost = async move {
            tokio::select! {
                () = until_silent(&mut requests) => {}
                () = disconnected.cancelled() => {}
            }
        };
        messages
            .map(|message| String::from_utf8_lossy(message.get_payload_bytes()).into_owned())
            .take_until(lost)
    }
}

/// Waits until the subscribed connection no longer answers PING: a connection may be lost without a sign. Any reply
/// counts as an answer, even a refusal.
async fn until_silent(requests: &mut PubSubSink) {
    loop {
        sleep(PING).await;
        if timeout(PING, requests.ping::<Value>()).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncWriteExt, net::TcpListener};

    use super::{super::pool::Route, *};
    use crate::config::{Millis, RedisConfig, StoreUrl};

    /// The connect error for a server that sends `greeting` to its client and closes the connection.
    async fn told_of_one_that_says(greeting: &str) -> Unavailability {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = format!("redis://:s3cret@127.0.0.1:{port}/3").parse::<StoreUrl>();
        let config = RedisConfig {
            connect_timeout_ms: Millis(20_000),
            ..RedisConfig::default()
        };
        let route = Route::to_one(url.unwrap().servers().unwrap(), &config);
        let refuse = async {
            let (mut client, _) = listener.accept().await.unwrap();
            client.write_all(greeting.as_bytes()).await.unwrap();
            client.shutdown().await.unwrap();
            client
        };
        let (_client, connected) = tokio::join!(refuse, route.connect());
        connected.err().expect("it refuses")
    }

    #[tokio::test]
    async fn a_server_that_refuses_a_client_once_and_closes_is_heard() {
        for (greeting, told) in [
            ("-ERR max number of clients reached\r\n", "Refused("),
            ("+OK\r\n-ERR max number of clients reached\r\n", "Refused("),
            (
                "-DENIED Redis is running in protected mode\r\n",
                "Misconfigured(\"the server is in protected mode",
            ),
            ("-WRONGPASS s3cret\r\n", "Misconfigured("),
        ] {
            let why = format!("{:?}", told_of_one_that_says(greeting).await);
            assert!(why.starts_with(told) && !why.contains("s3cret"), "{why}");
        }
    }

    #[tokio::test]
    async fn a_server_that_says_nothing_or_too_little_and_closes_was_not_connected_to() {
        for greeting in ["", "+OK\r\n", "+OK\r\n+OK\r\n", "+OK\r\n+OK\r\n+PONG\r\n"] {
            let closed = told_of_one_that_says(greeting).await;
            assert!(matches!(closed, Unavailability::Connect(_)), "{closed:?}");
        }
    }
}

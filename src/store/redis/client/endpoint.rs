//! Makes connections to one server: reaches it, speaks TLS where that is asked for, and logs in.

use std::{
    io,
    sync::{Arc, Weak},
};

use bb8_redis::redis::{Pipeline, RedisConnectionInfo, Value, aio::PubSub};
use bytes::BytesMut;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    sync::Notify,
    task::spawn_blocking,
    time::{Duration, Instant, timeout},
};
use tokio_rustls::client::TlsStream;
use tokio_util::{either::Either, sync::CancellationToken, task::TaskTracker};
use tracing::{info, warn};

use crate::{config::RedisNode, store::Unavailability};

use super::{
    connection::{Connection, ConnectionShared, answered},
    credentials::{Credentials, LoadedCredentials, server_name},
    driver::Driver,
    failure::Failure,
    identity::{Identity, Reached},
    login::{
        closed, full, is_full, is_protected, judge_greeting, no_database, no_tls, refused,
        refused_login, wrong_login,
    },
    pubsub::PubSubConnection,
    resp::Replies,
    run::Run,
};

/// Where to connect to, and who owns the connections.
pub(crate) struct Endpoint {
    node: RedisNode,
    credentials: Arc<Credentials>,
    connect_timeout: Duration,
    /// Whether all connections must lead to one run of one server, which is asked for its run first.
    one_server: bool,
    identity: Identity,
    /// Told when a connection was lost.
    pub(super) lost: Arc<Notify>,
    /// The connections that are open.
    open_connections: Mutex<Vec<Weak<ConnectionShared>>>,
    /// The tasks that move bytes, one for each connection. They outlive every other task, because
    /// what is given back at the very end needs them; closing the store ends them.
    drivers: TaskTracker,
    closing: CancellationToken,
}

/// A connection as bytes.
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
            identity: Identity::new(closing.child_token()),
            lost: Arc::default(),
            open_connections: Mutex::default(),
            drivers: TaskTracker::new(),
            closing,
        }
    }

    /// The same; it does not matter whether its connections lead to one server.
    pub(crate) fn for_any_server(self) -> Self {
        Self {
            one_server: false,
            ..self
        }
    }

    /// Where it is.
    pub(crate) fn node(&self) -> &RedisNode {
        &self.node
    }

    /// How long connecting may take.
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

    /// What readiness says of where the address leads, although a connection could be made.
    pub(crate) fn warning(&self) -> Option<&'static str> {
        self.identity.warning()
    }

    /// Ends at the latest when the time is over, or when the server is not used any more.
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

    /// Connects to the server to which all other connections lead. Answers also what is cancelled when those are
    /// closed.
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
                    if moved {
                        warn!(%node, "the address leads to another server than before: all connections are \
                                      made again, and what was locked at the one before is forgotten");
                    } else {
                        info!(%node, "the server was started again, or its address leads to another one");
                    }
                }
            }
        }
    }

    /// Finds out where the address leads, if that is in doubt.
    async fn settle(&self) -> Result<(), Unavailability> {
        let _turn = self.identity.turn().await;
        if let Some(connections) = self.identity.doubt()? {
            let dialled = join_all((0..connections).map(|_| self.dial())).await;
            // All of them are open until now, whatever balances them over servers.
            let runs = dialled.into_iter().map(|it| Ok(it?.1)).collect();
            if self.identity.settle(runs) {
                let node = &self.node;
                warn!(%node, "the address leads to several servers in turn: no lock is granted there");
            }
            self.identity.doubt()?;
        }
        Ok(())
    }

    /// Connects, logs in, and makes sure that the server takes part before anything is sent that may be carried
    /// out: one that is frozen, full or protected accepts a connection all the same.
    async fn dial(&self) -> Result<(Wire, Run), Unavailability> {
        let failed = |error: io::Error| Unavailability::Connect(error.to_string());
        let credentials = Arc::clone(&self.credentials);
        let loaded = spawn_blocking(move || credentials.current()).await;
        // Only the end of the runtime stops it.
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

    async fn greet(
        &self,
        wire: &mut Wire,
        login: &RedisConnectionInfo,
    ) -> Result<Run, Unavailability> {
        // Before the answer: whatever the server says, it is no younger then.
        let asked = Instant::now();
        let commands = self.greeting(login).get_packed_pipeline();
        // A server may say that it is full, and close, before it is asked anything.
        let _sent = wire.write_all(&commands).await.and(wire.flush().await);
        let (mut replies, mut input) = (Replies::default(), BytesMut::new());
        // In their order: a server that refuses a client says so once, whatever it was sent, and closes.
        let mut next = async || loop {
            match replies.next(&mut input) {
                Ok(Some(reply)) => return Ok(reply),
                Ok(None) if matches!(wire.read_buf(&mut input).await, Ok(1..)) => {}
                Ok(None) | Err(_) => return Err(self.with_hint(closed())),
            }
        };
        if login.password().is_some() {
            self.judge_login(next().await?)?;
        }
        if login.db() != 0 {
            self.judge_database(next().await?)?;
        }
        judge_greeting(next().await?).map_err(|why| self.with_hint(why))?;
        if !self.one_server {
            return Ok(Run::default());
        }
        match next().await? {
            Value::BulkString(info) => Ok(Run::read(&String::from_utf8_lossy(&info), asked)),
            // Where the server may not be asked, it does not say; where it just cannot answer, another
            // connection is to ask it.
            Value::ServerError(error) => match answered(&error) {
                Failure::Transient(why) => Err(why),
                _ => Ok(Run::default()),
            },
            _ => Ok(Run::default()),
        }
    }

    /// What is said first on a connection, all at once.
    fn greeting(&self, login: &RedisConnectionInfo) -> Pipeline {
        let mut commands = Pipeline::with_capacity(4);
        if let Some(password) = login.password() {
            commands.cmd("AUTH");
            if let Some(user) = login.username() {
                commands.arg(user);
            }
            commands.arg(password);
        }
        if login.db() != 0 {
            commands.cmd("SELECT").arg(login.db());
        }
        commands.cmd("PING");
        if self.one_server {
            commands.cmd("INFO").arg("server");
        }
        commands
    }

    /// What the server says to a login may repeat the password, so of its text nothing is passed on.
    fn judge_login(&self, reply: Value) -> Result<(), Unavailability> {
        match reply {
            Value::Okay => Ok(()),
            Value::ServerError(error) if is_full(&error) => Err(full()),
            Value::ServerError(error) if is_protected(&error) => Err(refused_login(error.code())),
            _ => Err(self.with_hint(wrong_login())),
        }
    }

    fn judge_database(&self, reply: Value) -> Result<(), Unavailability> {
        let Value::ServerError(error) = reply else {
            return Ok(());
        };
        if is_full(&error) {
            return Err(full());
        }
        let detail = error.details().unwrap_or_default();
        let other = || self.with_hint(refused_login(error.code()));
        Err(no_database(self.credentials.database(), detail).unwrap_or_else(other))
    }

    /// Starts the task that moves the bytes of a connection.
    fn drive(&self, shared: &Arc<ConnectionShared>, stream: Wire, connections: &CancellationToken) {
        let mut open_connections = self.open_connections.lock();
        open_connections.retain(|shared| shared.strong_count() > 0);
        open_connections.push(Arc::downgrade(shared));
        drop(open_connections);
        // They may have been closed before this connection was listed.
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

    /// A connection of its own that listens to channels.
    pub(crate) async fn subscribe(
        &self,
        channels: &[&str],
    ) -> Result<PubSubConnection, Unavailability> {
        let open = async {
            let (wire, _run, disconnected) = self.reach().await?;
            // It is logged in.
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

    /// What may be behind a connection that ends before anything was said. A server that misses a
    /// certificate says so when it has come to TLS.
    fn with_hint(&self, why: Unavailability) -> Unavailability {
        match why {
            Unavailability::Connect(reason) if self.credentials.shows_no_certificate() => {
                Unavailability::Connect(format!(
                    "{reason}; it may want a certificate, which redis.tls.cert_file names"
                ))
            }
            why => why,
        }
    }

    /// Gives the server up: from now on nothing is sent to it, and every connection ends.
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

    /// Closes every connection, whoever still has one.
    pub(crate) async fn close(&self) {
        self.disconnect();
        self.drivers.close();
        self.drivers.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncWriteExt, net::TcpListener};

    use super::*;
    use crate::config::{RedisConfig, RedisLogin};

    /// What is told of a server that says this to whoever connects, and closes the connection.
    async fn told_of_one_that_says(greeting: &str) -> Unavailability {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let login = RedisLogin {
            password: Some("s3cret".to_owned()),
            database: 3,
            ..RedisLogin::default()
        };
        let credentials = Credentials::of_redis(&login, &RedisConfig::default());
        let node = RedisNode::new("127.0.0.1", port);
        let endpoint = Endpoint::new(node, Arc::new(credentials), Duration::from_secs(20));
        let refuse = async {
            let (mut client, _) = listener.accept().await.unwrap();
            client.write_all(greeting.as_bytes()).await.unwrap();
            client.shutdown().await.unwrap();
            client
        };
        let (_client, connected) = tokio::join!(refuse, endpoint.connect());
        connected.err().expect("it refuses")
    }

    #[tokio::test]
    async fn a_server_that_refuses_a_client_once_and_closes_is_heard() {
        let full = told_of_one_that_says("-ERR max number of clients reached\r\n").await;
        assert!(matches!(full, Unavailability::Refused(_)), "{full:?}");
        let denied = "-DENIED Redis is running in protected mode\r\n";
        let denied = told_of_one_that_says(denied).await.to_string();
        assert!(denied.contains("protected mode"), "{denied}");
        let wrong = told_of_one_that_says("-WRONGPASS s3cret\r\n").await;
        assert!(
            matches!(wrong, Unavailability::Misconfigured(_)),
            "{wrong:?}"
        );
        assert!(!wrong.to_string().contains("s3cret"), "{wrong}");
        let later = told_of_one_that_says("+OK\r\n-ERR max number of clients reached\r\n").await;
        assert!(matches!(later, Unavailability::Refused(_)), "{later:?}");
    }

    #[tokio::test]
    async fn a_server_that_says_nothing_or_too_little_and_closes_was_not_connected_to() {
        for greeting in ["", "+OK\r\n", "+OK\r\n+OK\r\n", "+OK\r\n+OK\r\n+PONG\r\n"] {
            let closed = told_of_one_that_says(greeting).await;
            assert!(matches!(closed, Unavailability::Connect(_)), "{closed:?}");
        }
    }
}

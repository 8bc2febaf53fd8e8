//! Makes connections to one server: reaches it, speaks TLS where that is asked for, and logs in.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use bb8_redis::redis::{Pipeline, RedisConnectionInfo, RedisError, Value, aio::PubSub};
use tokio::{
    net::TcpStream,
    task::spawn_blocking,
    time::{Duration, Instant, timeout},
};
use tokio_rustls::client::TlsStream;
use tokio_util::{either::Either, sync::CancellationToken, task::TaskTracker};

use crate::{config::RedisNode, store::Unavailability};

use super::{
    connection::{Connection, ConnectionShared, answered},
    credentials::{Credentials, LoadedCredentials, server_name},
    driver::Driver,
    failure::Failure,
    login::{
        closed, full, is_full, is_protected, judge_greeting, login_failed, no_database, no_tls,
        refused, refused_login, wrong_login,
    },
    pubsub::PubSubConnection,
};

/// Where to connect to, and who owns the connections.
pub(crate) struct Endpoint {
    node: RedisNode,
    credentials: Arc<Credentials>,
    connect_timeout: Duration,
    /// Whether a server is asked for its run before anything else is.
    asks_run: bool,
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
        Self {
            node,
            credentials,
            connect_timeout,
            asks_run: false,
            open_connections: Mutex::default(),
            drivers: TaskTracker::new(),
            closing: CancellationToken::new(),
        }
    }

    /// The same; with `asks_run` asked on every new connection which run of which server it is, and for
    /// how long it has run.
    pub(crate) fn asking_for_run(self, asks_run: bool) -> Self {
        Self { asks_run, ..self }
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
        self.in_time(self.open()).await
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

    /// Connects, and says with what to log in.
    async fn reach(&self) -> Result<(Wire, RedisConnectionInfo), Unavailability> {
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
        let wire = match tls {
            None => Either::Left(stream),
            Some(connector) => {
                let name = server_name(&self.node)
                    .map_err(|error| Unavailability::Misconfigured(error.to_string()))?;
                let encrypted = connector.connect(name, stream).await;
                Either::Right(Box::new(encrypted.map_err(|error| no_tls(&error))?))
            }
        };
        Ok((wire, login))
    }

    /// Logs in, and makes sure that the server takes part before anything is sent that may be carried out:
    /// one that is frozen, full or protected accepts a connection all the same.
    async fn open(&self) -> Result<Connection, Unavailability> {
        let (stream, login) = self.reach().await?;
        let shared = Arc::new(ConnectionShared::default());
        let connection = Connection::new(Arc::clone(&shared));
        let limit = Instant::now() + self.connect_timeout;
        // Before the answer: whatever the server says, it is no younger then.
        let asked = Instant::now();
        let replies = {
            let commands = self.greeting(&login);
            // Taken before the driver starts: a server may say that it is full before it is asked anything.
            let greeted = connection.take_all(&commands, limit);
            self.drive(&shared, stream);
            match greeted {
                Ok(greeted) => greeted.await.0,
                Err(_closed) => Vec::new(),
            }
        };
        // In their order: a server that refuses a client says so once, whatever it was sent, and closes.
        let mut replies = replies.into_iter();
        let mut next = || replies.next().ok_or_else(|| self.with_hint(closed()));
        if login.password().is_some() {
            self.judge_login(next()?)?;
        }
        if login.db() != 0 {
            self.judge_database(next()?)?;
        }
        judge_greeting(next()?).map_err(|why| self.with_hint(why))?;
        if self.asks_run {
            match next()? {
                Value::BulkString(info) => connection.note_run(&info, asked),
                // Where the server may not be asked, it does not say; where it just cannot answer, another
                // connection is to ask it.
                Value::ServerError(error) => {
                    if let Failure::Transient(why) = answered(&error) {
                        return Err(why);
                    }
                }
                _ => {}
            }
        }
        Ok(connection)
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
        if self.asks_run {
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
    fn drive(&self, shared: &Arc<ConnectionShared>, stream: Wire) {
        let mut open_connections = self
            .open_connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        open_connections.retain(|shared| shared.strong_count() > 0);
        open_connections.push(Arc::downgrade(shared));
        drop(open_connections);
        // The server may have been given up before this connection was listed.
        if self.closing.is_cancelled() {
            shared.close();
        }
        self.drivers
            .spawn(Driver::new(Arc::clone(shared), stream).run());
    }

    /// A connection of its own that listens to channels.
    pub(crate) async fn subscribe(
        &self,
        channels: &[&str],
    ) -> Result<PubSubConnection, Unavailability> {
        let open = async {
            let (stream, login) = self.reach().await?;
            let subscription = PubSub::new(&login, stream).await;
            let mut subscription = subscription.map_err(|error| self.login_failed(&error))?;
            let subscribed = subscription.subscribe(channels).await;
            subscribed.map_err(|error| refused(&error))?;
            Ok(PubSubConnection {
                connection: subscription,
                disconnected: self.closing.clone(),
            })
        };
        self.in_time(open).await
    }

    /// Why a login failed, the choice of the database included.
    fn login_failed(&self, error: &RedisError) -> Unavailability {
        let detail = error.detail().unwrap_or_default();
        let other = || self.with_hint(login_failed(error));
        no_database(self.credentials.database(), detail).unwrap_or_else(other)
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
        let open_connections = self
            .open_connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
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
        let endpoint = endpoint.asking_for_run(true);
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

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
    connection::{Lane, Link, answered},
    credentials::{Credentials, Shown, server_name},
    driver::Driver,
    failure::Failure,
    login::{
        closed, full, is_full, judge_greeting, login_failed, no_database, no_tls, refused,
        refused_login, wrong_login,
    },
};

/// Where to connect to, and who owns the connections.
pub(crate) struct Endpoint {
    node: RedisNode,
    credentials: Arc<Credentials>,
    connect_timeout: Duration,
    /// Whether a server is asked for its run before anything else is.
    asks_run: bool,
    /// The connections that are open.
    lanes: Mutex<Vec<Weak<Lane>>>,
    /// The tasks that move bytes, one for each connection. They outlive every other task, because
    /// what is given back at the very end needs them; closing the store ends them.
    drivers: TaskTracker,
    closing: CancellationToken,
}

/// A connection that listens to channels, and word of when it should not any more.
pub(crate) struct Ear {
    pub(crate) connection: PubSub,
    /// Told when the server is given up.
    pub(crate) over: CancellationToken,
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
            lanes: Mutex::default(),
            drivers: TaskTracker::new(),
            closing: CancellationToken::new(),
        }
    }

    /// The same; with `asks_run` asked on every new connection which run of which server it is, and for
    /// how long it has run.
    pub(crate) fn asked_for_its_run(self, asks_run: bool) -> Self {
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

    pub(crate) async fn connect(&self) -> Result<Link, Unavailability> {
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
        let shown = spawn_blocking(move || credentials.current()).await;
        // Only the end of the runtime stops it.
        let shown = shown.map_err(|stopped| Unavailability::Connect(stopped.to_string()))?;
        let Shown { login, tls } =
            shown.map_err(|error| Unavailability::Misconfigured(error.to_string()))?;
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
    async fn open(&self) -> Result<Link, Unavailability> {
        let (stream, login) = self.reach().await?;
        let lane = Arc::new(Lane::default());
        let link = Link::new(Arc::clone(&lane));
        let limit = Instant::now() + self.connect_timeout;
        // Before the answer: whatever the server says, it is no younger then.
        let asked = Instant::now();
        let replies = {
            let commands = self.greeting(&login);
            // Taken before the driver starts: a server may say that it is full before it is asked anything.
            let greeted = link.take_all(&commands, limit);
            self.drive(&lane, stream);
            match greeted {
                Ok(greeted) => greeted.await,
                Err(failure) => Err(failure),
            }
        };
        let replies = replies.map_err(|_lost| self.with_hint(closed()))?;
        let mut replies = replies.into_iter();
        if login.password().is_some() {
            self.judge_login(replies.next())?;
        }
        if login.db() != 0 {
            self.judge_database(replies.next())?;
        }
        judge_greeting(replies.next()).map_err(|why| self.with_hint(why))?;
        match replies.next() {
            Some(Value::BulkString(info)) => link.note_run(&info, asked),
            // Where the server may not be asked, it does not say; where it just cannot answer, another
            // connection is to ask it.
            Some(Value::ServerError(error)) => {
                if let Failure::Transient(why) = answered(&error) {
                    return Err(why);
                }
            }
            _ => {}
        }
        Ok(link)
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
    fn judge_login(&self, reply: Option<Value>) -> Result<(), Unavailability> {
        match reply {
            Some(Value::Okay) => Ok(()),
            Some(Value::ServerError(error)) if is_full(&error) => Err(full()),
            _ => Err(self.with_hint(wrong_login())),
        }
    }

    fn judge_database(&self, reply: Option<Value>) -> Result<(), Unavailability> {
        let Some(Value::ServerError(error)) = reply else {
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
    fn drive(&self, lane: &Arc<Lane>, stream: Wire) {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        lanes.retain(|lane| lane.strong_count() > 0);
        lanes.push(Arc::downgrade(lane));
        drop(lanes);
        // By whoever gives the server up, or by this: it was given up before the lane was listed.
        if self.closing.is_cancelled() {
            lane.close();
        }
        self.drivers
            .spawn(Driver::new(Arc::clone(lane), stream).run());
    }

    /// A connection of its own that listens to channels.
    pub(crate) async fn subscribe(&self, channels: &[&str]) -> Result<Ear, Unavailability> {
        let open = async {
            let (stream, login) = self.reach().await?;
            let subscription = PubSub::new(&login, stream).await;
            let mut subscription = subscription.map_err(|error| self.login_failed(&error))?;
            let subscribed = subscription.subscribe(channels).await;
            subscribed.map_err(|error| refused(&error))?;
            Ok(Ear {
                connection: subscription,
                over: self.closing.clone(),
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
    pub(crate) fn cut(&self) {
        self.closing.cancel();
        let lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        for lane in lanes.iter().filter_map(Weak::upgrade) {
            lane.close();
        }
    }

    /// Closes every connection, whoever still has one.
    pub(crate) async fn close(&self) {
        self.cut();
        self.drivers.close();
        self.drivers.wait().await;
    }
}

//! One connection, shared by many requests at once.
//!
//! Replies come in the order of the commands, and each goes to the command it answers or, if its
//! caller has gone, nowhere. A connection on which anything went wrong is retired: no new command
//! is sent on it, and it is closed when the last of its commands has ended.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bb8_redis::redis::{
    AsyncConnectionConfig, Cmd, Pipeline, RedisConnectionInfo, RedisError, ServerError, Value,
    aio::{MultiplexedConnection, PubSub},
    cmd,
};
use tokio::{
    net::TcpStream,
    task::spawn_blocking,
    time::{Instant, timeout, timeout_at},
};
use tokio_rustls::client::TlsStream;
use tokio_util::{
    either::Either,
    sync::{CancellationToken, DropGuard},
    task::TaskTracker,
};

use crate::{
    config::RedisNode,
    store::{Unavailability, Uncertainty},
};

use super::{
    credentials::{Credentials, Shown, server_name},
    ear::Ear,
    failure::{self, Failure},
    login::{is_full, login_failed, no_tls},
    run::{Run, RunId},
};

/// A handle to a connection. Cheap to clone; the last one closes it.
#[derive(Clone)]
pub(super) struct Link {
    connection: MultiplexedConnection,
    life: Arc<Life>,
}

struct Life {
    broken: Arc<AtomicBool>,
    run: Run,
    closing: CancellationToken,
    _closes: DropGuard,
}

/// Where to connect to, and who owns the connections.
pub(super) struct Endpoint {
    node: RedisNode,
    credentials: Arc<Credentials>,
    connect_timeout: Duration,
    /// Whether a server is asked for its run before anything else is.
    asks_run: bool,
    /// The tasks that move bytes, one for each connection. They outlive every other task, because
    /// what is given back at the very end needs them; closing the store ends them.
    drivers: TaskTracker,
    closing: CancellationToken,
}

/// A connection as bytes.
type Wire = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// How many commands may wait to be written. More wait at their callers.
const PIPELINE: usize = 1_024;

// === impl Endpoint ===

impl Endpoint {
    pub(super) fn new(
        node: RedisNode,
        credentials: Arc<Credentials>,
        connect_timeout: Duration,
    ) -> Self {
        Self {
            node,
            credentials,
            connect_timeout,
            asks_run: false,
            drivers: TaskTracker::new(),
            closing: CancellationToken::new(),
        }
    }

    /// The same; with `asks_run` asked on every new connection which run of which server it is, and for
    /// how long it has run.
    pub(super) fn asked_for_its_run(self, asks_run: bool) -> Self {
        Self { asks_run, ..self }
    }

    /// Where it is.
    pub(super) fn node(&self) -> &RedisNode {
        &self.node
    }

    /// How long connecting may take.
    pub(super) fn connect_timeout(&self) -> Duration {
        self.connect_timeout
    }

    pub(super) async fn connect(&self) -> Result<Link, Unavailability> {
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

    async fn open(&self) -> Result<Link, Unavailability> {
        let (stream, login) = self.reach().await?;
        let config = AsyncConnectionConfig::new()
            .set_response_timeout(None)
            .set_pipeline_buffer_size(PIPELINE);
        let (connection, driver) = MultiplexedConnection::new_with_config(&login, stream, config)
            .await
            .map_err(|error| self.login_failed(&error))?;

        let mut link = self.drive(connection, driver);
        link.greet().await.map_err(|why| self.with_hint(why))?;
        if self.asks_run {
            link.ask_run().await?;
        }
        Ok(link)
    }

    /// Starts the task that moves the bytes of a connection.
    fn drive(
        &self,
        connection: MultiplexedConnection,
        driver: impl Future<Output = ()> + Send + 'static,
    ) -> Link {
        let broken = Arc::new(AtomicBool::new(false));
        let closing = self.closing.child_token();
        let life = Arc::new(Life {
            broken: Arc::clone(&broken),
            run: Run::default(),
            closing: closing.clone(),
            _closes: closing.clone().drop_guard(),
        });
        self.drivers.spawn(async move {
            tokio::select! {
                // What was not sent when the server was given up is not sent any more.
                biased;
                () = closing.cancelled() => {}
                () = driver => {}
            }
            broken.store(true, Ordering::Release);
        });
        Link { connection, life }
    }

    /// A connection of its own that listens to channels.
    pub(super) async fn subscribe(&self, channels: &[&str]) -> Result<Ear, Unavailability> {
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
        let database = self.credentials.database();
        let detail = error.detail().unwrap_or_default();
        if failure::tells_of_no_database(detail) {
            return Unavailability::Misconfigured(format!(
                "the server has no database {database}; name another at the end of the store's \
                 URL, or raise `databases` in the server's configuration (a cluster has database 0 \
                 only)"
            ));
        }
        if failure::tells_of_no_select(detail) {
            return Unavailability::Misconfigured(format!(
                "the user may not choose database {database}; give it +select, or use database 0"
            ));
        }
        self.with_hint(login_failed(error))
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
    pub(super) fn cut(&self) {
        self.closing.cancel();
    }

    /// Closes every connection, whoever still has one.
    pub(super) async fn close(&self) {
        self.cut();
        self.drivers.close();
        self.drivers.wait().await;
    }
}

// === impl Link ===

impl Link {
    /// Whether no new command may be sent.
    pub(super) fn is_broken(&self) -> bool {
        self.life.closing.is_cancelled() || self.life.broken.load(Ordering::Acquire)
    }

    /// Keeps new commands from this connection.
    pub(super) fn retire(&self) {
        self.life.broken.store(true, Ordering::Release);
    }

    /// Makes sure that the server takes part before anything is sent that may be carried out: one
    /// that is frozen, full or protected accepts a connection all the same. Whatever else it
    /// answers, if only that it is busy or that the user may not ask, it answers.
    async fn greet(&mut self) -> Result<(), Unavailability> {
        let reply = self.connection.send_packed_command(&cmd("PING")).await;
        match reply {
            Ok(Value::ServerError(error)) if error.code() != "NOPERM" => match answered(&error) {
                Failure::Refused(why @ Unavailability::Misconfigured(_)) => Err(why),
                Failure::Transient(why) if is_full(&error) => Err(why),
                _ => Ok(()),
            },
            Ok(_) => Ok(()),
            Err(_) => Err(closed()),
        }
    }

    /// Asks which run of the server it leads to. Where the server may not be asked, it does not say; where
    /// it just cannot answer, another connection is to ask it.
    async fn ask_run(&mut self) -> Result<(), Unavailability> {
        match self.life.run.ask(&mut self.connection).await {
            Ok(None) => Ok(()),
            Ok(Some(error)) => match answered(&error) {
                Failure::Transient(why) => Err(why),
                _ => Ok(()),
            },
            Err(_) => Err(closed()),
        }
    }

    /// For how long the server has run; `None` if it was not asked, or does not say.
    pub(super) fn age(&self) -> Option<Duration> {
        self.life.run.age()
    }

    /// Which run of which server it leads to; `None` if that was not asked, or is not said.
    pub(super) fn run(&self) -> Option<&RunId> {
        self.life.run.id()
    }

    /// Sends a command and waits for its reply, at most until `limit`.
    pub(super) async fn send(&mut self, command: &Cmd, limit: Instant) -> Result<Value, Failure> {
        let reply = timeout_at(limit, self.connection.send_packed_command(command)).await;
        let failure = match reply {
            Ok(Ok(Value::ServerError(error))) => answered(&error),
            Ok(Ok(value)) => return Ok(value),
            Ok(Err(error)) => lost(&error),
            Err(_elapsed) => Failure::Unknown(Uncertainty::TimedOut),
        };
        if let Failure::Unknown(_) | Failure::WrongNode(_) = failure {
            self.retire();
        }
        Err(failure)
    }

    /// Sends commands together and waits for all replies. Each of them may be an error.
    pub(super) async fn send_all(
        &mut self,
        commands: &Pipeline,
        limit: Instant,
    ) -> Result<Vec<Value>, Failure> {
        let sent = self
            .connection
            .send_packed_commands(commands, 0, commands.len());
        let failure = match timeout_at(limit, sent).await {
            Ok(Ok(values)) => return Ok(values),
            Ok(Err(error)) => lost(&error),
            Err(_elapsed) => Failure::Unknown(Uncertainty::TimedOut),
        };
        self.retire();
        Err(failure)
    }
}

/// What an error of the server means.
pub(super) fn answered(error: &ServerError) -> Failure {
    Failure::of(error.code(), error.details().unwrap_or_default())
}

fn closed() -> Unavailability {
    Unavailability::Connect("the server closed the connection".to_owned())
}

fn lost(error: &RedisError) -> Failure {
    let reason = error.category().to_owned();
    Failure::Unknown(Uncertainty::ConnectionLost(reason))
}

/// Why a channel cannot be listened to.
fn refused(error: &RedisError) -> Unavailability {
    let code = error.code().unwrap_or_default();
    match Failure::of(code, error.detail().unwrap_or_default()) {
        Failure::NoScript | Failure::WrongType | Failure::Unknown(_) => {
            Unavailability::Connect("the connection was lost".to_owned())
        }
        known => known.reason(),
    }
}

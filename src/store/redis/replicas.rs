//! Makes sure that enough replicas have a grant before it is answered.
//!
//! `WAIT` tells of what its own connection wrote before. So a marker is written on a connection that is
//! kept for this, and all that the master did before the marker is on a replica that has the marker.
//! One marker is good for everybody whose grant was made before it. The connection is older than the
//! grant, so that both are of one run of one master: had another one taken over in between, or had the
//! server been started anew, the connection would have ended.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use bb8_redis::redis::{Cmd, Pipeline, Value};
use tokio::{
    sync::Mutex as AsyncMutex,
    time::{Duration, Instant},
};

use crate::{config::RedisConfig, store::Unavailability};

use super::{
    failure::Failure,
    keys::Keys,
    link::{Link, answered},
    permissions::hint,
    pool::Pool,
};

/// Waits for replicas.
pub(super) struct Replicas {
    wanted: u32,
    timeout: Duration,
    answer_within: Duration,
    /// Held while the connection is opened.
    opening: AsyncMutex<()>,
    line: Mutex<Option<(Line, Link)>>,
    lines: AtomicU64,
    /// Held while replicas are waited for, so that those who wait together share a marker.
    turn: AsyncMutex<()>,
    last: Mutex<Option<Round>>,
}

/// A connection on which markers are written. No two are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line(u64);

/// What came of a marker.
#[derive(Debug, Clone, Copy)]
struct Round {
    line: Line,
    begun: Instant,
    /// How many replicas have it; `None` if that is not known.
    confirmed: Option<u32>,
}

/// For how long the marker stays: longer than it takes to come to a replica.
const MARKER_LASTS_MS: u64 = 1_000;

// === impl Replicas ===

impl Replicas {
    pub(super) fn new(config: &RedisConfig) -> Self {
        Self {
            wanted: config.wait_replicas,
            timeout: config.wait_timeout_ms.duration(),
            answer_within: config.command_timeout_ms.duration(),
            opening: AsyncMutex::new(()),
            line: Mutex::default(),
            lines: AtomicU64::new(0),
            turn: AsyncMutex::new(()),
            last: Mutex::default(),
        }
    }

    /// Whether grants are kept back until replicas have them.
    pub(super) fn are_waited_for(&self) -> bool {
        self.wanted > 0
    }

    /// How many are waited for.
    pub(super) fn wanted(&self) -> u32 {
        self.wanted
    }

    /// How many had the last marker in time, if that is known.
    pub(super) fn confirmed(&self) -> Option<u32> {
        self.last_round().and_then(|last| last.confirmed)
    }

    /// The connection on which it will be found out who has a grant that is made from now on; `None` if
    /// nobody waits for that.
    pub(super) async fn line(&self, pool: &Pool) -> Result<Option<Line>, Unavailability> {
        if !self.are_waited_for() {
            return Ok(None);
        }
        if let Some((line, _)) = self.open_line() {
            return Ok(Some(line));
        }
        let _opening = self.opening.lock().await;
        if let Some((line, _)) = self.open_line() {
            return Ok(Some(line));
        }
        let mut connection = pool.dedicated().await?;
        self.may_wait(&mut connection).await?;
        let line = Line(self.lines.fetch_add(1, Ordering::Relaxed));
        *self.line_now() = Some((line, connection));
        Ok(Some(line))
    }

    /// Finds out whether the user may wait at all, before anything is granted.
    async fn may_wait(&self, link: &mut Link) -> Result<(), Unavailability> {
        let limit = Instant::now() + self.answer_within;
        let mut command = Cmd::new();
        command.arg("WAIT").arg(0).arg(1);
        match link.send(&command, limit).await {
            Ok(_) => Ok(()),
            Err(failure) => Err(match failure.reason() {
                Unavailability::Misconfigured(why) => Unavailability::Misconfigured(hint(why)),
                why => why,
            }),
        }
    }

    /// Whether enough replicas have everything that was done before this is called; else how many
    /// have, if that is known.
    pub(super) async fn have(&self, line: Line) -> Result<(), Option<u32>> {
        let asked = Instant::now();
        let _turn = self.turn.lock().await;
        let shared = self.last_round();
        let shared = shared.filter(|last| last.line == line && last.begun > asked);
        let confirmed = match shared {
            Some(last) => last.confirmed,
            None => self.round(line).await,
        };
        match confirmed {
            Some(count) if count >= self.wanted => Ok(()),
            other => Err(other),
        }
    }

    /// Writes a marker, and waits for those who have it.
    async fn round(&self, line: Line) -> Option<u32> {
        let begun = Instant::now();
        let confirmed = match self.open_line() {
            Some((open, mut connection)) if open == line => self.mark(&mut connection).await,
            _ => None,
        };
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Round {
            line,
            begun,
            confirmed,
        });
        confirmed
    }

    async fn mark(&self, link: &mut Link) -> Option<u32> {
        // A wait whose caller has gone keeps the connection busy until its time is over.
        let limit = Instant::now() + 2 * self.timeout + self.answer_within;
        let mut commands = Pipeline::with_capacity(2);
        commands.cmd("SET").arg(Keys::MARKER).arg(1);
        commands.arg("PX").arg(MARKER_LASTS_MS);
        commands.cmd("WAIT").arg(self.wanted);
        commands.arg(u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX));
        match link.send_all(&commands, limit).await.as_deref() {
            Ok([Value::Okay, Value::Int(count)]) => u32::try_from(*count).ok(),
            Ok([Value::ServerError(error), _] | [_, Value::ServerError(error)]) => {
                if let Failure::WrongNode(_) = answered(error) {
                    link.retire();
                }
                None
            }
            _ => None,
        }
    }

    fn open_line(&self) -> Option<(Line, Link)> {
        let line = self.line_now();
        line.as_ref().filter(|(_, link)| !link.is_broken()).cloned()
    }

    fn line_now(&self) -> MutexGuard<'_, Option<(Line, Link)>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn last_round(&self) -> Option<Round> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::{TcpListener, TcpStream},
        sync::Notify,
    };

    use super::{
        super::{credentials::Credentials, link::Endpoint, route::Route},
        *,
    };
    use crate::{
        config::{RedisLogin, RedisNode},
        lifecycle::Lifecycle,
    };

    /// Answers as a Redis with one replica would, until it hangs up.
    async fn answer(mut client: TcpStream, hang_up: Arc<Notify>) -> std::io::Result<()> {
        let mut request = [0; 4_096];
        loop {
            let read = tokio::select! {
                read = client.read(&mut request) => read?,
                () = hang_up.notified() => return Ok(()),
            };
            let request = String::from_utf8_lossy(&request[..read]);
            let reply = match () {
                () if request.contains("SET") => "+OK\r\n:1\r\n",
                () if request.contains("WAIT") => ":1\r\n",
                () => "+PONG\r\n",
            };
            client.write_all(reply.as_bytes()).await?;
        }
    }

    #[tokio::test]
    async fn a_grant_is_confirmed_by_the_connection_that_is_older_than_it_and_by_no_other() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (lifecycle, hang_up) = (Lifecycle::new(), Arc::new(Notify::new()));
        let (tasks, ends) = (lifecycle.clone(), Arc::clone(&hang_up));
        lifecycle.spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let hang_up = Arc::clone(&ends);
                tasks.spawn(async move { drop(answer(client, hang_up).await) });
            }
        });
        let config = RedisConfig {
            wait_replicas: 1,
            ..RedisConfig::default()
        };
        let credentials = Credentials::of_redis(&RedisLogin::default(), &config);
        let node = RedisNode::new("127.0.0.1", port);
        let timeout = config.connect_timeout_ms.duration();
        let endpoint = Endpoint::new(node, Arc::new(credentials), timeout);
        let pool = Pool::new(Route::to(endpoint), &config);
        let replicas = Replicas::new(&config);

        let before = replicas.line(&pool).await.unwrap().unwrap();
        assert_eq!(replicas.have(before).await, Ok(()));
        hang_up.notify_waiters();
        while replicas.open_line().is_some() {
            tokio::task::yield_now().await;
        }
        // Between the two the server may have lost the grant, or have been replaced.
        assert_eq!(replicas.have(before).await, Err(None));
        let after = replicas.line(&pool).await.unwrap().unwrap();
        assert_ne!(before, after);
        assert_eq!(replicas.have(before).await, Err(None));
        assert_eq!(replicas.have(after).await, Ok(()));
    }
}

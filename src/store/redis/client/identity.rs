//! Tracks which run of which server an address leads to.
//!
//! A gateway must decide about locks at one server at a time. So each new connection learns which run of which server
//! it has reached before any other command is sent on it. If the run is another one than before, the server was
//! restarted, or the address leads to another server while the first one is still running (a proxy was switched, a
//! name was given to another server). In both cases all connections are closed, and none is used until several
//! connections that are opened at once reach the same run. An address that leads to several servers in turn is
//! refused, and is tried less often each time.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::{
    sync::Mutex as AsyncMutex,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

use crate::store::Unavailability;

/// Tracks which run of which server an address leads to.
pub(super) struct Identity {
    /// Held while connections are opened to find out which server the address leads to.
    pub(super) turn: AsyncMutex<()>,
    state: Mutex<IdentityState>,
}

struct IdentityState {
    leads: Leads,
    /// Cancelled when the connections that were opened so far must be closed.
    connections: CancellationToken,
    /// When a new connection last reached the known run of the server.
    reached: Instant,
    /// When a new connection last reached another server than the known server.
    moved: Option<Instant>,
    /// `pause`: how long the address is not tried if it leads to several servers again. `settled`: since when it has
    /// led to one server.
    pause: Duration,
    settled: Instant,
}

/// Which run of a server an address leads to, as far as the gateway knows.
enum Leads {
    /// No connection to the address has been opened yet.
    Unknown,
    /// The address leads to this run of a server; `None` if the server does not name its run.
    To(Option<RunId>),
    /// The address may lead to several servers: several connections must reach the same run before one is used.
    Doubtful {
        /// Time before which the gateway does not connect to the address again.
        until: Instant,
        /// How long the address is not tried if it leads to several servers again.
        pause: Duration,
        why: Unavailability,
    },
}

/// Whether a new connection has reached the known run of the server.
#[derive(Debug)]
pub(super) enum Reached {
    /// The connection has reached the known run. The token is cancelled when the connections to that run are closed.
    Same(CancellationToken),
    /// The known run of the server changed while the connection was being opened: another connection is needed.
    Outdated,
    /// The connection has reached another run of a server: all connections must be closed.
    Another {
        /// Whether the new run was running already when the known run was last reached. If so, the address leads to
        /// another server, and the known server was not restarted.
        moved: bool,
    },
}

/// How many connections must reach the same run before one is used, after another run was reached.
const CONNECTIONS: usize = 4;
/// How many connections must reach the same run before one is used, after the address has led to several servers.
const CONNECTIONS_IN_DOUBT: usize = 16;
/// The first pause before an address is tried again that has led to several servers; the pause doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Maximum error of a server's reported uptime, which is in whole seconds and may be one second too long.
const AGE_IS_OFF: Duration = Duration::from_secs(1);
/// How long readiness warns that the address has moved to another server.
const TOLD_FOR: Duration = Duration::from_mins(10);

// === impl Identity ===

impl Identity {
    /// Creates the state of an address to which no connection was opened yet. `connections`: cancelled when the first
    /// connections must be closed.
    pub(super) fn new(connections: CancellationToken) -> Self {
        Self {
            turn: AsyncMutex::new(()),
            state: Mutex::new(IdentityState {
                leads: Leads::Unknown,
                connections,
                reached: Instant::now(),
                moved: None,
                pause: FIRST_PAUSE,
                settled: Instant::now(),
            }),
        }
    }

    /// How many connections must reach the same run of a server before one is used; `None` if the known run is not in
    /// doubt. Fails while the address must not be tried yet.
    pub(super) fn doubt(&self) -> Result<Option<usize>, Unavailability> {
        match &self.state.lock().leads {
            Leads::Doubtful { until, why, .. } if *until > Instant::now() => Err(why.clone()),
            Leads::Doubtful { pause, .. } if *pause > FIRST_PAUSE => Ok(Some(CONNECTIONS_IN_DOUBT)),
            Leads::Doubtful { .. } => Ok(Some(CONNECTIONS)),
            Leads::Unknown | Leads::To(_) => Ok(None),
        }
    }

    /// Whether the run of the server is known, so that a connection to another server is noticed.
    pub(super) fn is_certain(&self) -> bool {
        matches!(self.state.lock().leads, Leads::To(Some(_)))
    }

    /// Records that the known run must be reached by several connections again before one is used. `next`: creates the
    /// token for these connections. Returns whether the run was in use.
    pub(super) fn put_in_doubt(&self, next: impl FnOnce() -> CancellationToken) -> bool {
        let mut state = self.state.lock();
        let was_used = matches!(state.leads, Leads::To(_));
        if was_used {
            state.doubt(Instant::now(), next);
        }
        was_used
    }

    /// A token that is cancelled when the connections that were opened so far are closed.
    pub(super) fn connections(&self) -> CancellationToken {
        self.state.lock().connections.clone()
    }

    /// Records which run a new connection has reached. `connections`: the token from when the connection was begun.
    /// `next`: creates the token for later connections if the run is another one.
    pub(super) fn note(
        &self,
        run: &Run,
        connections: &CancellationToken,
        next: impl FnOnce() -> CancellationToken,
    ) -> Reached {
        let mut state = self.state.lock();
        match &state.leads {
            Leads::To(known) if known.as_ref() == run.id() => {}
            Leads::Unknown => state.leads = Leads::To(run.id().cloned()),
            Leads::Doubtful { .. } => return Reached::Outdated,
            Leads::To(_) if connections.is_cancelled() => return Reached::Outdated,
            Leads::To(_) => {
                let certain = state.reached.elapsed() + AGE_IS_OFF;
                let moved = run.age().is_some_and(|age| age >= certain);
                let now = Instant::now();
                let mut until = now;
                if moved {
                    // The address may only seem to lead to one server since the last change: a proxy that balances
                    // unevenly leads several connections to the same server now and then.
                    if state.moved.is_some() && state.settled.elapsed() < LONGEST_PAUSE {
                        until += state.pause;
                        state.pause = (2 * state.pause).min(LONGEST_PAUSE);
                    } else {
                        state.pause = FIRST_PAUSE;
                    }
                    state.moved = Some(now);
                }
                state.doubt(until, next);
                return Reached::Another { moved };
            }
        }
        state.reached = Instant::now();
        Reached::Same(state.connections.clone())
    }

    /// Records which runs were reached by several connections that were opened at once. Returns whether the connections
    /// reach several servers now and did not before, so that the caller logs this once.
    pub(super) fn settle(&self, runs: Result<Vec<Run>, Unavailability>) -> bool {
        let mut state = self.state.lock();
        let Leads::Doubtful { pause, .. } = state.leads else {
            return false;
        };
        let now = Instant::now();
        let (until, next_pause, why) = match runs {
            Ok(runs) if runs.iter().all(|run| run.id() == runs[0].id()) => {
                state.leads = Leads::To(runs[0].id().cloned());
                (state.reached, state.settled, state.pause) = (now, now, pause);
                return false;
            }
            Ok(_) => (
                now + pause,
                (2 * pause).min(LONGEST_PAUSE),
                Unavailability::SeveralServers,
            ),
            Err(why) => (now + FIRST_PAUSE, pause, why),
        };
        let is_news = pause == FIRST_PAUSE && next_pause > pause;
        state.leads = Leads::Doubtful {
            until,
            pause: next_pause,
            why,
        };
        is_news
    }

    /// Readiness warning about which servers the address leads to, which applies although connections can be opened.
    pub(super) fn warning(&self) -> Option<&'static str> {
        let state = self.state.lock();
        if state.moved.is_some_and(|at| at.elapsed() < TOLD_FOR) {
            return Some(
                "the address of the server has moved to another server in the last ten minutes, \
                 which knows no lock of the previous server; if gateways still use the previous \
                 server, a lock may be granted twice",
            );
        }
        matches!(state.leads, Leads::To(None)).then_some(
            "the server does not say its run_id (INFO server), so no gateway notices if its \
             address moves to another server, and leases that ended lately are not ended again at \
             a server that takes over",
        )
    }
}

// === impl IdentityState ===

impl IdentityState {
    /// Closes the connections that were opened so far. The address is tried again from `until` on.
    fn doubt(&mut self, until: Instant, next: impl FnOnce() -> CancellationToken) {
        self.leads = Leads::Doubtful {
            until,
            pause: self.pause,
            why: Unavailability::SeveralServers,
        };
        std::mem::replace(&mut self.connections, next()).cancel();
    }
}

// === Run ===
//
// The run of the server at the other end of a connection, and how long it has run.

/// The run of a server that a connection leads to, and the server's uptime. The server is asked once for each
/// connection, because a connection never leads to another run. Empty if the server was not asked, or did not say.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// The server's uptime, and when the server was asked for it.
    uptime: Option<(Duration, Instant)>,
    id: Option<RunId>,
}

/// Id of one run of a server; no other run and no other server has the same id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunId(Arc<str>);

// === impl Run ===

impl Run {
    /// Reads the reply to `INFO server`, which was sent at `asked`.
    pub(crate) fn read(info: &str, asked: Instant) -> Self {
        Self {
            uptime: uptime(info).map(|uptime| (uptime, asked)),
            id: RunId::read(info),
        }
    }

    /// How long the server has run by now; `None` if the server was not asked, or did not say.
    pub(crate) fn age(&self) -> Option<Duration> {
        let (uptime, asked) = self.uptime?;
        Some(uptime + asked.elapsed())
    }

    /// Id of the run; `None` if the server was not asked, or did not say.
    pub(crate) fn id(&self) -> Option<&RunId> {
        self.id.as_ref()
    }
}

/// The value of a field in a reply to INFO.
pub(crate) fn info_field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = info.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

fn uptime(info: &str) -> Option<Duration> {
    let seconds = info_field(info, "uptime_in_seconds")?;
    seconds.parse().ok().map(Duration::from_secs)
}

// === impl RunId ===

impl RunId {
    /// Reads the id of the run from a reply to `INFO server`.
    pub(crate) fn read(info: &str) -> Option<Self> {
        info_field(info, "run_id").map(|id| Self(id.into()))
    }

    /// The id of the run as the server writes it.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn run(id: &str, seconds: u64) -> Run {
        let info = format!("run_id:{id}\r\nuptime_in_seconds:{seconds}\r\n");
        Run::read(&info, Instant::now())
    }

    fn note(identity: &Identity, run: &Run, connections: &CancellationToken) -> &'static str {
        match identity.note(run, connections, CancellationToken::new) {
            Reached::Same(_) => "the same",
            Reached::Outdated => "outdated",
            Reached::Another { moved: true } => "moved",
            Reached::Another { moved: false } => "started again",
        }
    }

    #[tokio::test(start_paused = true)]
    async fn another_server_ends_all_connections_and_is_used_when_several_have_reached_it() {
        let identity = Identity::new(CancellationToken::new());
        let before = identity.connections();
        assert_eq!(note(&identity, &run("a", 0), &before), "the same");
        assert_eq!(identity.doubt(), Ok(None));
        advance(Duration::from_secs(2)).await;
        assert_eq!(note(&identity, &run("b", 3), &before), "moved");
        assert!(before.is_cancelled());
        assert_eq!(note(&identity, &run("a", 2), &before), "outdated");
        assert_eq!(identity.doubt(), Ok(Some(CONNECTIONS)));
        assert!(!identity.settle(Ok(vec![run("b", 3), run("b", 3)])));
        assert_eq!(identity.doubt(), Ok(None));
        let next = note(&identity, &run("b", 3), &identity.connections());
        assert_eq!(next, "the same");
        assert!(identity.warning().is_some());
        advance(TOLD_FOR).await;
        assert_eq!(identity.warning(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_was_started_again_has_not_moved() {
        let identity = Identity::new(CancellationToken::new());
        let before = identity.connections();
        note(&identity, &run("a", 9), &before);
        advance(Duration::from_secs(2)).await;
        // The uptime is a difference of two times in whole seconds, so it may be one second too high.
        assert_eq!(note(&identity, &run("b", 2), &before), "started again");
        assert_eq!(identity.warning(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_moves_again_soon_is_not_used_for_longer_each_time() {
        let identity = Identity::new(CancellationToken::new());
        note(&identity, &run("a", 99), &identity.connections());
        let moves_to = |server| {
            let moved = note(&identity, &run(server, 99), &identity.connections());
            assert_eq!(moved, "moved");
        };
        let mut pause = Duration::ZERO;
        for server in ["b", "a", "b", "a"] {
            advance(Duration::from_secs(1)).await;
            moves_to(server);
            if let Some(almost) = pause.checked_sub(Duration::from_millis(1)) {
                advance(almost).await;
                assert_eq!(identity.doubt(), Err(Unavailability::SeveralServers));
                advance(Duration::from_millis(1)).await;
            }
            assert!(identity.doubt().is_ok(), "{pause:?}");
            // All of these connections have reached the same server, by chance.
            identity.settle(Ok(vec![run(server, 99), run(server, 99)]));
            pause = (2 * pause).max(FIRST_PAUSE);
        }
        advance(LONGEST_PAUSE).await;
        moves_to("b");
        assert_eq!(identity.doubt(), Ok(Some(CONNECTIONS)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_address_that_leads_to_several_servers_is_tried_less_often_each_time() {
        let identity = Identity::new(CancellationToken::new());
        let before = identity.connections();
        note(&identity, &run("a", 9), &before);
        note(&identity, &run("b", 9), &before);
        let mut expected = FIRST_PAUSE;
        for round in 0..12 {
            let told = identity.settle(Ok(vec![run("a", 9), run("b", 9)]));
            assert_eq!(told, round == 0, "it is told once");
            assert_eq!(identity.doubt(), Err(Unavailability::SeveralServers));
            advance(expected.saturating_sub(Duration::from_millis(1))).await;
            assert_eq!(identity.doubt(), Err(Unavailability::SeveralServers));
            advance(Duration::from_millis(1)).await;
            assert_eq!(identity.doubt(), Ok(Some(CONNECTIONS_IN_DOUBT)));
            expected = (2 * expected).min(LONGEST_PAUSE);
        }
        // An address that cannot be reached is tried again soon.
        let away = Unavailability::Connect("away".to_owned());
        assert!(!identity.settle(Err(away.clone())));
        assert_eq!(identity.doubt(), Err(away));
        advance(FIRST_PAUSE).await;
        assert_eq!(identity.doubt(), Ok(Some(CONNECTIONS_IN_DOUBT)));
    }

    #[test]
    fn is_told_with_its_age_in_whole_seconds() {
        let info = "# Server\r\nrun_id:0a1b\r\nuptime_in_seconds:61\r\nuptime_in_days:0\r\n";
        assert_eq!(uptime(info), Some(Duration::from_secs(61)));
        assert_eq!(uptime("# Server\r\nuptime_in_seconds:x\r\n"), None);
        assert_eq!(RunId::read(info), Some(RunId("0a1b".into())));
        assert_eq!(RunId::read("# Server\r\n"), None);
        assert_eq!(Run::default().age(), None);
        assert_eq!(Run::default().id(), None);
    }
}

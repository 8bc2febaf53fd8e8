//! Acquires a lock for a command: waits in the queue, shows the progress, and withdraws the acquire after a signal.

use std::{
    fmt::{Display, Write as _},
    io::{self, IsTerminal, Write as _},
    time::Duration,
};

use rustix::process::{Signal, kill_current_process_group};
use tokio::{
    sync::watch,
    time::{Instant, interval, sleep_until},
};

use crate::{
    client::{AcquireRequest, Acquiring, Client, ClientError, Lease, WaitStatus, format_duration},
    lock::LockName,
};

use super::{
    super::{
        caller::request::{WantedLocks, parts},
        error::CliError,
    },
    output::{self, notify_if_slow},
    signals::{CLEANUP_GRACE, GIVING_UP, Signals},
    text::reserved,
    visible,
};

/// How often the progress line is drawn again, because it shows the seconds waited.
const DRAWN_EVERY: Duration = Duration::from_secs(1);
/// How often the lock is inspected during a wait, if a terminal shows the progress.
const DRAWN_LOOK: Duration = Duration::from_secs(2);
/// How often the lock is inspected during a wait without a terminal: many commands may wait so, and no user watches
/// them.
const LOOKED_AT_EVERY: Duration = Duration::from_secs(5);
/// How often a line is written during a wait in which nothing changes: systems that run jobs end a job that writes
/// nothing for some minutes.
const SAID_EVERY: Duration = Duration::from_secs(30);

/// The message while the gateway does not answer the withdrawal of the acquire.
const WITHDRAWAL_UNANSWERED: &str = "the gateway has not answered the withdrawal yet; after another signal \
                                     (Ctrl-C) a lock that was granted meanwhile stays held until its TTL is over";

/// Acquires the locks, and handles signals during the wait.
pub(crate) async fn acquire(
    client: &Client,
    wanted: WantedLocks,
    request: AcquireRequest,
    signals: &mut Signals,
) -> Result<Lease, CliError> {
    let name = wanted.locks.first().clone();
    let label = wanted.locks.label();
    let without_mode = wanted.without_mode();
    let mut acquiring = wanted.acquiring(client, request);
    let error = match watched(&label, &mut acquiring, signals).await {
        Ok(lease) => {
            let parts = parts(&lease);
            for part in &parts {
                if part.mode.is_shared() && without_mode.contains(&part.name) {
                    let name = &part.name;
                    let flag = match &parts[..] {
                        [_] => "--exclusive".to_owned(),
                        _ => format!("{name}=exclusive"),
                    };
                    output::note(&format!(
                        "{name} is shared with other holders, as it is declared; {flag} asks for it alone"
                    ));
                }
            }
            return Ok(lease);
        }
        Err(error) => error,
    };
    // After these errors the acquire must be withdrawn: a position left in the queue, or a lease whose answer was lost,
    // would block other callers.
    if let CliError::Interrupted(_) | CliError::Client(ClientError::OutcomeUnknown { .. }) = error {
        // If another signal interrupts the withdrawal, the gateway releases the position or the undelivered lease a few
        // seconds later.
        let withdrawal = notify_if_slow(&name, WITHDRAWAL_UNANSWERED, acquiring.withdraw());
        signals.until_second_signal(Box::pin(withdrawal)).await;
    }
    Err(error)
}

async fn watched(
    name: &(dyn Display + Sync),
    acquiring: &mut Acquiring,
    signals: &mut Signals,
) -> Result<Lease, CliError> {
    let asked = Instant::now();
    let drawn = ProgressLine::is_visible();
    let mut line = ProgressLine::default();
    let mut report = WaitReport::new(asked);
    let waits = acquiring.waits();
    let (sender, mut news) = watch::channel(None);
    let acquire = async {
        let period = if drawn { DRAWN_LOOK } else { LOOKED_AT_EVERY };
        let mut outage = Outage::new(name, asked);
        let mut listener = |waiting: &WaitStatus| {
            if !drawn {
                outage.update(waiting.trouble.as_ref());
            }
            sender.send_replace(Some(SeenStatus::now(waiting.clone())));
        };
        let period = (drawn || waits).then_some(period);
        let lease = acquiring.finish_watched_every(period, &mut listener);
        let lease = lease.await?;
        if !drawn {
            outage.update(None);
        }
        Ok::<_, ClientError>(lease)
    };
    let mut acquire = std::pin::pin!(acquire);
    let mut tick = interval(DRAWN_EVERY);
    loop {
        tokio::select! {
            biased;
            signal = signals.next() => match signal {
                Signal::TSTP => {
                    line.clear();
                    suspend();
                }
                signal if GIVING_UP.contains(&signal) => return Err(CliError::Interrupted(signal)),
                // Other signals change nothing: CHILD is for a child that this process has inherited, CONT follows a
                // suspension.
                _ => {}
            },
            lease = &mut acquire => return Ok(lease?),
            _ = tick.tick(), if drawn => {
                let waited = asked.elapsed();
                match &*news.borrow() {
                    Some(seen) => line.draw(&visible(&describe(name, &seen.current(), waited))),
                    None if waited >= DRAWN_EVERY => line.draw(&describe_unanswered(name, waited)),
                    None => {}
                }
            }
            Ok(()) = news.changed(), if !drawn && waits => {
                report.update(name, news.borrow_and_update().as_ref());
            }
            () = sleep_until(report.due()), if !drawn && waits => {
                report.update(name, news.borrow().as_ref());
            }
        }
    }
}

/// Suspends the process group of this process, as Ctrl-Z would do without a handler. The signal is TTIN, because it
/// suspends only where a shell can continue the group, and has no effect elsewhere.
pub(crate) fn suspend() {
    kill_current_process_group(Signal::TTIN).expect("a process may send a signal to its own group");
}

// === Outage ===
//
// Reports once that an acquire gets no answers, and once that it gets answers again.

/// Whether the gateways answer an acquire. Used without a terminal, where no progress line shows an outage.
pub(crate) struct Outage<'a> {
    name: &'a (dyn Display + Sync),
    asked: Instant,
    /// Whether a gateway was ever reached. If none is reached, the command soon ends with that error.
    reached: bool,
    announced: bool,
}

// === impl Outage ===

impl<'a> Outage<'a> {
    /// The state of an acquire that began at `asked` and has had no outage.
    pub(crate) fn new(name: &'a (dyn Display + Sync), asked: Instant) -> Self {
        Self {
            name,
            asked,
            reached: false,
            announced: false,
        }
    }

    /// Records the result of the last request: its failure, or that it was answered.
    pub(crate) fn update(&mut self, trouble: Option<&ClientError>) {
        if let Some(message) = self.message(trouble) {
            output::note(&format!("latchgate: {}: {}", self.name, visible(&message)));
        }
    }

    /// The message to print about the outage, if the state has changed.
    fn message(&mut self, trouble: Option<&ClientError>) -> Option<String> {
        self.reached |= !matches!(trouble, Some(ClientError::Unreachable { .. }));
        match trouble {
            // An outage in the first moment of the acquire is not reported: it may end at once.
            Some(error)
                if self.reached && !self.announced && self.asked.elapsed() >= CLEANUP_GRACE =>
            {
                self.announced = true;
                Some(format!(
                    "the gateway cannot be asked, trying again: {error}"
                ))
            }
            Some(_) => None,
            None => {
                std::mem::take(&mut self.announced).then(|| "the gateway answers again".to_owned())
            }
        }
    }
}

// === Wait report ===
//
// Reports the progress of a wait in lines on standard error, without a terminal.

/// What the last line about a wait reported. A line is written at the start, when the position or the holder changes,
/// and every half minute.
pub(crate) struct WaitReport {
    asked: Instant,
    said_at: Option<Instant>,
    name: Option<LockName>,
    position: Option<u64>,
    holder: Option<HolderIdentity>,
}

/// The properties that tell whether a lock has the same holder as before.
#[derive(Debug, Clone, PartialEq, Eq)]
enum HolderIdentity {
    One(Option<u64>, Option<String>, Option<String>),
    /// The number of shared leases. A single one is not compared: the lease that ends first, which the gateway reports,
    /// is another one after each renewal.
    Several(u64),
}

/// A status of the wait, and the instant at which it was received.
#[derive(Debug, Clone)]
pub(crate) struct SeenStatus {
    status: WaitStatus,
    at: Instant,
}

// === impl SeenStatus ===

impl SeenStatus {
    pub(crate) fn now(status: WaitStatus) -> Self {
        let at = Instant::now();
        Self { status, at }
    }

    /// The status as it most likely is now: the time since it was received is subtracted from the holder's time left.
    fn current(&self) -> WaitStatus {
        let mut status = self.status.clone();
        if let Some(holder) = &mut status.holder {
            let since = u64::try_from(self.at.elapsed().as_millis()).unwrap_or(u64::MAX);
            let left = holder.expires_in_ms.map(|ms| ms.saturating_sub(since));
            // If no time is left, the lease was renewed or has ended since, so its time left is unknown.
            holder.expires_in_ms = left.filter(|&ms| ms > 0);
        }
        status
    }
}

// === impl WaitReport ===

impl WaitReport {
    /// The report of a wait that began at `asked`, before its first line is written.
    pub(crate) fn new(asked: Instant) -> Self {
        Self {
            asked,
            said_at: None,
            name: None,
            position: None,
            holder: None,
        }
    }

    /// When the next line is due even if nothing has changed.
    pub(crate) fn due(&self) -> Instant {
        match self.said_at {
            // No line is written about a wait that ends within a moment.
            None => self.asked + DRAWN_EVERY,
            Some(at) => at + SAID_EVERY,
        }
    }

    fn update(&mut self, name: &(dyn Display + Sync), seen: Option<&SeenStatus>) {
        if let Some(message) = self.message(name, seen) {
            output::note(&format!("latchgate: {}", visible(&message)));
        }
    }

    /// The next line to write, if it is due or the status has changed.
    fn message(
        &mut self,
        name: &(dyn Display + Sync),
        seen: Option<&SeenStatus>,
    ) -> Option<String> {
        let now = Instant::now();
        let status = seen.map(SeenStatus::current);
        // During an outage only `Outage` writes messages: the status is the one from before, so it is not reported as a
        // change.
        let changed = status
            .as_ref()
            .is_some_and(|status| status.trouble.is_none() && self.learns(status));
        if !changed && now < self.due() {
            return None;
        }
        let is_first = self.said_at.replace(now).is_none();
        if is_first
            && status
                .as_ref()
                .is_some_and(|status| status.trouble.is_some())
        {
            return None;
        }
        let waited = self.asked.elapsed();
        Some(match status {
            Some(status) => describe(name, &status, waited),
            None => describe_unanswered(name, waited),
        })
    }

    /// Whether the position or the holder has changed since the last status. Unknown values count as unchanged.
    fn learns(&mut self, status: &WaitStatus) -> bool {
        let position = status.position.or(self.position);
        let holder = match (several(status), &status.holder) {
            (Some(count), _) => Some(HolderIdentity::Several(count)),
            (None, Some(holder)) => {
                let (mark, owner) = (holder.foreign_mark.clone(), holder.owner.clone());
                Some(HolderIdentity::One(holder.fencing_token, mark, owner))
            }
            (None, None) => None,
        };
        let holder = holder.or_else(|| self.holder.clone());
        let name = status.name.clone();
        let is_new = (&name, &position, &holder) != (&self.name, &self.position, &self.holder);
        (self.name, self.position, self.holder) = (name, position, holder);
        is_new
    }
}

// === Progress ===
//
// The line that shows the progress of a wait on a terminal.

/// Terminal codes that go to the beginning of the line and erase it.
const CLEAR: &str = "\r\x1b[K";

/// A line on the terminal at standard error, which shows the progress of a wait and is drawn again and again.
#[derive(Default)]
pub(crate) struct ProgressLine {
    drawn: bool,
}

// === impl ProgressLine ===

impl ProgressLine {
    /// Whether the progress line can be seen: whether standard error is a terminal.
    pub(crate) fn is_visible() -> bool {
        io::stderr().is_terminal()
    }

    pub(crate) fn draw(&mut self, text: &str) {
        // A terminal of unknown width reports 0 columns.
        let columns = rustix::termios::tcgetwinsize(io::stderr())
            .ok()
            .map(|size| size.ws_col)
            .filter(|&columns| columns > 0)
            .unwrap_or(80);
        // Cut to the width: a line that wraps could not be erased.
        let displayed: String = text.chars().take(usize::from(columns) - 1).collect();
        put(&format!("{CLEAR}{displayed}"));
        self.drawn = true;
    }

    /// Erases the progress line, so that other messages can be written.
    pub(crate) fn clear(&mut self) {
        if self.drawn {
            put(CLEAR);
            self.drawn = false;
        }
    }
}

impl Drop for ProgressLine {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The text of the progress before the gateway's first answer.
pub(crate) fn describe_unanswered(name: &(dyn Display + Sync), waited: Duration) -> String {
    beginning(name, waited) + ", no answer yet"
}

/// The text that describes the progress of a wait: the lock, the position, the holder and the time waited.
pub(crate) fn describe(
    name: &(dyn Display + Sync),
    waiting: &WaitStatus,
    waited: Duration,
) -> String {
    let mut text = match &waiting.have[..] {
        [] => String::new(),
        [one] => format!("have {one}, "),
        [first, more @ ..] => format!("have {first} and {} more, ", more.len()),
    };
    text += &match &waiting.name {
        Some(name) => beginning(name, waited),
        None => beginning(name, waited),
    };
    let mut add = |fact: std::fmt::Arguments<'_>| {
        text.write_fmt(fact)
            .expect("writing to a String never fails");
    };
    if let Some(trouble) = &waiting.trouble {
        add(format_args!(", trying again: {trouble}"));
        return on_a_line(&text);
    }
    match (waiting.position, waiting.waiters) {
        (Some(position), Some(waiters)) => {
            add(format_args!(
                ", position {position} of {}",
                waiters.max(position)
            ));
        }
        (None, Some(waiters @ 1..)) => add(format_args!(", {waiters} waiting")),
        _ => {}
    }
    if waiting.may_not_view {
        add(format_args!(", the key may not view the lock"));
    }
    if waiting.has_room {
        add(format_args!(
            ", the lock has room, but earlier waiters come first"
        ));
    } else if let Some(count) = several(waiting) {
        add(format_args!(", {count} hold it"));
    } else if let Some(holder) = &waiting.holder {
        match &holder.owner {
            Some(owner) => add(format_args!(", held by {owner}")),
            None if holder.foreign => add(format_args!(", held by a client without a gateway")),
            None => {}
        }
        if let Some(reservation) = &holder.reservation {
            add(format_args!(", reserved {}", reserved(reservation)));
        } else if let Some(ms) = holder.expires_in_ms {
            let left = format_duration(Duration::from_millis(ms));
            add(format_args!(", expires in {left}"));
        }
    } else if let Some(left) = waiting.available_in {
        add(format_args!(", rests for {}", format_duration(left)));
    }
    on_a_line(&text)
}

/// The number of holders of the lock, if there is more than one.
fn several(waiting: &WaitStatus) -> Option<u64> {
    waiting.holder_count.filter(|&count| count > 1)
}

fn beginning(name: &(dyn Display + Sync), waited: Duration) -> String {
    let waited = format_duration(Duration::from_secs(waited.as_secs().max(1)));
    format!("waiting for {name}: {waited}")
}

/// Removes control characters, so that texts from answers cannot move the cursor.
fn on_a_line(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

fn put(text: &str) {
    let mut out = io::stderr().lock();
    // A failed write is ignored: without the terminal, no user sees the progress line.
    drop(out.write_all(text.as_bytes()));
    drop(out.flush());
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    fn unreachable() -> ClientError {
        ClientError::Unreachable {
            url: "http://a".to_owned(),
            reason: "gone".to_owned(),
        }
    }

    fn unanswered() -> ClientError {
        ClientError::OutcomeUnknown {
            reason: "cut".to_owned(),
            problem: None,
        }
    }

    /// The messages that `Outage` returns for these results of requests, with pauses between them.
    async fn messages<const N: usize>(results: [Option<ClientError>; N]) -> [Option<String>; N] {
        let name = LockName::new("deploy").unwrap();
        let mut outage = Outage::new(&name, Instant::now());
        let mut messages = [const { None }; N];
        for (trouble, messages) in results.iter().zip(&mut messages) {
            advance(Duration::from_secs(2)).await;
            *messages = outage.message(trouble.as_ref());
        }
        messages
    }

    #[tokio::test(start_paused = true)]
    async fn every_outage_is_told_once_and_so_is_its_end() {
        let begin = |error| {
            Some(format!(
                "the gateway cannot be asked, trying again: {error}"
            ))
        };
        let end = Some("the gateway answers again".to_owned());
        let (cut, gone) = (unanswered(), unreachable());
        let results = [
            Some(cut.clone()),
            Some(gone.clone()),
            None,
            None,
            Some(gone.clone()),
            None,
        ];
        let expected = [begin(&cut), None, end.clone(), None, begin(&gone), end];
        assert_eq!(messages(results).await, expected);
    }

    #[tokio::test(start_paused = true)]
    async fn a_gateway_that_was_never_there_does_not_answer_again() {
        let results = [Some(unreachable()), Some(unreachable()), None];
        assert_eq!(messages(results).await, [None, None, None]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_moment_is_not_worth_a_word() {
        let name = LockName::new("deploy").unwrap();
        let mut outage = Outage::new(&name, Instant::now());
        assert_eq!(outage.message(Some(&unanswered())), None);
        assert_eq!(outage.message(None), None);
    }

    fn displayed(waiting: &WaitStatus) -> String {
        let name = LockName::new("deploy").unwrap();
        describe(&name, waiting, Duration::from_millis(72_900))
    }

    fn holder(json: &str) -> WaitStatus {
        WaitStatus {
            holder: Some(serde_json::from_str(json).unwrap()),
            ..WaitStatus::default()
        }
    }

    #[test]
    fn says_what_is_known() {
        assert_eq!(
            displayed(&WaitStatus::default()),
            "waiting for deploy: 1m 12s"
        );
        let waiting = WaitStatus {
            position: Some(2),
            waiters: Some(5),
            ..holder(r#"{"owner":"ci@build7"}"#)
        };
        assert_eq!(
            displayed(&waiting),
            "waiting for deploy: 1m 12s, position 2 of 5, held by ci@build7"
        );
        let resting = WaitStatus {
            available_in: Some(Duration::from_secs(61)),
            ..WaitStatus::default()
        };
        let text = "waiting for deploy: 1m 12s, rests for 1m 1s";
        assert_eq!(displayed(&resting), text);
        let waiting = WaitStatus {
            holder_count: Some(3),
            has_room: true,
            ..waiting
        };
        assert_eq!(
            displayed(&waiting),
            "waiting for deploy: 1m 12s, position 2 of 5, the lock has room, but earlier waiters come first"
        );
        let waiting = WaitStatus {
            has_room: false,
            ..waiting
        };
        assert_eq!(
            displayed(&waiting),
            "waiting for deploy: 1m 12s, position 2 of 5, 3 hold it"
        );
    }

    /// The lines that `WaitReport` writes for these statuses, each this many seconds after the one before.
    async fn reported<const N: usize>(seen: [(u64, WaitStatus); N]) -> [Option<String>; N] {
        let name = LockName::new("deploy").unwrap();
        let mut report = WaitReport::new(Instant::now());
        let mut messages = [const { None }; N];
        for ((seconds, status), message) in seen.into_iter().zip(&mut messages) {
            advance(Duration::from_secs(seconds)).await;
            *message = report.message(&name, Some(&SeenStatus::now(status)));
        }
        messages
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_terminal_the_start_what_changes_and_each_half_minute_are_told() {
        let at = |position: u64, fence: u64| WaitStatus {
            position: Some(position),
            waiters: Some(3),
            ..holder(&format!(r#"{{"owner":"ci","fencing_token":{fence}}}"#))
        };
        let unseen = || WaitStatus::default();
        let said = reported([
            (0, at(2, 7)),
            (5, at(2, 7)),
            (5, unseen()),
            (5, at(1, 7)),
            (5, at(1, 8)),
            (29, at(1, 8)),
            (1, unseen()),
            (29, unseen()),
            (1, at(1, 8).with_trouble(unanswered())),
        ])
        .await;
        let is_said: Vec<_> = said.iter().map(Option::is_some).collect();
        let expected = [true, false, false, true, true, false, true, false, true];
        assert_eq!(is_said, expected, "{said:?}");
        let text = |number: usize| said[number].as_deref().unwrap_or_default();
        assert_eq!(
            (text(0), text(3)),
            (
                "waiting for deploy: 1s, position 2 of 3, held by ci",
                "waiting for deploy: 15s, position 1 of 3, held by ci"
            )
        );
        assert!(text(8).contains("trying again"), "{said:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn of_those_who_share_a_lock_only_their_number_is_news() {
        let shared = |count, fence: u64| WaitStatus {
            holder_count: Some(count),
            ..holder(&format!(r#"{{"fencing_token":{fence}}}"#))
        };
        let said = reported([
            (0, shared(3, 7)),
            (1, shared(3, 8)),
            (1, shared(2, 8)),
            (1, shared(1, 8)),
        ])
        .await;
        assert_eq!(said.map(|it| it.is_some()), [true, false, true, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_setback_is_no_news_of_the_queue() {
        let at = |position| WaitStatus {
            position: Some(position),
            ..WaitStatus::default()
        };
        let said = reported([
            (0, at(2)),
            (1, at(2).with_trouble(unanswered())),
            (1, at(2)),
        ])
        .await;
        assert_eq!(said.map(|it| it.is_some()), [true, false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_without_an_answer_is_told_too() {
        let name = LockName::new("deploy").unwrap();
        let mut report = WaitReport::new(Instant::now());
        assert_eq!(report.message(&name, None), None);
        advance(DRAWN_EVERY).await;
        assert_eq!(report.due(), Instant::now());
        let said = report.message(&name, None);
        assert_eq!(said.unwrap(), "waiting for deploy: 1s, no answer yet");
        advance(SAID_EVERY).await;
        assert_eq!(report.due(), Instant::now());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_left_of_a_lease_goes_on_to_get_less() {
        let seen = SeenStatus::now(holder(r#"{"owner":"ci","expires_in_ms":29987}"#));
        assert!(displayed(&seen.current()).ends_with("held by ci, expires in 29.9s"));
        advance(Duration::from_secs(5)).await;
        assert!(displayed(&seen.current()).ends_with("held by ci, expires in 24.9s"));
        advance(Duration::from_secs(25)).await;
        assert!(displayed(&seen.current()).ends_with("held by ci"));
    }

    #[test]
    fn what_a_group_has_is_told_before_what_it_waits_for() {
        let named = |name: &str| LockName::new(name).unwrap();
        for (have, text) in [
            (
                vec![named("a")],
                "have a, waiting for freeze: 1m 12s, held by ann",
            ),
            (
                ["a", "b", "c"].map(named).into(),
                "have a and 2 more, waiting for freeze: 1m 12s, held by ann",
            ),
        ] {
            let waiting = WaitStatus {
                name: Some(named("freeze")),
                have,
                ..holder(r#"{"owner":"ann"}"#)
            };
            assert_eq!(displayed(&waiting), text);
        }
    }

    #[test]
    fn a_position_is_never_beyond_the_end_of_the_queue() {
        let waiting = WaitStatus {
            position: Some(3),
            waiters: Some(2),
            ..WaitStatus::default()
        };
        assert!(displayed(&waiting).ends_with("position 3 of 3"));
    }

    #[test]
    fn an_answer_cannot_move_the_cursor() {
        let text = displayed(&holder("{\"owner\":\"\\u001b[2Jx\"}"));
        assert!(text.ends_with("held by [2Jx"), "{text:?}");
    }
}

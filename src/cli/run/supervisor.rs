//! Watches over a command, its lease, its terminal and the signals for it.

use std::{io, time::Duration};

use nix::sys::signal::{SigSet, Signal as Blocked};
use rustix::{
    process::{Pid, Signal, getpgrp},
    termios::{tcgetpgrp, tcsetpgrp},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    client::{LeaseRenewer, LeaseState, Loss, ReleaseRequest},
    lock::LockName,
};

use super::{
    super::terminal::{
        output,
        signals::{ENDING, Signals},
        text::{asked_for, duration},
        waiting::suspend,
    },
    args::{OnLost, OnRequest, RunArgs, Timing},
    guard::Guard,
    job::{Job, LOOK, Leftover, Orphans, Status},
};

/// What is watched over.
pub(super) struct Supervisor {
    name: LockName,
    job: Job,
    terminal: Option<Terminal>,
    guard: Option<Guard>,
    orphans: Orphans,
    lease: watch::Receiver<LeaseState>,
    lease_lost: bool,
    requests: watch::Receiver<Option<ReleaseRequest>>,
    on_request: OnRequest,
    /// What was asked of the command, if somebody has asked for the lock.
    request: Option<ReleaseRequest>,
    timing: Timing,
    on_lost: OnLost,
    term_at: Instant,
    kill_at: Instant,
    stage: Stage,
    /// Whether a signal stopped the command, which may be continued.
    stopped: bool,
    warned: bool,
    /// What is wrong with the lease, in case that stops the command.
    trouble: String,
    /// Why the command was stopped for good.
    why: Option<String>,
}

/// How far the command is on its way to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    Terminated,
    Killed,
    /// It has ended, but perhaps not what it has left running.
    Ended,
}

/// How the command ended.
pub(super) struct CommandEnd {
    /// Its exit code.
    pub(super) code: io::Result<u8>,
    /// What is left of its process group.
    pub(super) leftover: Leftover,
    /// Why it was stopped, if its lease was the reason.
    pub(super) stopped: Option<String>,
}

/// The signals that are handled while the command runs, and mean nothing during the wait.
pub(super) const OF_JOBS: [Signal; 3] = [Signal::CHILD, Signal::CONT, Signal::TSTP];

/// What a command without a guard is told of.
const UNGUARDED: &str = if cfg!(target_os = "linux") {
    "if this process is killed, the command is killed with it, but what it has started goes on without \
     the lock"
} else {
    "if this process is killed, the command goes on without the lock"
};

/// The exit code of a command that a KILL has ended.
const KILLED: u8 = 128 + 9;

/// How much sooner than here the timer of the guard may be over: it is told whole milliseconds.
const GUARD_EARLY: Duration = Duration::from_millis(5);

/// Why a command was stopped that should have ended.
const NOT_RELEASED: &str = "somebody asked for the lock, and it was not released in time";

/// After a suspension that was not to be, because no shell could undo it, this goes on.
const NOT_SUSPENDED: Duration = Duration::from_millis(100);

// === impl Supervisor ===

impl Supervisor {
    /// Takes charge of a command, and lets it begin: from its first moment it is guarded, and has the
    /// terminal.
    pub(super) fn new(
        name: &LockName,
        job: Job,
        renewer: &LeaseRenewer,
        timing: Timing,
        args: &RunArgs,
    ) -> Self {
        let on_lost = args.on_lost;
        let guard = match on_lost {
            OnLost::Terminate => Guard::start(job.group())
                .inspect_err(|error| {
                    output::note(&format!(
                        "latchgate: {name}: there is no guard ({error}): {UNGUARDED}"
                    ));
                })
                .ok(),
            OnLost::Continue => None,
        };
        let mut terminal = Terminal::of_process();
        if let Some(terminal) = &mut terminal {
            terminal.give(job.group());
        }
        let orphans = Orphans::beside(
            [job.group()]
                .into_iter()
                .chain(guard.as_ref().map(Guard::pid)),
        );
        let now = Instant::now();
        let mut this = Self {
            name: name.clone(),
            job,
            terminal,
            guard,
            orphans,
            lease: renewer.watch(),
            lease_lost: false,
            requests: renewer.requests(),
            on_request: args.on_request,
            request: None,
            timing,
            on_lost,
            term_at: now,
            kill_at: now,
            stage: Stage::Running,
            stopped: false,
            warned: false,
            trouble: String::new(),
            why: None,
        };
        // The guard is told first until when the command may run.
        this.look_at_lease();
        this.job.signal(Signal::CONT);
        this.look_at_request();
        this
    }

    /// Goes on until the command has ended, and all that it left running.
    pub(super) async fn finish(mut self, signals: &mut Signals) -> CommandEnd {
        loop {
            let (due, is_to_be_stopped) = (self.due(), self.is_to_be_stopped());
            tokio::select! {
                // First what is known by now: a process that did not run for a while may have missed both,
                // a renewal and the time to stop. Then what must not be late.
                biased;
                Ok(()) = self.lease.changed(), if !self.lease_lost => self.look_at_lease(),
                () = sleep_until(due), if is_to_be_stopped => self.stop_in_time(),
                Ok(()) = self.requests.changed() => self.look_at_request(),
                signal = signals.next() => {
                    if self.handle_signal(signal).await == Status::Ended {
                        break;
                    }
                }
            }
        }
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
        let was_due = self.was_told_to_end()
            && self.on_lost == OnLost::Terminate
            && Instant::now() + GUARD_EARLY >= self.kill_at;
        self.stage = Stage::Ended;
        self.job.signal(Signal::TERM);
        self.job.signal(Signal::CONT);
        let leftover = self.stop_what_is_left(signals).await;
        // From here on the number of the group may go to another: nobody signals it any more.
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
        }
        let code = self.job.collect();
        let was_killed = matches!(&code, Ok(code) if *code == KILLED);
        if was_killed && was_due {
            // The guard has a timer of its own, and may be the first.
            self.stopping();
        }
        CommandEnd {
            code,
            leftover: match leftover {
                Leftover::Nobody => self.job.look_for_hidden(&self.orphans).await,
                Leftover::Somebody => leftover,
            },
            stopped: self.why,
        }
    }

    /// Sees what the command has left running to its end. Signals are passed on to it.
    async fn stop_what_is_left(&mut self, signals: &mut Signals) -> Leftover {
        let at_last = self.timing.kill_if_stopped_now();
        let mut killed = None;
        loop {
            self.orphans.collect();
            let kill_at = match self.on_lost {
                OnLost::Terminate => self.kill_at.min(at_last),
                OnLost::Continue => at_last,
            };
            if let Some(leftover) = self.job.look(&mut killed, kill_at) {
                return leftover;
            }
            tokio::select! {
                Ok(()) = self.lease.changed(), if !self.lease_lost => self.look_at_lease(),
                () = sleep(LOOK) => {}
                signal = signals.ending() => self.job.signal(signal),
            }
        }
    }

    /// Does what a signal says, and tells how the command stands then.
    async fn handle_signal(&mut self, signal: Signal) -> Status {
        match signal {
            Signal::CHILD => {
                if self.guard.as_mut().is_some_and(Guard::has_ended) {
                    self.guard = None;
                    self.orphans = Orphans::beside([self.job.group()]);
                    // It may have ended because it has done what it is for.
                    if self.stage != Stage::Killed && Instant::now() < self.kill_at {
                        self.note(&format!("the guard is gone: {UNGUARDED}"));
                    }
                }
                self.orphans.collect();
                let status = self.job.status();
                if status == Status::Stopped {
                    self.stopped = true;
                    // A shell that waits for us must hear of it.
                    if self.terminal.is_some() {
                        self.suspend().await;
                    }
                }
                status
            }
            Signal::TSTP => {
                // Nobody renews meanwhile, so nothing may run.
                self.job.signal(Signal::STOP);
                self.stopped = true;
                self.suspend().await;
                Status::Stopped
            }
            Signal::CONT => {
                self.resume();
                Status::Running
            }
            signal => {
                self.job.signal(signal);
                if self.stopped && ENDING.contains(&signal) {
                    self.resume();
                }
                Status::Running
            }
        }
    }

    /// Stops this process, as the command is stopped already.
    async fn suspend(&mut self) {
        if let Some(terminal) = &mut self.terminal {
            terminal.take_back();
        }
        if let Some(until) = self.lease.borrow().until() {
            let left = until.saturating_duration_since(Instant::now());
            output::note(&format!(
                "latchgate: the lease of {} is not renewed while the command is suspended; it \
                 lasts for another {}",
                self.name,
                duration(left)
            ));
        }
        suspend();
        sleep(NOT_SUSPENDED).await;
        self.resume();
    }

    /// Lets the command go on, if it still has the lock.
    fn resume(&mut self) {
        if self.on_lost == OnLost::Terminate && Instant::now() >= self.kill_at {
            "it was suspended for longer than its lease lasted".clone_into(&mut self.trouble);
            self.kill();
            return;
        }
        if let Some(terminal) = &mut self.terminal {
            terminal.give(self.job.group());
        }
        if self.stopped {
            self.job.signal(Signal::CONT);
            self.stopped = false;
        }
    }

    /// Asks the command to end if somebody has asked for the lock. Its exit code remains its own.
    fn look_at_request(&mut self) {
        let request = self.requests.borrow_and_update().clone();
        let Some(request) = request else { return };
        let asked_for = asked_for(&request);
        match &request.name {
            None => self.note(&format!("to be released {asked_for}")),
            Some(name) => {
                output::note(&format!("latchgate: {name}: to be released {asked_for}"));
            }
        }
        let is_first = self.request.replace(request).is_none();
        match self.on_request {
            OnRequest::Term if is_first && self.stage == Stage::Running => {
                self.job.signal(Signal::TERM);
                if self.stopped {
                    // It could not hear it.
                    self.resume();
                }
            }
            OnRequest::Term | OnRequest::Ignore => {}
        }
    }

    fn look_at_lease(&mut self) {
        let state = self.lease.borrow_and_update().clone();
        match state {
            LeaseState::Kept { until } => {
                self.lasts_until(until);
                if self.warned && self.stage == Stage::Running {
                    self.note("the lease is renewed again");
                }
                self.warned = false;
                // Nothing else ends a lease that was renewed in time.
                let trouble = if self.request.is_some() {
                    NOT_RELEASED
                } else {
                    "this process did not run for longer than it lasted"
                };
                trouble.clone_into(&mut self.trouble);
            }
            LeaseState::AtLimit { until } => {
                self.lasts_until(until);
                "its hold limit is near".clone_into(&mut self.trouble);
            }
            LeaseState::AtRisk { until, reason } => {
                self.lasts_until(until);
                if !self.warned {
                    self.note(&format!(
                        "the lease could not be renewed, trying again: {reason}"
                    ));
                    self.warned = true;
                }
                self.trouble = format!("it could not be renewed: {reason}");
            }
            LeaseState::Lost(loss) => {
                self.lease_lost = true;
                self.trouble = loss.to_string();
                self.lost(&loss);
            }
        }
    }

    fn lasts_until(&mut self, until: Instant) {
        self.term_at = self.timing.term_at(until);
        let kill_at = self.timing.kill_at(until);
        self.kill_at = match self.stage {
            // It was told to end, and has as long as it was given then.
            Stage::Terminated => kill_at.min(self.kill_at),
            Stage::Running | Stage::Killed | Stage::Ended => kill_at,
        };
        self.update_guard();
    }

    fn lost(&mut self, loss: &Loss) {
        if self.on_lost == OnLost::Continue {
            self.note(&format!(
                "the lease is lost, the command goes on: {}",
                self.trouble
            ));
            return;
        }
        self.term_at = Instant::now();
        self.kill_at = self.kill_at.min(self.timing.kill_if_lost_now(loss));
        self.update_guard();
        if self.stage == Stage::Ended {
            self.note(&format!(
                "the lease is lost before what the command has left running is stopped: {}",
                self.trouble
            ));
        } else {
            self.stop_in_time();
        }
    }

    fn update_guard(&mut self) {
        if let Some(guard) = &mut self.guard {
            guard.kill_at(self.kill_at);
        }
    }

    fn is_to_be_stopped(&self) -> bool {
        self.on_lost == OnLost::Terminate && self.stage != Stage::Killed
    }

    /// Whether the command has got the TERM that leaves it time to end.
    fn was_told_to_end(&self) -> bool {
        self.request.is_some() && self.on_request == OnRequest::Term
    }

    /// When something must be done to stop the command in time.
    fn due(&self) -> Instant {
        match self.stage {
            Stage::Running if self.was_told_to_end() => self.kill_at,
            Stage::Running => self.term_at.min(self.kill_at),
            Stage::Terminated | Stage::Killed | Stage::Ended => self.kill_at,
        }
    }

    fn stop_in_time(&mut self) {
        if Instant::now() >= self.kill_at {
            self.kill();
        } else if self.stage == Stage::Running && (self.lease_lost || !self.was_told_to_end()) {
            self.stopping();
            self.stage = Stage::Terminated;
            self.job.signal(Signal::TERM);
            // A command that is suspended could not hear it.
            self.job.signal(Signal::CONT);
        }
    }

    fn kill(&mut self) {
        self.stopping();
        self.stage = Stage::Killed;
        self.job.signal(Signal::KILL);
    }

    fn stopping(&mut self) {
        if self.why.is_none() {
            self.note(&format!("stopping the command: {}", self.trouble));
            self.why = Some(self.trouble.clone());
        }
    }

    fn note(&self, what: &str) {
        output::note(&format!("latchgate: {}: {what}", self.name));
    }
}

// === Terminal ===
//
// Who may read from the terminal: the process group of `latchgate run`, or that of its command.

/// The terminal at standard input.
struct Terminal {
    own: Pid,
    given: bool,
}

// === impl Terminal ===

impl Terminal {
    /// The terminal at standard input, if that is the one that controls this process.
    fn of_process() -> Option<Self> {
        tcgetpgrp(io::stdin()).ok()?;
        Some(Self {
            own: getpgrp(),
            given: false,
        })
    }

    /// Gives the terminal to a group, if it is ours to give: that of a job in the background is not.
    fn give(&mut self, group: Pid) {
        if tcgetpgrp(io::stdin()) == Ok(self.own) {
            self.given = set_foreground(group);
        }
    }

    /// Takes back what was given.
    fn take_back(&mut self) {
        if self.given {
            // If the terminal has gone there is nothing to take.
            set_foreground(self.own);
            self.given = false;
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.take_back();
    }
}

/// Makes a group the one in the foreground. Whoever asks for that from the background is stopped by
/// the system, unless this signal is blocked.
fn set_foreground(group: Pid) -> bool {
    let mut stop = SigSet::empty();
    stop.add(Blocked::SIGTTOU);
    stop.thread_block()
        .expect("a thread may block signals for itself");
    let done = tcsetpgrp(io::stdin(), group).is_ok();
    stop.thread_unblock()
        .expect("a thread may unblock signals for itself");
    done
}

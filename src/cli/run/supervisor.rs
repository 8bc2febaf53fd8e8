//! Supervises the command of `latchgate run`: its lease, its terminal and the signals for it.

use std::{io, time::Duration};

use rustix::process::Signal;
use tokio::{
    sync::watch,
    time::{Instant, sleep, sleep_until},
};

use crate::{
    client::{LeaseRenewer, LeaseState, Loss, ReleaseRequest},
    lock::LockName,
};

use super::{
    super::{
        error::{CliError, Exit},
        terminal::{
            output,
            signals::{ENDING, Signals},
            text::{asked_for, duration},
            waiting::suspend,
        },
    },
    args::{OnLost, OnRequest, RunArgs, Timing},
    foreground::Terminal,
    guard::Guard,
    job::{Job, Status},
};

/// The supervisor of a running command.
pub(super) struct Supervisor {
    name: LockName,
    job: Job,
    terminal: Option<Terminal>,
    guard: Option<Guard>,
    lease: watch::Receiver<LeaseState>,
    lease_lost: bool,
    requests: watch::Receiver<Option<ReleaseRequest>>,
    on_request: OnRequest,
    /// The last release request for the lock, if a caller has sent one.
    request: Option<ReleaseRequest>,
    timing: Timing,
    on_lost: OnLost,
    term_at: Instant,
    kill_at: Instant,
    stage: Stage,
    /// Whether the command is suspended by a signal, and may be continued.
    stopped: bool,
    warned: bool,
    /// What is wrong with the lease at the moment, used as the reason if the command must be stopped.
    trouble: String,
    /// Why the supervisor stopped the command, if it did.
    why: Option<String>,
}

/// How far the supervisor has got with ending the command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Running,
    Terminated,
    Killed,
}

/// How the command ended, and what is left of it.
pub(super) struct CommandEnd {
    /// The exit code of the command.
    pub(super) code: io::Result<u8>,
    pub(super) work: Work,
    /// Why the command was stopped, if the supervisor stopped it because of its lease.
    pub(super) stopped: Option<String>,
}

/// What became of the command when it ended: whether it started, and whether processes are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Nothing: the command was not executed.
    NotStarted,
    /// The command and all processes of its group have ended.
    Done,
    /// A process of the command's group is left.
    GoesOn,
}

/// The signals of job control that are handled while the command runs. During the wait for the lock, only TSTP has an
/// effect.
pub(super) const OF_JOBS: [Signal; 3] = [Signal::CHILD, Signal::CONT, Signal::TSTP];

/// The warning that the command runs without a guard.
const UNGUARDED: &str = if cfg!(target_os = "linux") {
    "if this process is killed, the command is killed with it, but processes that the command \
     started go on without the lock"
} else {
    "if this process is killed, the command goes on without the lock"
};

/// The exit code of a command that was ended by KILL.
const KILLED: u8 = 128 + 9;

/// How much earlier the guard's timer may end than the supervisor's timer, because the guard gets whole milliseconds.
const GUARD_EARLY: Duration = Duration::from_millis(5);

/// The reason for stopping the command if a release request was not fulfilled in time.
const NOT_RELEASED: &str = "a release of the lock was requested, and the lock was not released in \
                            time";

/// How long to wait until the system has suspended this process. If the system ignores the request, because no shell
/// could continue the process, the command continues after this time.
const NOT_SUSPENDED: Duration = Duration::from_millis(100);

// === impl Supervisor ===

impl Supervisor {
    /// Starts the guard, and then the command.
    pub(super) fn start(
        name: &LockName,
        variables: &[(&'static str, String)],
        renewer: &LeaseRenewer,
        timing: Timing,
        args: &RunArgs,
    ) -> Result<Self, CliError> {
        let on_lost = args.on_lost;
        let mut guard = match on_lost {
            OnLost::Terminate => Guard::start()
                .inspect_err(|error| {
                    output::note(&format!(
                        "latchgate: {name}: there is no guard ({error}): {UNGUARDED}"
                    ));
                })
                .ok(),
            OnLost::Continue => None,
        };
        // The guard may have taken long to start.
        if let (Err(loss), OnLost::Terminate) = (renewer.check(), on_lost) {
            let text = format!("{name}: the command was not started, the lease was lost: {loss}");
            return Err(CliError::new(Exit::Lost, text));
        }
        // The process of the command takes the terminal itself, before the command begins.
        let terminal = Terminal::of_process();
        let job = Job::start(&args.command, variables, on_lost).map_err(|error| {
            CliError::unexpected(format!("{name}: cannot start a process: {error}"))
        })?;
        if let Some(guard) = &mut guard {
            guard.watch(job.group());
        }
        let now = Instant::now();
        let mut this = Self {
            name: name.clone(),
            job,
            terminal,
            guard,
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
        this.look_at_lease();
        this.look_at_request();
        Ok(this)
    }

    /// Runs until the command, and all processes that it left running, have ended.
    pub(super) async fn finish(mut self, signals: &mut Signals) -> CommandEnd {
        loop {
            let (due, is_to_be_stopped) = (self.due(), self.is_to_be_stopped());
            tokio::select! {
                // Changes of the lease come first: after a suspension, a renewal and the deadline may both be ready,
                // and the renewal moves the deadline. A release request brings the end of the lease near, and is told
                // with the lease. The deadline comes before signals, because it must not be late.
                biased;
                Ok(()) = self.lease.changed(), if !self.lease_lost => self.look_at_lease(),
                Ok(()) = self.requests.changed() => self.look_at_request(),
                () = sleep_until(due), if is_to_be_stopped => self.stop_in_time(),
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
        // After `collect`, the group gets no more signals: its number, the process id of the command, may be given to
        // another group. So what the command has left running is killed now, and the guard is dismissed.
        self.job.signal(Signal::KILL);
        if let Some(guard) = self.guard.take() {
            guard.dismiss();
        }
        let code = self.job.collect();
        let was_started = self.job.was_started();
        let was_killed = matches!(&code, Ok(code) if *code == KILLED);
        if was_killed && was_due {
            // The command was killed when its deadline was due, most likely by the guard, whose timer may end earlier.
            // So the lease counts as the reason, as if the supervisor had killed the command.
            self.stopping();
        }
        let work = match self.job.is_gone().await {
            false => Work::GoesOn,
            true if was_started => Work::Done,
            true => Work::NotStarted,
        };
        CommandEnd {
            code,
            work,
            stopped: self.why,
        }
    }

    /// Handles a signal, and returns the state of the command afterwards.
    async fn handle_signal(&mut self, signal: Signal) -> Status {
        match signal {
            Signal::CHILD => {
                if self.guard.as_mut().is_some_and(Guard::has_ended) {
                    self.guard = None;
                    // After the deadline, or after a KILL, a guard that has ended is not reported: it has done its
                    // work.
                    if self.stage != Stage::Killed && Instant::now() < self.kill_at {
                        self.note(&format!("the guard is gone: {UNGUARDED}"));
                    }
                }
                let status = self.job.status();
                if status == Status::Stopped {
                    self.stopped = true;
                    // If a shell waits for this process, the shell must see that the command was suspended.
                    if self.terminal.is_some() {
                        self.suspend().await;
                    }
                }
                status
            }
            Signal::TSTP => {
                // While this process is suspended, the lease is not renewed, so the command is suspended as well.
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

    /// Suspends this process after its command was suspended, and continues the command afterwards.
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

    /// Continues the suspended command, or kills it if its lease has ended.
    fn resume(&mut self) {
        if self.on_lost == OnLost::Terminate && Instant::now() >= self.kill_at {
            "the command was suspended for longer than its lease lasted"
                .clone_into(&mut self.trouble);
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

    /// Handles a release request: sends TERM to the command, unless requests are ignored. The exit code is still that
    /// of the command.
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
                    // A suspended command does not get the TERM until it is continued.
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
                // If the lease ends although it was renewed in time, only one of these two reasons is possible.
                let trouble = if self.request.is_some() {
                    NOT_RELEASED
                } else {
                    "this process was suspended for longer than the lease lasted"
                };
                trouble.clone_into(&mut self.trouble);
            }
            LeaseState::AtLimit { until } => {
                self.lasts_until(until);
                "the hold limit of the lease is near".clone_into(&mut self.trouble);
            }
            LeaseState::AtRisk { until, reason } => {
                self.lasts_until(until);
                if !self.warned {
                    self.note(&format!(
                        "the lease could not be renewed, trying again: {reason}"
                    ));
                    self.warned = true;
                }
                self.trouble = format!("the lease could not be renewed: {reason}");
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
            // After the TERM, a renewal cannot give the command a later deadline than was set then.
            Stage::Terminated => kill_at.min(self.kill_at),
            Stage::Running | Stage::Killed => kill_at,
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
        self.stop_in_time();
    }

    fn update_guard(&mut self) {
        if let Some(guard) = &mut self.guard {
            guard.kill_at(self.kill_at);
        }
    }

    fn is_to_be_stopped(&self) -> bool {
        self.on_lost == OnLost::Terminate && self.stage != Stage::Killed
    }

    /// Whether the command was asked to end because of a release request. The command then has time until the KILL.
    fn was_told_to_end(&self) -> bool {
        self.request.is_some() && self.on_request == OnRequest::Term
    }

    /// When the supervisor must act next to stop the command before its lease ends.
    fn due(&self) -> Instant {
        match self.stage {
            Stage::Running if self.was_told_to_end() => self.kill_at,
            Stage::Running => self.term_at.min(self.kill_at),
            Stage::Terminated | Stage::Killed => self.kill_at,
        }
    }

    fn stop_in_time(&mut self) {
        if Instant::now() >= self.kill_at {
            self.kill();
        } else if self.stage == Stage::Running && (self.lease_lost || !self.was_told_to_end()) {
            self.stopping();
            self.stage = Stage::Terminated;
            self.job.signal(Signal::TERM);
            // A suspended command does not get the TERM until it is continued.
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

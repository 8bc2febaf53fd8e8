//! A process that is killed, frozen and started again.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use crate::spawn;

/// A process of ours. It is killed when it is dropped.
pub(crate) struct Process {
    child: Child,
}

/// How long a process may take for what it always does.
const TIMEOUT: Duration = Duration::from_secs(20);

// === impl Process ===

impl Process {
    /// Starts it, with its log in a file of the directory.
    pub(super) fn start(mut command: Command, directory: &Path, log: &str) -> Self {
        let path: PathBuf = directory.join(format!("{log}.log"));
        let log = File::options()
            .create(true)
            .append(true)
            .open(path)
            .unwrap();
        command.stdout(log.try_clone().unwrap()).stderr(log);
        let child = command.spawn();
        Self {
            child: child.unwrap_or_else(|error| panic!("{command:?} cannot be started: {error}")),
        }
    }

    pub(super) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Whether it has ended.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// `kill -9`; whether it was what ended the process.
    pub(crate) async fn kill(&mut self) -> bool {
        let lived = !self.has_ended();
        self.signal(Signal::KILL);
        self.ended().await;
        lived
    }

    /// Waits until it has ended.
    pub(crate) async fn ended(&mut self) {
        let deadline = Instant::now() + TIMEOUT;
        while !self.has_ended() {
            assert!(Instant::now() < deadline, "it does not end");
            sleep(Duration::from_millis(2)).await;
        }
    }

    /// Stops it, and waits until it stands still; whether it does.
    pub(crate) async fn freeze(&mut self) -> bool {
        self.signal(Signal::STOP);
        let deadline = Instant::now() + TIMEOUT;
        while !self.stands_still() {
            if self.has_ended() || Instant::now() > deadline {
                return false;
            }
            sleep(Duration::from_millis(1)).await;
        }
        true
    }

    pub(crate) fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn stands_still(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id()));
        threads.is_ok_and(|mut threads| {
            threads.all(|thread| {
                let stat = thread.and_then(|it| std::fs::read_to_string(it.path().join("stat")));
                // One that has ended meanwhile does nothing either.
                stat.map_or(true, |stat| {
                    stat.rsplit_once(") ")
                        .is_some_and(|it| it.1.starts_with('T'))
                })
            })
        })
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A command with nothing in its environment but the path; its end is that of whoever started it.
pub(super) fn command(program: &Path) -> Command {
    #[expect(
        clippy::disallowed_methods,
        reason = "the environment of a test, not a configuration of the product"
    )]
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut command = spawn::command(program);
    command.env_clear().env("PATH", path).stdin(Stdio::null());
    command
}

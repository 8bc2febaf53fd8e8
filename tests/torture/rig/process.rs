//! A process that can be killed, frozen and started again.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

use crate::spawn;

/// A child process, killed when dropped.
pub(crate) struct Process {
    child: Child,
}

/// The longest time for an ordinary action of a process.
const TIMEOUT: Duration = Duration::from_secs(20);

// === impl Process ===

impl Process {
    /// Starts a process, with its log in a file of the directory.
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

    /// Kills the process as `kill -9` does. Answers whether it still ran.
    pub(crate) async fn kill(&mut self) -> bool {
        let lived = !self.has_ended();
        // A process that has ended cannot be signalled: a client ends by itself at the end of the run.
        if lived {
            self.signal(Signal::KILL);
            self.ended().await;
        }
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

    /// Stops the process, and waits until all of its threads are stopped. Answers whether they are.
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
                // A thread that has ended meanwhile does nothing either.
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
        // The process may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// A command with only `PATH` in its environment, which ends together with this process.
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

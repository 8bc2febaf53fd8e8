//! A process of its own that holds a lock: this test program, which runs the same test once more.

use std::{
    fmt::Display,
    fs::{self, DirEntry},
    future::pending,
    io::{self, BufRead as _, BufReader, Write as _},
    process::{Child, ChildStdout, Command, ExitStatus, Stdio},
    thread,
    time::Duration,
};

use latchgate_client::{Client, Lease, LeaseRenewer, LockName, Loss};
use tokio::{
    runtime::Builder,
    task::{LocalSet, spawn_blocking},
    time::timeout,
};

use crate::rig::{Rig, client, environment, keep, ttl};

const TASK: &str = "LATCHGATE_HOLDER_TASK";
const URL: &str = "LATCHGATE_HOLDER_URL";
const NAME: &str = "LATCHGATE_HOLDER_NAME";
const TTL_MS: &str = "LATCHGATE_HOLDER_TTL_MS";
/// How its lines begin: the test program writes others.
const MARK: &str = "holder: ";

/// What the process is to do.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Task {
    /// Keep a lease, read a line, and say first what is known of the lease then.
    Stop,
    /// Do work under the lock, and end when the input has ended.
    End,
    /// Do work under the lock, which panics when the input has ended.
    Panic,
}

/// The process.
pub(crate) struct Holder {
    process: Child,
    output: BufReader<ChildStdout>,
}

// === impl Task ===

impl Task {
    const ALL: [Self; 3] = [Self::Stop, Self::End, Self::Panic];

    fn word(self) -> String {
        format!("{self:?}")
    }

    /// Does what this process was started for; false if it is no holder.
    pub(crate) fn carry_out() -> bool {
        let Some(word) = environment(TASK) else {
            return false;
        };
        let task = Self::ALL.into_iter().find(|task| *task.word() == *word);
        let text = |variable| environment(variable).and_then(|it| it.into_string().ok());
        let client = client(&text(URL).unwrap());
        let name = LockName::new(&text(NAME).unwrap()).unwrap();
        let lasts = Duration::from_millis(text(TTL_MS).unwrap().parse().unwrap());
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        match task.unwrap() {
            Self::Stop => runtime.block_on(stop(&client, &name, lasts)),
            Self::End => runtime.block_on(end(&client, &name, lasts)),
            Self::Panic => runtime.block_on(panic(&client, &name, lasts)),
        }
        true
    }
}

async fn stop(client: &Client, name: &LockName, lasts: Duration) {
    let kept = keep(client, name, ttl(lasts)).await;
    say(kept.fence());
    // The process is stopped while it reads; no task of this runtime goes on meanwhile.
    io::stdin().lock().read_line(&mut String::new()).unwrap();
    say(known(&kept.renewer).await);
}

/// What is known of a lease that nobody has renewed for long, before any task has run.
async fn known(renewer: &LeaseRenewer) -> String {
    let checked = match renewer.check() {
        Ok(()) => "held",
        Err(Loss::Expired { .. }) => "expired",
        Err(_) => "lost otherwise",
    };
    let until = match renewer.until() {
        Some(_) => "with an end",
        None => "without an end",
    };
    let lost = match timeout(Duration::ZERO, renewer.lost()).await {
        Ok(_) => "lost",
        Err(_) => "not lost",
    };
    format!("{checked}, {until}, {lost}")
}

/// Work that would go on for ever, and an input whose end is the end of the process.
async fn end(client: &Client, name: &LockName, lasts: Duration) {
    let request = ttl(lasts);
    let work = async |lease: &Lease| {
        say(lease.fence);
        pending::<()>().await;
    };
    tokio::select! {
        done = client.with_lock(name, &request, work) => done.unwrap(),
        () = end_of_input() => {}
    }
    client.finish_releases().await;
}

/// A task that panics in a process that goes on, as that of a server does.
async fn panic(client: &Client, name: &LockName, lasts: Duration) {
    let (of_task, name, request) = (client.clone(), name.clone(), ttl(lasts));
    let tasks = LocalSet::new();
    let task = tasks.spawn_local(async move {
        let work = async |lease: &Lease| {
            say(lease.fence);
            end_of_input().await;
            panic!("the panic of the holder");
        };
        of_task.with_lock(&name, &request, work).await
    });
    assert!(tasks.run_until(task).await.unwrap_err().is_panic());
    client.finish_releases().await;
}

async fn end_of_input() {
    let read = || io::stdin().lock().read_line(&mut String::new());
    spawn_blocking(read).await.unwrap().unwrap();
}

fn say(what: impl Display) {
    let mut output = io::stdout().lock();
    writeln!(output, "\n{MARK}{what}").unwrap();
    output.flush().unwrap();
}

// === impl Holder ===

impl Holder {
    /// Runs this test once more, as the holder of the lock of the test.
    pub(crate) fn start(rig: &Rig, task: Task, lasts: Duration) -> Self {
        let test = thread::current().name().map(str::to_owned);
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &test.expect("libtest names its threads")])
            .args(["--nocapture", "--test-threads", "2"])
            .env(TASK, task.word())
            .env(URL, &rig.urls().proxy)
            .env(NAME, rig.name.as_str())
            .env(TTL_MS, lasts.as_millis().to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        Self { process, output }
    }

    /// The next thing that it says.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            if let Some(said) = line.trim_end().strip_prefix(MARK) {
                return said.to_owned();
            }
            line.clear();
        }
        panic!("the holder has ended")
    }

    /// Suspends it. The kernel stops one thread after the other: until all stand still, one may go on.
    pub(crate) fn suspend(&self) {
        self.signal("STOP");
        let tasks = format!("/proc/{}/task", self.process.id());
        let stands = |task: io::Result<DirEntry>| {
            let stat = fs::read_to_string(task.unwrap().path().join("stat")).unwrap();
            stat.rsplit(") ").next().unwrap().starts_with('T')
        };
        while !fs::read_dir(&tasks).unwrap().all(stands) {
            thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        let kill = Command::new("kill").args(["-s", name, &pid]).status();
        assert!(kill.unwrap().success());
    }

    pub(crate) fn write_line(&mut self) {
        self.process
            .stdin
            .as_mut()
            .unwrap()
            .write_all(b"\n")
            .unwrap();
    }

    /// Ends its input, and waits for its end.
    pub(crate) fn end(&mut self) -> ExitStatus {
        drop(self.process.stdin.take());
        self.process.wait().unwrap()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // It may have ended.
        let _: Result<_, _> = self.process.kill();
        let _: Result<_, _> = self.process.wait();
    }
}

//! A running `latchgate run`, and the processes that it started.

use std::os::unix::process::ExitStatusExt;

use rustix::process::test_kill_process;

use crate::cli::prelude::*;

/// The longest time that any awaited event may take, also on a machine that does other work.
pub(in crate::cli) const TIMEOUT: Duration = Duration::from_mins(1);
/// How long a test waits for the end of the output: a process that the command left behind may keep the pipe open.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A running `latchgate run`. When dropped, it is killed, and its guard kills its processes.
pub(in crate::cli) struct Running {
    child: Child,
    out: Arc<Mutex<String>>,
    err: Arc<Mutex<String>>,
}

/// Starts `latchgate run` with these arguments for these gateways.
pub(in crate::cli) fn run(url: &str, arguments: &[&str]) -> Running {
    let mut command = program();
    command.arg("run").args(arguments);
    start(url, command)
}

/// Starts `latchgate run` with a shell script as its command.
pub(in crate::cli) fn run_sh(url: &str, arguments: &[&str], script: &str) -> Running {
    run(url, &[arguments, &["--", "sh", "-c", script]].concat())
}

/// Starts `latchgate run` with a script, and waits until the script has printed `up`.
pub(in crate::cli) fn begun(url: &str, arguments: &[&str], script: &str) -> Running {
    let running = run_sh(url, arguments, script);
    running.printed("up");
    running
}

/// Starts a `latchgate run` that holds its lock until it gets a signal, and waits until the command runs.
pub(in crate::cli) fn held(url: &str, arguments: &[&str]) -> Running {
    begun(url, arguments, "echo up; exec sleep 60")
}

/// Waits until `deploy` has no holder.
pub(in crate::cli) fn until_free(url: &str) {
    until("it is free", || {
        inspect(url, "deploy") == "deploy is free\n"
    });
}

/// Waits until these processes have ended.
pub(in crate::cli) fn until_dead(pids: [Pid; 2]) {
    for pid in pids {
        until("it is dead", || !is_alive(pid));
    }
}

/// Starts a program with the URLs of the gateways and the path of `latchgate` in its environment.
pub(in crate::cli) fn start(url: &str, mut command: Command) -> Running {
    let mut child = command
        .env("LATCHGATE_URL", url)
        .env("LATCHGATE", env!("CARGO_BIN_EXE_latchgate"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let out = gather(child.stdout.take().unwrap());
    let err = gather(child.stderr.take().unwrap());
    Running { child, out, err }
}

/// The output of `latchgate inspect` for a lock.
pub(in crate::cli) fn inspect(url: &str, name: &str) -> String {
    typed(&format!("inspect {name}"))
        .env("LATCHGATE_URL", url)
        .read()
        .out
}

/// The number of waiters of a lock.
pub(in crate::cli) fn waiters(url: &str, name: &str) -> u64 {
    let inspected = typed(&format!("inspect {name} --json")).env("LATCHGATE_URL", url);
    let lock: Value = serde_json::from_str(&inspected.read().out).unwrap();
    lock["waiter_count"].as_u64().unwrap()
}

/// Waits until a condition is true.
pub(in crate::cli) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain: {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs. A zombie does not count.
pub(in crate::cli) fn is_alive(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()));
    let state = stat.ok().and_then(|stat| {
        let (_, rest) = stat.rsplit_once(") ")?;
        rest.chars().next()
    });
    test_kill_process(pid).is_ok() && !matches!(state, None | Some('Z' | 'X'))
}

pub(in crate::cli) fn gather(mut from: impl Read + Send + 'static) -> Arc<Mutex<String>> {
    let text = Arc::new(Mutex::new(String::new()));
    let gathered = Arc::clone(&text);
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        // A read from a closed terminal returns an error.
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            let read = String::from_utf8_lossy(&buffer[..count]);
            gathered.lock().unwrap().push_str(&read);
        }
    });
    text
}

// === impl Running ===

impl Running {
    pub(in crate::cli) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(in crate::cli) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// The standard output so far.
    pub(in crate::cli) fn out(&self) -> String {
        self.out.lock().unwrap().clone()
    }

    /// The standard error so far.
    pub(in crate::cli) fn err(&self) -> String {
        self.err.lock().unwrap().clone()
    }

    /// Waits until the standard output contains a text.
    pub(in crate::cli) fn printed(&self, text: &str) {
        until(text, || self.out().contains(text));
    }

    /// Waits until the standard output contains `NAME=PID`. Answers the process id.
    pub(in crate::cli) fn printed_pid(&self, name: &str) -> Pid {
        let prefix = format!("{name}=");
        let mut found = None;
        until(name, || {
            let out = self.out();
            found = out
                .lines()
                .find_map(|line| line.strip_prefix(&prefix)?.parse().ok());
            found.is_some()
        });
        found.and_then(Pid::from_raw).unwrap()
    }

    /// Waits until the standard error contains a text.
    pub(in crate::cli) fn said(&self, text: &str) {
        until(text, || self.err().contains(text));
    }

    pub(in crate::cli) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for the end of `latchgate run`. Answers exit code and output.
    pub(in crate::cli) fn wait(&mut self) -> Ran {
        until("its end", || self.has_ended());
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), None, "{}", self.err());
        // The reader threads may still read the last output. A process that is left behind may keep the pipes open.
        let deadline = Instant::now() + LAST_WORDS;
        let is_read = |text: &Arc<_>| Arc::strong_count(text) == 1;
        while !(is_read(&self.out) && is_read(&self.err)) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(5));
        }
        Ran {
            code: status.code(),
            out: self.out(),
            err: self.err(),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // The process may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

//! Runs the `latchgate` program to its end.

use std::{
    io::{Read, Write},
    process::{Command, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

use tokio::time::Instant;

use super::spawn;

/// How long a command may take.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A command line about to be run.
pub(crate) struct Run {
    command: Command,
    input: String,
}

/// What a command came to.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The program, with nothing in its environment but the path.
pub(crate) fn program() -> Command {
    let mut command = spawn::command(env!("CARGO_BIN_EXE_latchgate"));
    with_path_alone(&mut command);
    command
}

/// Leaves a command nothing of its environment but the path.
#[expect(
    clippy::disallowed_methods,
    reason = "the environment of the tests, not a configuration of the product"
)]
pub(crate) fn with_path_alone(command: &mut Command) {
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
}

/// The program with some arguments.
pub(crate) fn latchgate(arguments: &[&str]) -> Run {
    let mut command = program();
    command.args(arguments);
    Run {
        command,
        input: String::new(),
    }
}

// === impl Run ===

impl Run {
    /// Sets a variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Writes to its standard input.
    pub(crate) fn input(mut self, text: &str) -> Self {
        text.clone_into(&mut self.input);
        self
    }

    /// Gives it another standard output.
    pub(crate) fn out(mut self, out: impl Into<Stdio>) -> Self {
        self.command.stdout(out);
        self
    }

    /// Runs it to its end.
    pub(crate) fn run(mut self) -> Ran {
        self.command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A program that reads nothing closes it.
        drop(stdin.write_all(self.input.as_bytes()));
        drop(stdin);
        let reading = (child.stdout.take().map(read), child.stderr.take().map(read));
        let deadline = Instant::now() + TIMEOUT;
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                drop(child.kill());
                panic!("it does not end: {:?}", self.command);
            }
            thread::sleep(Duration::from_millis(2));
        }
        let text = |reader: Option<JoinHandle<String>>| {
            reader.map_or_else(String::new, |reader| reader.join().unwrap())
        };
        Ran {
            code: child.wait().unwrap().code(),
            out: text(reading.0),
            err: text(reading.1),
        }
    }

    /// Runs it with its output read.
    pub(crate) fn read(self) -> Ran {
        self.out(Stdio::piped()).run()
    }
}

/// Reads to the end in a thread of its own, so that the program never waits for a full pipe.
fn read(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        from.read_to_string(&mut text).unwrap();
        text
    })
}

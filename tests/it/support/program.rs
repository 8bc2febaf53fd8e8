//! Runs the `latchgate` program to its end.

use std::{
    io::{Read, Write},
    process::{Command, Stdio},
    thread::{self, JoinHandle},
    time::Duration,
};

use serde_json::Value;
use tokio::time::Instant;

use super::spawn;

/// How long a command may run.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A command line that is ready to run.
pub(crate) struct Run {
    command: Command,
    input: String,
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The program, with only `PATH` in its environment.
pub(crate) fn program() -> Command {
    let mut command = spawn::command(env!("CARGO_BIN_EXE_latchgate"));
    with_path_alone(&mut command);
    command
}

/// Removes all variables but `PATH` from the environment of a command.
#[expect(
    clippy::disallowed_methods,
    reason = "the environment of the tests, not a configuration of the product"
)]
pub(crate) fn with_path_alone(command: &mut Command) {
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default());
}

/// The program with these arguments.
pub(crate) fn latchgate(arguments: &[&str]) -> Run {
    let mut command = program();
    command.args(arguments);
    Run {
        command,
        input: String::new(),
    }
}

/// The program with the arguments of a line. An argument with spaces stands in single quotes.
pub(crate) fn typed(line: &str) -> Run {
    let mut arguments = Vec::new();
    for (number, part) in line.split('\'').enumerate() {
        if number % 2 == 1 {
            arguments.push(part);
        } else {
            arguments.extend(part.split_ascii_whitespace());
        }
    }
    latchgate(&arguments)
}

// === impl Ran ===

impl Ran {
    /// Asserts the exit code. Answers the result.
    #[track_caller]
    pub(crate) fn ends(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:?}");
        self
    }

    /// Asserts the exit code and the standard output.
    #[track_caller]
    pub(crate) fn gives(&self, code: i32, out: &str) {
        assert_eq!(
            (self.code, self.out.as_str()),
            (Some(code), out),
            "{self:?}"
        );
    }

    /// Asserts that the standard error contains a text.
    #[track_caller]
    pub(crate) fn says(&self, text: impl AsRef<str>) {
        let text = text.as_ref();
        assert!(self.err.contains(text), "{text}: {self:?}");
    }

    /// Asserts that the standard error does not contain a text.
    #[track_caller]
    pub(crate) fn says_not(&self, text: impl AsRef<str>) {
        let text = text.as_ref();
        assert!(!self.err.contains(text), "{text}: {self:?}");
    }

    /// Asserts that the standard error begins with a text.
    #[track_caller]
    pub(crate) fn begins(&self, text: impl AsRef<str>) {
        let text = text.as_ref();
        assert!(self.err.starts_with(text), "{text}: {self:?}");
    }

    /// The standard output, parsed as JSON.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

// === impl Run ===

impl Run {
    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sets the token in the environment.
    pub(crate) fn token(self, token: &str) -> Self {
        self.env("LATCHGATE_TOKEN", token)
    }

    /// Sets the API key in the environment.
    pub(crate) fn key(self, key: &str) -> Self {
        self.env("LATCHGATE_KEY", key)
    }

    /// Sets the text for the standard input.
    pub(crate) fn input(mut self, text: &str) -> Self {
        text.clone_into(&mut self.input);
        self
    }

    /// Sets the standard output.
    pub(crate) fn out(mut self, out: impl Into<Stdio>) -> Self {
        self.command.stdout(out);
        self
    }

    /// Runs the program to its end.
    pub(crate) fn run(mut self) -> Ran {
        self.command.stdin(Stdio::piped()).stderr(Stdio::piped());
        let mut child = self.command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        // A program that does not read its standard input closes it.
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

    /// Runs the program to its end and captures its output.
    pub(crate) fn read(self) -> Ran {
        self.out(Stdio::piped()).run()
    }

    /// Runs the program to its end, captures its output and asserts the exit code.
    #[track_caller]
    pub(crate) fn ends(self, code: i32) -> Ran {
        self.read().ends(code)
    }
}

/// Reads a pipe to its end in a separate thread, so that the program never waits for a full pipe.
fn read(mut from: impl Read + Send + 'static) -> JoinHandle<String> {
    thread::spawn(move || {
        let mut text = String::new();
        from.read_to_string(&mut text).unwrap();
        text
    })
}

//! `latchgate run` in a shell on a terminal.

use std::process::ChildStdin;

use super::fixture::{TIMEOUT, gather};
use crate::cli::prelude::*;

/// An interactive shell on a pseudo terminal.
struct Shell {
    keys: ChildStdin,
    shown: Arc<Mutex<String>>,
    child: Child,
}

const CTRL_C: &str = "\x03";
const CTRL_Z: &str = "\x1a";

// === impl Shell ===

impl Shell {
    fn start(gateway: &Gateway) -> Self {
        let mut child = spawn::command("script")
            .args(["-q", "-f", "-c", "bash --norc --noprofile -i", "/dev/null"])
            .env("TERM", "dumb")
            .env("LATCHGATE_URL", gateway.url())
            .env("LATCHGATE", env!("CARGO_BIN_EXE_latchgate"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("`script` comes with every Debian");
        let shown = gather(child.stdout.take().unwrap());
        let keys = child.stdin.take().unwrap();
        Self { keys, shown, child }
    }

    fn keys(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits until the terminal shows a text. The terminal also shows the typed command, so the command must not
    /// contain the text.
    fn shows(&self, text: &str) {
        let deadline = Instant::now() + TIMEOUT;
        while !self.has_shown(text) {
            let shown = self.shown.lock().unwrap().clone();
            assert!(Instant::now() < deadline, "{text:?} is not in {shown}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn has_shown(&self, text: &str) -> bool {
        self.shown.lock().unwrap().contains(text)
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn ctrl_c_ends_the_command_and_releases_the_lock() {
    let gateway = Gateway::start();
    let mut shell = Shell::start(&gateway);
    // `exec` avoids a fork: dash loses an interrupt that comes while it forks, and the fork goes on.
    shell.keys(
        "\"$LATCHGATE\" run deploy -- sh -c 'echo up=$((40+2)); exec sleep 60'; echo code=$?\n",
    );
    shell.shows("up=42");
    shell.keys(CTRL_C);
    shell.shows("code=130");
    assert_eq!(inspect(&gateway.url(), "deploy"), "deploy is free\n");
}

#[test]
fn the_command_can_read_what_is_typed() {
    let gateway = Gateway::start();
    let mut shell = Shell::start(&gateway);
    shell.keys(
        "\"$LATCHGATE\" run deploy -- sh -c 'echo up=$((40+2)); read x; echo got=$((x+1))'\n",
    );
    shell.shows("up=42");
    shell.keys("1233\n");
    shell.shows("got=1234");
    // The shell reads from the terminal again.
    shell.keys("echo back=$((50+5))\n");
    shell.shows("back=55");
}

#[test]
fn ctrl_z_suspends_and_the_shell_can_bring_it_back() {
    let gateway = Gateway::start();
    let mut shell = Shell::start(&gateway);
    shell.keys("\"$LATCHGATE\" run deploy -- sh -c 'echo up=$((40+2)); read x; echo got=$((x+1))'; echo code=$?\n");
    shell.shows("up=42");
    shell.keys(CTRL_Z);
    shell.shows("is not renewed while the command is suspended");
    shell.shows("Stopped");
    shell.keys("echo shell=$((60+6))\n");
    shell.shows("shell=66");
    shell.keys("fg\n");
    shell.keys("1233\n");
    shell.shows("got=1234");
    until_free(&gateway.url());
}

#[test]
fn what_was_suspended_for_too_long_does_not_go_on() {
    let gateway = Gateway::start();
    let mut shell = Shell::start(&gateway);
    shell.keys("\"$LATCHGATE\" run deploy --ttl 2s -- sh -c 'echo up=$((40+2)); read x; echo got=$((x+1))'\n");
    shell.shows("up=42");
    shell.keys(CTRL_Z);
    shell.shows("Stopped");
    until_free(&gateway.url());
    shell.keys("fg; echo code=$?\n");
    shell.shows("code=102");
    assert!(!shell.has_shown("got=1"));
}

#[test]
fn a_command_in_the_background_waits_for_the_terminal_like_any_other() {
    let gateway = Gateway::start();
    let mut shell = Shell::start(&gateway);
    shell.keys(
        "\"$LATCHGATE\" run deploy -- sh -c 'echo up=$((40+2)); read x; echo got=$((x+1))' &\n",
    );
    shell.shows("up=42");
    shell.shows("is not renewed while the command is suspended");
    shell.keys("jobs\n");
    shell.shows("Stopped");
    shell.keys("fg\n");
    shell.keys("1233\n");
    shell.shows("got=1234");
}

#[test]
fn a_line_shows_how_the_wait_goes_and_goes_away() {
    let gateway = Gateway::start();
    let mut holder = run_sh(
        &gateway.url(),
        &["deploy", "--owner", "me@here"],
        "echo up; exec sleep 60",
    );
    holder.printed("up");
    let mut shell = Shell::start(&gateway);
    shell.keys("\"$LATCHGATE\" run deploy -- sh -c 'echo ran=$((40+2))'\n");
    shell.shows("\r\x1b[Kwaiting for deploy: ");
    shell.shows(", position 1 of 1, held by me@here");
    holder.signal(Signal::TERM);
    holder.wait();
    shell.shows("\r\x1b[Kran=42");
}

#[test]
fn ctrl_c_ends_the_wait() {
    let gateway = Gateway::start();
    let _holder = held(&gateway.url(), &["deploy"]);
    let mut shell = Shell::start(&gateway);
    shell.keys("\"$LATCHGATE\" acquire deploy --wait 1m; echo code=$?\n");
    shell.shows("waiting for deploy");
    shell.keys(CTRL_C);
    shell.shows("code=130");
}

#[test]
fn a_line_says_that_there_is_no_answer_yet() {
    let gateway = Gateway::start();
    gateway.freeze();
    let mut shell = Shell::start(&gateway);
    shell.keys("\"$LATCHGATE\" acquire deploy; echo code=$?\n");
    shell.shows("\r\x1b[Kwaiting for deploy: ");
    shell.shows(", no answer yet");
    shell.keys(CTRL_C);
    // The interrupt is shown before the gateway can answer.
    shell.shows("^C");
    gateway.signal(Signal::CONT);
    shell.shows("code=130");
}

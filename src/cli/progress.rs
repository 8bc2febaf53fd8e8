//! The line that shows how a wait goes.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal, Write as _},
    time::Duration,
};

use crate::{
    client::{WaitStatus, format_duration},
    lock::LockName,
};

/// Back to the beginning of the line, and nothing in it.
const CLEAR: &str = "\r\x1b[K";

/// A line on the terminal at standard error, drawn again and again.
#[derive(Default)]
pub(super) struct ProgressLine {
    drawn: bool,
}

// === impl ProgressLine ===

impl ProgressLine {
    /// Whether there is somebody to see it.
    pub(super) fn is_visible() -> bool {
        io::stderr().is_terminal()
    }

    pub(super) fn draw(&mut self, text: &str) {
        // A terminal that does not know its width says 0.
        let columns = rustix::termios::tcgetwinsize(io::stderr())
            .ok()
            .map(|size| size.ws_col)
            .filter(|&columns| columns > 0)
            .unwrap_or(80);
        // A line that wraps could not be taken back.
        let displayed: String = text.chars().take(usize::from(columns) - 1).collect();
        put(&format!("{CLEAR}{displayed}"));
        self.drawn = true;
    }

    /// Makes room for other words.
    pub(super) fn clear(&mut self) {
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

/// What there is to be said before anything was heard.
pub(super) fn describe_unanswered(name: &LockName, waited: Duration) -> String {
    beginning(name, waited) + ", no answer yet"
}

/// What there is to be said of a wait.
pub(super) fn describe(name: &LockName, waiting: &WaitStatus, waited: Duration) -> String {
    let mut text = beginning(name, waited);
    let mut add = |fact: std::fmt::Arguments<'_>| {
        text.write_fmt(fact)
            .expect("writing to a String never fails");
    };
    if let Some(trouble) = &waiting.trouble {
        add(format_args!(", trying again: {trouble}"));
        return visible(&text);
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
    if let Some(holder) = &waiting.holder {
        match &holder.owner {
            Some(owner) => add(format_args!(", held by {owner}")),
            None if holder.foreign => add(format_args!(", held by a client without a gateway")),
            None => {}
        }
    }
    visible(&text)
}

fn beginning(name: &LockName, waited: Duration) -> String {
    let waited = format_duration(Duration::from_secs(waited.as_secs().max(1)));
    format!("waiting for {name}: {waited}")
}

/// Nothing that an answer holds may move the cursor.
fn visible(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

fn put(text: &str) {
    let mut out = io::stderr().lock();
    // Nobody sees it: nothing to be done.
    drop(out.write_all(text.as_bytes()));
    drop(out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

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

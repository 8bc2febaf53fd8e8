//! `kill -9` in the middle of a loop of acquires: whatever was answered is there.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::Stdio,
};

use latchgate::store::embedded::OpenError;
use tempfile::TempDir;

use super::place::{attempt, open, open_again};
use crate::support::prelude::*;
use crate::support::spawn;

/// Set in the child: the directory it works in.
const CHILD: &str = "LG_KILLED_CHILD";
const ROUNDS: usize = 5;
/// How many answers the parent waits for before it kills.
const ANSWERS: usize = 400;

/// The whole test plays both parts: started again by itself it is the child that is killed.
#[tokio::test]
async fn everything_that_was_answered_survives_kill_9() {
    if let Some(directory) = child_directory() {
        acquire_and_release_for_ever(&directory).await;
    }
    let directory = TempDir::new().unwrap();
    let mut held: HashMap<String, (u64, TokenHash)> = HashMap::new();
    let mut last_fence = 0;
    for round in 0..ROUNDS {
        let answers = run_and_kill(directory.path());
        let mut open_release = None;
        for answer in answers {
            match answer {
                Answer::Granted { lock, fence, token } => {
                    assert!(fence > last_fence, "fence {fence} after {last_fence}");
                    last_fence = fence;
                    held.insert(lock, (fence, token));
                }
                Answer::Releasing { lock } => open_release = Some(lock),
                Answer::Released { lock } => {
                    held.remove(&lock);
                    open_release = None;
                }
            }
        }
        // Whether this one was released nobody was told.
        if let Some(lock) = open_release {
            held.remove(&lock);
        }
        let store = open_again(directory.path()).await.unwrap();
        for (lock, (fence, token)) in &held {
            let name = LockName::new(lock).unwrap();
            let shown = store.inspect(&name).await.unwrap();
            let Some(Holder::Lease(lease)) = shown.holder else {
                panic!("round {round}: {lock} was granted and is free");
            };
            assert_eq!(lease.fence.get(), *fence);
            assert!(lease.expires_in <= Duration::from_hours(1));
            assert!(lease.expires_in + Duration::from_mins(5) > Duration::from_hours(1));
            let release = store.release(&name, token).await.unwrap();
            assert_eq!(release, Release::Released);
        }
        held.clear();
        let next = store.acquire(&attempt(&format!("after:{round}"))).await;
        let Ok(Acquisition::Granted(lease)) = next else {
            panic!("not granted: {next:?}");
        };
        assert!(lease.fence.get() > last_fence);
        last_fence = lease.fence.get();
        store.close().await;
    }
}

/// What the child was answered, one line each.
enum Answer {
    Granted {
        lock: String,
        fence: u64,
        token: TokenHash,
    },
    Releasing {
        lock: String,
    },
    Released {
        lock: String,
    },
}

fn run_and_kill(directory: &Path) -> Vec<Answer> {
    let mut child = spawn::command(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("embedded::killed::everything_that_was_answered_survives_kill_9")
        .env(CHILD, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut answers = Vec::new();
    for line in lines {
        // What the child wrote before it died is still in the pipe; its last line may be cut.
        let Ok(line) = line else { break };
        answers.extend(Answer::parse(&line));
        if answers.len() == ANSWERS {
            // While it runs nobody else may have the directory.
            let second = open(directory);
            assert!(matches!(second, Err(OpenError::InUse(_))), "{second:?}");
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert!(
        answers.len() >= ANSWERS,
        "{} answers: {status}",
        answers.len()
    );
    assert!(!status.success(), "the child was to be killed");
    answers
}

#[expect(
    clippy::print_stdout,
    reason = "a line in a pipe is how the child tells what it was answered"
)]
async fn acquire_and_release_for_ever(directory: &Path) {
    let store = open(directory).unwrap();
    for turn in 0_u64.. {
        let attempt = attempt(&format!("killed:{}:{turn}", std::process::id()));
        let Attempt { name, token, .. } = &attempt;
        let outcome = store.acquire(&attempt).await.unwrap();
        let Acquisition::Granted(held) = outcome else {
            panic!("not granted: {outcome:?}");
        };
        println!("granted {name} {} {token}", held.fence);
        if turn % 3 == 0 {
            println!("releasing {name}");
            store.release(name, token).await.unwrap();
            println!("released {name}");
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "this is not the program but a test that starts itself"
)]
fn child_directory() -> Option<PathBuf> {
    std::env::var_os(CHILD).map(PathBuf::from)
}

// === impl Answer ===

impl Answer {
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["granted", lock, fence, token] if token.len() == 64 => Some(Self::Granted {
                lock: lock.to_owned(),
                fence: fence.parse().unwrap(),
                token: TokenHash::from_bytes(bytes(token)),
            }),
            ["releasing", lock] => Some(Self::Releasing {
                lock: lock.to_owned(),
            }),
            ["released", lock] => Some(Self::Released {
                lock: lock.to_owned(),
            }),
            _ => None,
        }
    }
}

fn bytes(hex: &str) -> [u8; 32] {
    std::array::from_fn(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
}

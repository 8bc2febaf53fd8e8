//! `kill -9` during a loop of acquires: every answered change must survive.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::Stdio,
};

use latchgate::store::embedded::OpenError;
use tempfile::TempDir;

use super::place::{CHILD, attempt, child_directory, open, open_again};
use crate::support::prelude::*;
use crate::support::spawn;

const ROUNDS: usize = 5;
/// How many answers the parent process reads before it kills the child.
const ANSWERS: usize = 400;

/// The test runs in two processes: it starts itself again as the child that is killed.
#[tokio::test]
async fn everything_that_was_answered_survives_kill_9() {
    if let Some(directory) = child_directory() {
        acquire_and_release_for_ever(&directory).await;
    }
    let directory = TempDir::new().unwrap();
    let mut last_fence = 0;
    for round in 0..ROUNDS {
        let answers = run_and_kill(directory.path());
        let mut held = HashMap::new();
        for answer in &answers {
            match answer.split(' ').collect::<Vec<_>>()[..] {
                ["granted", lock, fence, token] if token.len() == 64 => {
                    let fence: u64 = fence.parse().unwrap();
                    assert!(fence > last_fence, "fence {fence} after {last_fence}");
                    last_fence = fence;
                    held.insert(lock, (fence, TokenHash::from_bytes(bytes(token))));
                }
                // Whether the last of these was released is not known.
                ["releasing", lock] => drop(held.remove(lock)),
                _ => {}
            }
        }
        let store = open_again(directory.path()).await.unwrap();
        for (lock, (fence, token)) in held {
            let name = LockName::new(lock).unwrap();
            let shown = store.inspect(&name).await.unwrap();
            let Some(Holder::Lease(lease)) = shown.holder else {
                panic!("round {round}: {lock} was granted and is free");
            };
            assert_eq!(lease.fence.get(), fence);
            assert!(lease.expires_in <= Duration::from_hours(1));
            assert!(lease.expires_in + Duration::from_mins(5) > Duration::from_hours(1));
            let release = store.release(&name, &token).await.unwrap();
            assert!(matches!(release, Release::Released(_)), "{release:?}");
        }
        let next = store.acquire(&attempt(&format!("after:{round}"))).await;
        let Ok(Acquisition::Granted(lease)) = next else {
            panic!("not granted: {next:?}");
        };
        assert!(lease.fence.get() > last_fence);
        last_fence = lease.fence.get();
        store.close().await;
    }
}

/// Runs the child and kills it. Answers what the child was answered, one line each.
fn run_and_kill(directory: &Path) -> Vec<String> {
    let mut child = spawn::command(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture"])
        .arg("embedded::killed::everything_that_was_answered_survives_kill_9")
        .env(CHILD, directory)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut answers = Vec::new();
    // Output from before the kill is still in the pipe; its last line may be cut.
    for line in lines.map_while(Result::ok) {
        answers.push(line);
        if answers.len() == ANSWERS {
            // While the child runs, no other process may use the directory.
            let second = open(directory);
            assert!(matches!(second, Err(OpenError::InUse(_))), "{second:?}");
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    let count = answers.len();
    assert!(count >= ANSWERS, "{count} answers: {status}");
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
        }
    }
}

fn bytes(hex: &str) -> [u8; 32] {
    std::array::from_fn(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
}

//! A log whose last transaction is damaged: the data before it is found, and the loss is reported.

use std::fs;

use tempfile::TempDir;

use super::place::{data_file, open, open_again, take, with_log};
use crate::{api::fixture::Lines, support::prelude::*};

const LOCKS: usize = 20;

#[tokio::test]
async fn nothing_is_forgotten_without_a_word() {
    let directory = TempDir::new().unwrap();
    let store = open(directory.path()).unwrap();
    take(&store, LOCKS).await;
    // The file as `kill -9` would leave it.
    let killed = fs::read(data_file(directory.path())).unwrap();
    store.close().await;
    let mut torn = killed.clone();
    let last = torn.iter().rposition(|&byte| byte != 0).unwrap();
    torn[last] = 0;
    for (log, is_torn) in [(killed, false), (torn, true)] {
        let directory = with_log(&log);
        let lines = Lines::default();
        let collecting = lines.collect();
        let store = open_again(directory.path()).await.unwrap();
        drop(collecting);
        let said = lines.read();
        assert_eq!(said.contains("is rolled back"), is_torn, "{said}");
        assert_eq!(said.contains("WARN"), is_torn, "{said}");
        for lock in 0..LOCKS {
            let name = format!("lock:{lock}").parse().unwrap();
            let held = store.inspect(&name).await.unwrap().holder.is_some();
            // Only the last transaction is lost.
            assert_eq!(held, !is_torn || lock < LOCKS - 1, "{name}");
        }
        store.close().await;
    }
}

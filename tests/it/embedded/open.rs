//! The store that the configuration names.

use latchgate::{config::Config, store};
use tempfile::TempDir;

use crate::support::prelude::*;

#[tokio::test]
async fn an_embedded_url_opens_the_store_in_its_directory() {
    let parent = TempDir::new().unwrap();
    let directory = parent.path().join("data");
    let config = Config {
        store: StoreUrl::Embedded(directory.clone()),
        ..Config::default()
    };
    let clock = Arc::new(SystemClock);
    let lifecycle = Lifecycle::new();
    let store = store::open(&config, clock.clone(), &lifecycle)
        .await
        .unwrap();
    assert_eq!(
        store.describe(),
        format!("embedded:{}", directory.display())
    );
    let second = store::open(&config, clock, &lifecycle).await.err();
    let text = second.expect("one process at a time").to_string();
    assert!(text.contains("in use"), "{text}");
    store.close().await;
}

//! Opening the store, and short words for what is done with it.

use std::{path::Path, sync::Arc};

use latchgate::{
    clock::SystemClock,
    config::EmbeddedConfig,
    lock::{LockName, Metadata, Token, Ttl},
    store::{
        Store,
        contract::{Acquisition, Attempt},
        embedded::{EmbeddedStore, OpenError},
    },
};

/// Opens the store with the clock of this machine.
pub(super) fn open(directory: &Path) -> Result<EmbeddedStore, OpenError> {
    let config = EmbeddedConfig::default();
    EmbeddedStore::open(directory, &config, Arc::new(SystemClock))
}

/// An attempt for a lease of an hour.
pub(super) fn attempt(lock: &str) -> Attempt {
    Attempt {
        name: LockName::new(lock).unwrap(),
        token: Token::random().hash(),
        ttl: Ttl::from_millis(3_600_000).unwrap(),
        hold_limit: None,
        owner: None,
        metadata: Metadata::default(),
        idempotency: None,
        wait: None,
    }
}

/// Takes so many locks, `lock:0` and on.
pub(super) async fn take(store: &EmbeddedStore, locks: usize) {
    for lock in 0..locks {
        let attempt = attempt(&format!("lock:{lock}"));
        let outcome = store.acquire(&attempt).await.unwrap();
        assert!(matches!(outcome, Acquisition::Granted(_)), "{outcome:?}");
    }
}

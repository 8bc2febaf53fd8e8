//! The embedded store, in a directory of its own.

use async_trait::async_trait;
use latchgate::store::embedded::EmbeddedStore;
use tempfile::TempDir;

use crate::conformance::prelude::*;
use crate::embedded::place::open_again;

/// The embedded store, in a directory of its own.
pub(super) struct Embedded {
    store: Mutex<Arc<EmbeddedStore>>,
    directory: TempDir,
}

// === impl Embedded ===

impl Embedded {
    pub(super) fn start() -> Self {
        let directory = TempDir::new().unwrap();
        let store = Mutex::new(open(&directory));
        Self { store, directory }
    }
}

#[async_trait]
impl Fixture for Embedded {
    fn store(&self) -> AnyStore {
        self.store.lock().unwrap().clone().into()
    }

    async fn restart(&self) {
        self.store().close().await;
        let opened = open_again(self.directory.path()).await;
        *self.store.lock().unwrap() = Arc::new(opened.unwrap());
    }
}

fn open(directory: &TempDir) -> Arc<EmbeddedStore> {
    let store = EmbeddedStore::open(directory.path(), Arc::new(SystemClock));
    Arc::new(store.unwrap())
}

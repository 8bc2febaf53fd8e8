//! Inspect: look at a lock.

use crate::{
    lock::LockName,
    store::{
        Store, StoreError,
        contract::{Inspection, ListQuery, Page},
    },
};

use super::Engine;

// === impl Engine ===

impl Engine {
    /// Shows who holds a lock.
    pub async fn inspect(&self, name: &LockName) -> Result<Inspection, StoreError> {
        self.0.store.inspect(name).await
    }
}

// === List ===
//
// List: look at the locks that are held, a page at a time.

// === impl Engine ===

impl Engine {
    /// Shows locks that are held, and of those the ones that `views` lets the caller see. A page that
    /// is short, or empty, is not the last one: the last one has no cursor.
    pub async fn list(
        &self,
        query: &ListQuery,
        views: impl Fn(&LockName) -> bool,
    ) -> Result<Page, StoreError> {
        let mut page = self.0.store.list(query).await?;
        page.locks.retain(|lock| views(&lock.name));
        Ok(page)
    }
}

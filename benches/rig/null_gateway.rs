//! The gateway with a store that does nothing: it measures everything around a store.
//!
//! It starts like `latchgate serve`, with the same limits, log, metrics and runtime. This is the only file of the
//! benchmarks that uses the `Store` trait.

use std::{
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use latchgate::{
    cli,
    config::Config,
    lock::{BreakTarget, FencingToken, LockName, Mode, RecipientId, ReleaseRequest, TokenHash},
    store::{
        Store, StoreError,
        contract::{
            Acquisition, Attempt, BreakFeed, Breaking, Check, Confirmation, Contention, FenceCheck,
            FenceQuery, GiveBack, Inspection, Leaving, ListQuery, Loss, Page, Release, Releaser,
            Renewal, RenewalTtl, Renewer, Requesting,
        },
        parking::Parking,
    },
};
use tokio::time::Instant;

/// The argument that starts this program as the gateway without a store.
pub(super) const ROLE: &str = "null-gateway";

/// A store that grants every lock and keeps nothing.
#[derive(Default)]
struct NullStore {
    fences: AtomicU64,
    parking: Parking,
    breaks: BreakFeed,
}

/// Serves until it is killed.
pub(super) fn serve() -> ExitCode {
    let config = Config {
        listen: ([127, 0, 0, 1], 0).into(),
        // The same number of threads as with Redis.
        store: "redis://127.0.0.1"
            .parse()
            .expect("the address is well-formed"),
        ..Config::default()
    };
    cli::serve_over(config, Arc::new(NullStore::default()).into())
}

// === impl NullStore ===

#[async_trait]
impl Store for NullStore {
    async fn acquire(&self, attempt: &Attempt) -> Result<Acquisition, StoreError> {
        let fence = 1_700_000_000_000_000 + self.fences.fetch_add(1, Ordering::Relaxed);
        let fence = FencingToken::new(fence).expect("it is far below the largest");
        let lease = attempt
            .terms
            .granted(fence, Mode::Exclusive, Instant::now());
        Ok(Acquisition::Granted(lease))
    }

    async fn confirm(
        &self,
        _name: &LockName,
        _token: &TokenHash,
    ) -> Result<Confirmation, StoreError> {
        Ok(Confirmation::Lost)
    }

    async fn leave(
        &self,
        _name: &LockName,
        _token: &TokenHash,
        _keep_for: Option<Duration>,
    ) -> Result<Leaving, StoreError> {
        Ok(Leaving::Left(Contention {
            holder: None,
            waiters: 0,
        }))
    }

    fn parking(&self) -> &Parking {
        &self.parking
    }

    async fn renew_as(
        &self,
        _renewer: Renewer,
        _name: &LockName,
        _token: &TokenHash,
        _ttl: RenewalTtl,
    ) -> Result<Renewal, StoreError> {
        Ok(Renewal::Lost(Loss::Free))
    }

    async fn release_as(
        &self,
        _releaser: Releaser,
        _name: &LockName,
        _token: &TokenHash,
        _granted_here: bool,
    ) -> Result<Release, StoreError> {
        Ok(Release::Released(None))
    }

    async fn give_back(
        &self,
        _name: &LockName,
        _token: &TokenHash,
        _unanswered: Option<RecipientId>,
    ) -> Result<GiveBack, StoreError> {
        Ok(GiveBack::NothingHeld)
    }

    async fn inspect(&self, _name: &LockName) -> Result<Inspection, StoreError> {
        Ok(Inspection {
            holder: None,
            queue: Vec::new(),
            waiters: 0,
        })
    }

    async fn check_fence(&self, _query: &FenceQuery) -> Result<FenceCheck, StoreError> {
        Ok(FenceCheck::Stale { is_outrun: false })
    }

    async fn list(&self, _query: &ListQuery) -> Result<Page, StoreError> {
        Ok(Page {
            locks: Vec::new(),
            next: None,
        })
    }

    async fn break_lock(
        &self,
        _name: &LockName,
        _target: Option<BreakTarget>,
    ) -> Result<Breaking, StoreError> {
        Ok(Breaking::NotHeld)
    }

    async fn request_release(
        &self,
        _name: &LockName,
        _target: Option<BreakTarget>,
        _request: &ReleaseRequest,
    ) -> Result<Requesting, StoreError> {
        Ok(Requesting::NotHeld)
    }

    fn breaks(&self) -> &BreakFeed {
        &self.breaks
    }

    async fn check(&self) -> Vec<Check> {
        Vec::new()
    }

    async fn close(&self) {}

    fn describe(&self) -> String {
        "nothing".to_owned()
    }
}

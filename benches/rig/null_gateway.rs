//! The gateway's own router over a store that does nothing: the ceiling of HTTP on this machine.

use std::{process::ExitCode, sync::Arc, time::Duration};

use latchgate::{
    clock::SystemClock,
    config::Config,
    engine::Engine,
    http,
    lifecycle::Lifecycle,
    lock::{FencingToken, HeldLease, KeeperId, LockName, Meant, Metadata, TokenHash, Ttl},
    store::{
        AnyStore, Store, StoreError,
        breaks::{Breaking, Breaks},
        contract::{
            Acquisition, Attempt, Check, Confirmation, Contention, GiveBack, Inspection, Leaving,
            Loss, Release, Renewal, Renewer,
        },
        page::{ListQuery, Page},
        parking::Parking,
    },
    telemetry::{self, metrics::Metrics},
};

const FLAG: &str = "null-gateway";

/// The arguments that start this program as a null gateway.
pub(crate) const ARGUMENTS: [&str; 1] = [FLAG];

/// Grants everything, keeps nothing.
#[derive(Default)]
struct NullStore {
    parking: Parking,
    breaks: Breaks,
}

/// Whether this process was started as a null gateway.
pub(crate) fn asked_for() -> bool {
    std::env::args().any(|argument| argument == FLAG)
}

/// Serves until it is killed.
pub(crate) fn run() -> ExitCode {
    let config = Arc::new(Config::default());
    // The access log is a part of the edge that is compared.
    let _log = telemetry::init(&config.log).expect("the default level is one");
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(config.request_threads())
        .enable_all()
        .build()
        .expect("a runtime starts");
    runtime.block_on(async {
        let lifecycle = Lifecycle::new();
        let metrics = Metrics::default();
        let engine = Engine::start(
            AnyStore::other(Arc::new(NullStore::default())),
            lifecycle.clone(),
            &config.limits,
            metrics.clone(),
        );
        let gateway = http::Gateway::new(engine, Arc::clone(&config), Arc::new(SystemClock));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("loopback has a free port");
        println!(
            "http://{}",
            listener
                .local_addr()
                .expect("a bound socket has an address")
        );
        http::serve(
            listener,
            http::router(gateway),
            &config.http,
            None,
            &metrics,
            &lifecycle,
        )
        .await;
    });
    ExitCode::SUCCESS
}

// === impl NullStore ===

impl Store for NullStore {
    async fn acquire(&self, attempt: &Attempt) -> Result<Acquisition, StoreError> {
        Ok(Acquisition::Granted(HeldLease {
            fence: FencingToken::MAX,
            ttl: attempt.ttl,
            expires_in: attempt.ttl.duration(),
            held_for: Duration::ZERO,
            hold_expires_in: None,
            owner: attempt.owner.clone(),
            metadata: Metadata::default(),
        }))
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
        _ttl: Option<Ttl>,
    ) -> Result<Renewal, StoreError> {
        Ok(Renewal::Lost(Loss::Free))
    }

    async fn release_as(
        &self,
        _keeper: Option<KeeperId>,
        _name: &LockName,
        _token: &TokenHash,
    ) -> Result<Release, StoreError> {
        Ok(Release::Released)
    }

    async fn give_back(
        &self,
        _name: &LockName,
        _token: &TokenHash,
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

    async fn list(&self, _query: &ListQuery) -> Result<Page, StoreError> {
        Ok(Page {
            locks: Vec::new(),
            next: None,
        })
    }

    async fn break_lock(
        &self,
        _name: &LockName,
        _meant: Option<Meant>,
    ) -> Result<Breaking, StoreError> {
        Ok(Breaking::NotHeld)
    }

    fn breaks(&self) -> &Breaks {
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

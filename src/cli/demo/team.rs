//! The simulated team of the demo. It calls the gateway like other callers: over HTTP.

use std::{
    collections::BTreeMap,
    fmt::Display,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use futures_util::future::join_all;
use tokio::time::sleep;

use crate::{
    client::{AcquireMode, AcquireRequest, Client, Limit, Reserve},
    clock::{Clock, SystemClock, rfc3339},
    lock::{LockName, Metadata, OrderNumber, Text},
};

/// The team. Its methods go on until they are dropped, and ignore failures: a user of the page may break any lock.
pub(super) struct Team {
    client: Client,
    /// The number of the next run of the CI.
    run: AtomicU64,
}

/// The number of the first run of the CI in the demo. Earlier runs are in the history.
pub(super) const FIRST_RUN: u64 = 1_846;

/// The minimum hold of the nightly job.
const NIGHT: Duration = Duration::from_mins(10);
const FREEZE: Duration = Duration::from_hours(1);

// === impl Team ===

impl Team {
    pub(super) fn new(client: Client) -> Self {
        let run = AtomicU64::new(FIRST_RUN);
        Self { client, run }
    }

    pub(super) async fn work(&self) {
        // Before the first deploy.
        self.freeze().await;
        tokio::join!(
            join_all([7, 8, 9].map(|seconds| self.deploy("web", seconds))),
            join_all([20, 25].map(|seconds| self.deploy("payments", seconds))),
            join_all((1..=5).map(|number| self.test_in_browser(number))),
            join_all((1..=3).map(|node| self.report_nightly(node))),
            self.deploy_outdated(),
            self.write_late(),
            self.crash(),
        );
    }

    /// Deploys one run after the other. Several callers queue for the lock.
    async fn deploy(&self, what: &str, seconds: u64) {
        loop {
            let run = self.run.fetch_add(1, Ordering::Relaxed);
            let request = AcquireRequest {
                order: OrderNumber::new(run).ok(),
                metadata: Metadata::new(job(what, run)).expect("two entries are metadata"),
                ..patient(run_of(what, run))
            };
            self.hold(&format!("deploy:{what}"), &request, seconds)
                .await;
            sleep(Duration::from_secs(2)).await;
        }
    }

    /// Repeats an old run, which is refused: the lock was granted for a higher order.
    async fn deploy_outdated(&self) {
        let run = FIRST_RUN - 20;
        let request = AcquireRequest {
            order: OrderNumber::new(run).ok(),
            ..patient(format_args!("{}, repeated", run_of("web", run)))
        };
        loop {
            sleep(Duration::from_secs(3)).await;
            self.hold("deploy:web", &request, 1).await;
            sleep(Duration::from_secs(9)).await;
        }
    }

    /// Uses one of three browsers.
    async fn test_in_browser(&self, number: u64) {
        let limit = Limit::new(3).ok();
        let request = AcquireRequest {
            mode: AcquireMode::Shared { limit },
            ..patient(format_args!("tests {number}"))
        };
        loop {
            self.hold("pool:browsers", &request, 4 + 2 * number).await;
            sleep(Duration::from_secs(3)).await;
        }
    }

    /// Runs a job that each node tries to start, and that runs once per [`NIGHT`].
    async fn report_nightly(&self, node: u64) {
        let request = AcquireRequest {
            min_hold: Some(NIGHT),
            wait: Duration::ZERO,
            ..patient(format_args!("node {node}"))
        };
        loop {
            self.hold("nightly:report", &request, 2).await;
            sleep(Duration::from_secs(8 + node)).await;
        }
    }

    /// Reserves a lock, so that no deploy gets it until then.
    async fn freeze(&self) {
        let until = SystemClock.wall().checked_add(FREEZE);
        let request = AcquireRequest {
            ttl: None,
            reserve: Some(Reserve {
                until: rfc3339(until).to_string(),
                reason: text("freeze for the end of the quarter (simulated)"),
            }),
            ..patient("Dana, release manager")
        };
        let lock = name("deploy:payments");
        drop(self.client.acquire(&lock, &request).await);
    }

    /// Lets a lease end while its holder sleeps. A check then refuses the late write of the holder.
    async fn write_late(&self) {
        let lock = name("import:orders");
        let sleepy = AcquireRequest {
            ttl: Some(Duration::from_secs(2)),
            ..patient("importer 1")
        };
        loop {
            if let Ok(late) = self.client.acquire(&lock, &sleepy).await {
                let write_late = async |_: &_| {
                    drop(self.client.check(&lock, late.fence, None).await);
                    sleep(Duration::from_secs(6)).await;
                };
                drop(
                    self.client
                        .with_lock(&lock, &patient("importer 2"), write_late)
                        .await,
                );
            }
            sleep(Duration::from_secs(4)).await;
        }
    }

    /// Acquires a lock and never releases it, as a process does that has crashed. Another waits for the end of the lease.
    async fn crash(&self) {
        let lock = name("backup:photos");
        loop {
            drop(self.client.acquire(&lock, &patient("backup host 1")).await);
            self.hold("backup:photos", &patient("backup host 2"), 5)
                .await;
            sleep(Duration::from_secs(3)).await;
        }
    }

    async fn hold(&self, lock: &str, request: &AcquireRequest, seconds: u64) {
        let work = async |_: &_| sleep(Duration::from_secs(seconds)).await;
        drop(self.client.with_lock(&name(lock), request, work).await);
    }
}

/// A request that waits for as long as it takes.
fn patient(owner: impl Display) -> AcquireRequest {
    AcquireRequest {
        ttl: Some(Duration::from_secs(10)),
        wait: AcquireRequest::FOR_EVER,
        owner: Some(text(&simulated(owner))),
        ..AcquireRequest::default()
    }
}

/// The owner text of the team's leases.
pub(super) fn simulated(owner: impl Display) -> String {
    format!("{owner} (simulated)")
}

/// The name of a run of the CI.
pub(super) fn run_of(what: &str, run: u64) -> String {
    format!("{what} run {run}")
}

/// The metadata of a run of the CI.
pub(super) fn job(what: &str, run: u64) -> BTreeMap<String, String> {
    let commit = format!("{:07x}", run.wrapping_mul(0x9e37_79b9) & 0x0fff_ffff);
    let job = format!("https://ci.example.com/{what}/runs/{run}");
    BTreeMap::from([("job".to_owned(), job), ("commit".to_owned(), commit)])
}

fn name(lock: &str) -> LockName {
    LockName::new(lock).expect("the demo's names are names of locks")
}

fn text<const MAX: usize>(text: &str) -> Text<MAX> {
    Text::new(text).expect("the demo's texts are short")
}

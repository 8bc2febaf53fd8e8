//! A gateway process with a fixed address.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::{Instant, sleep};

use super::{
    address,
    process::{Process, command},
};
use crate::wire::Wire;

/// A gateway process with a fixed address.
pub(crate) struct Gateway {
    pub(crate) name: String,
    pub(crate) address: SocketAddr,
    pub(crate) process: Process,
    program: PathBuf,
    directory: PathBuf,
    store: String,
    mutant: Option<String>,
}

/// How long these gateways keep a position for a caller with an idempotency key, in ms: a run has no time for the
/// default of five seconds.
pub(crate) const GRACE: u64 = 1_000;
/// How many leases of a lock these gateways show in its history.
pub(crate) const HISTORY_ENTRIES: usize = 200;
/// The longest time of a start.
const TIMEOUT: Duration = Duration::from_secs(20);

// === impl Gateway ===

impl Gateway {
    /// Starts a gateway and waits until it answers.
    pub(super) async fn start(
        program: &Path,
        directory: &Path,
        name: &str,
        store: &str,
        mutant: Option<&str>,
    ) -> Self {
        let address = address::free();
        let mut gateway = Self {
            name: name.to_owned(),
            address,
            process: launch(program, directory, name, address, store, mutant),
            program: program.to_owned(),
            directory: directory.to_owned(),
            store: store.to_owned(),
            mutant: mutant.map(str::to_owned),
        };
        gateway.answers().await;
        gateway
    }

    /// Starts the gateway again after its end.
    pub(crate) async fn start_again(&mut self) {
        let mutant = self.mutant.as_deref();
        let Self {
            program,
            directory,
            name,
            address,
            store,
            ..
        } = self;
        self.process = launch(program, directory, name, *address, store, mutant);
        self.answers().await;
    }

    async fn answers(&mut self) {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            if let Ok(mut wire) = Wire::connect(self.address).await
                && wire.send("GET /healthz", "", "").await.is_ok()
                && wire.reply().await.is_ok_and(|reply| reply.status == 200)
            {
                return;
            }
            let log = self.directory.join(format!("{}.log", self.name));
            assert!(
                !self.process.has_ended() && Instant::now() < deadline,
                "{} does not start:\n{}",
                self.name,
                std::fs::read_to_string(log).unwrap_or_default()
            );
            sleep(Duration::from_millis(5)).await;
        }
    }
}

fn launch(
    program: &Path,
    directory: &Path,
    name: &str,
    address: SocketAddr,
    store: &str,
    mutant: Option<&str>,
) -> Process {
    let mut command = command(program);
    command
        .args(["serve", "--listen", &address.to_string(), "--store", store])
        .env("LATCHGATE_LIMITS_RECONNECT_GRACE_MS", GRACE.to_string())
        .env("LATCHGATE_HISTORY_ENTRIES", HISTORY_ENTRIES.to_string())
        .env("LATCHGATE_LOG_LEVEL", "warn");
    if store.starts_with("redlock") {
        // A killed node keeps all of its data, and faults that lose data are recorded as such.
        command.env("LATCHGATE_REDLOCK_PERSISTENCE", "aof-always");
    }
    if let Some(mutant) = mutant {
        command.env("MUTANT_OF_LATCHGATE", mutant);
    }
    Process::start(command, directory, name)
}

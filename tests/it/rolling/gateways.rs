//! Two gateways on one Redis server, whose addresses stay the same over restarts.

use std::{
    net::{SocketAddr, TcpListener},
    ops::Range,
    thread::sleep,
};

use rustix::process::Signal;
use tokio::task::spawn_blocking;

use crate::support::prelude::*;
use crate::support::{
    Tally,
    gateway::{Gateway, Setup},
};

/// Two gateways on one Redis server.
pub(super) struct Gateways {
    pub(super) redis: RedisServer,
    pub(super) addresses: [SocketAddr; 2],
    processes: [Option<Gateway>; 2],
}

/// Ports outside the range of ephemeral ports: while a gateway is away, no other program gets its port.
const PORTS: Range<u16> = 20_000..32_000;
/// The drain of a gateway. Renewals keep it alive until a second before the end of the drain, which is longer than a
/// third of a TTL.
const GRACE_MS: &str = "4000";
/// How long a gateway is away during its restart: longer than a third of a TTL, so that every client that uses it
/// notices.
const AWAY: Duration = Duration::from_millis(2_600);

// === impl Gateways ===

impl Gateways {
    pub(super) async fn start() -> Self {
        let redis = RedisServer::start().await;
        let store = format!("redis://127.0.0.1:{}", redis.port());
        let mut random = Random::seeded();
        let processes = [(); 2].map(|()| {
            let listen: &'static str = free_address(&mut random).to_string().leak();
            let setup = Setup {
                listen: Some(listen),
                ..Setup::default()
            };
            let setup = setup
                .with("LATCHGATE_STORE", &store)
                .with("LATCHGATE_SHUTDOWN_GRACE_MS", GRACE_MS)
                .with("LATCHGATE_LOG_LEVEL", "warn");
            Gateway::start_with(setup)
        });
        Self {
            redis,
            addresses: [processes[0].address, processes[1].address],
            processes: processes.map(Some),
        }
    }

    /// The URLs of both gateways.
    pub(super) fn urls(&self) -> String {
        self.addresses
            .map(|address| format!("http://{address}"))
            .join(",")
    }

    /// Ends a gateway, waits until it has ended in order, and starts it again.
    pub(super) async fn restart(&mut self, number: usize, tally: &Tally) {
        let mut gateway = self.processes[number].take().unwrap();
        let began = Instant::now();
        let (gateway, ended) = spawn_blocking(move || {
            gateway.signal(Signal::TERM);
            let status = gateway.wait();
            assert!(status.success(), "{status}:\n{}", gateway.log());
            let ended = Instant::now();
            sleep(AWAY);
            gateway.restart();
            (gateway, ended)
        })
        .await
        .unwrap();
        tally.took("from the signal to the end of a gateway", ended - began);
        tally.took("from its end until it serves again", ended.elapsed());
        self.processes[number] = Some(gateway);
    }

    /// The warnings and errors that both gateways have logged.
    pub(super) fn logs(&self) -> String {
        self.processes.iter().flatten().map(Gateway::log).collect()
    }
}

fn free_address(random: &mut Random) -> SocketAddr {
    loop {
        let port = PORTS.start + u16::try_from(random.below(PORTS.len())).unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        if TcpListener::bind(address).is_ok() {
            return address;
        }
    }
}

//! Sentinel processes.

use std::{net::SocketAddr, path::Path, time::Duration};

use bb8_redis::redis::{self, Value};
use tokio::time::{Instant, sleep};

use super::{
    address,
    process::{Process, command},
    redis::run,
};

/// A sentinel process.
pub(crate) struct Sentinel {
    pub(super) address: SocketAddr,
    _process: Process,
}

/// The name by which the sentinels know the master.
pub(super) const SERVICE: &str = "locks";
/// The longest time of a start.
const TIMEOUT: Duration = Duration::from_secs(20);

// === impl Sentinel ===

impl Sentinel {
    pub(super) async fn start(directory: &Path, name: &str, master: SocketAddr) -> Self {
        let address = address::free();
        let directory = directory.join(name);
        std::fs::create_dir(&directory).unwrap();
        let file = format!(
            "port {}\nbind 127.0.0.1\ndir {}\nsentinel monitor {SERVICE} 127.0.0.1 {} 2\n\
             sentinel down-after-milliseconds {SERVICE} 1000\n\
             sentinel failover-timeout {SERVICE} 2000\n\
             sentinel parallel-syncs {SERVICE} 2\n",
            address.port(),
            directory.display(),
            master.port()
        );
        std::fs::write(directory.join("conf"), file).unwrap();
        let mut command = command(Path::new("redis-server"));
        command.arg(directory.join("conf")).arg("--sentinel");
        command.current_dir(&directory);
        let sentinel = Self {
            address,
            _process: Process::start(command, &directory, "sentinel"),
        };
        let deadline = Instant::now() + TIMEOUT;
        while run(address, &["PING"]).await.is_err() {
            assert!(Instant::now() < deadline, "{name} does not start");
            sleep(Duration::from_millis(5)).await;
        }
        sentinel
    }

    /// The address of the master that the sentinel names.
    pub(super) async fn master(&self) -> Option<SocketAddr> {
        let words = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE];
        let named: Value = run(self.address, &words).await.ok()?;
        let (host, port): (String, u16) = redis::from_redis_value(named).ok()?;
        format!("{host}:{port}").parse().ok()
    }
}

//! Notifications to the service manager that started the gateway, with the protocol of `sd_notify`.

use std::{
    io,
    os::unix::net::{SocketAddr, UnixDatagram as StdDatagram},
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;
use tokio::{
    net::UnixDatagram,
    time::{MissedTickBehavior, interval, timeout},
};
use tracing::warn;

use crate::{cli::caller::environment::Environment, lifecycle::Lifecycle};

/// The service manager that started the gateway, if it wants notifications. Cheap to clone.
#[derive(Clone)]
pub(super) struct ServiceManager {
    socket: Option<Arc<UnixDatagram>>,
    /// The watchdog time: the service manager kills the gateway after this time without a notification.
    watchdog: Option<Duration>,
}

/// The time limit for sending one notification. A service manager reads thousands of messages in this time, and the
/// gateway does not wait for a slower one.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);
/// The time that the process needs to end after the grace period.
const LAST_MOMENTS: Duration = Duration::from_secs(5);

// === impl ServiceManager ===

impl ServiceManager {
    /// The service manager that the environment variables name. Must be called within the runtime.
    pub(super) fn from_environment(environment: &Environment) -> Self {
        let name = environment.text("NOTIFY_SOCKET");
        let socket = name.and_then(|name| {
            let socket = connect(name);
            socket
                .inspect_err(|error| {
                    warn!(%error, socket = name, "the gateway cannot report its state to the \
                                                  service manager");
                })
                .ok()
                .map(Arc::new)
        });
        Self {
            socket,
            watchdog: watchdog(environment),
        }
    }

    /// Notifies the manager that the gateway accepts requests.
    pub(super) async fn ready(&self) {
        self.notify("READY=1\nSTATUS=serving").await;
    }

    /// Notifies the manager that the gateway handles a HUP. A call of `ready` must follow when the HUP is handled.
    pub(super) async fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        // The manager compares this time with that of its own signal, to know which reload the notification is about.
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.notify(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"))
            .await;
    }

    /// Notifies the manager that the gateway stops, which takes at most `grace`. Without the time, the manager might
    /// kill the gateway after its own, shorter time-out.
    pub(super) async fn stopping(&self, grace: Duration) {
        let micros = (grace + LAST_MOMENTS).as_micros();
        self.notify(&format!(
            "STOPPING=1\nSTATUS=draining: renew and release go on, nothing is acquired\n\
             EXTEND_TIMEOUT_USEC={micros}"
        ))
        .await;
    }

    /// Starts a task that notifies the manager's watchdog as long as every worker thread responds, until the gateway
    /// stops.
    pub(super) fn keep_watchdog(&self, lifecycle: &Lifecycle) {
        let (Some(limit), true) = (self.watchdog, self.socket.is_some()) else {
            return;
        };
        let (manager, workers) = (self.clone(), lifecycle.workers().clone());
        let stopped = lifecycle.stopped();
        lifecycle.spawn_background(async move {
            // A notification is sent after each half of the watchdog time, as the documentation of `sd_notify`
            // recommends.
            let mut beats = interval(limit / 2);
            beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let mut stopped = std::pin::pin!(stopped);
            loop {
                tokio::select! {
                    () = &mut stopped => return,
                    _ = beats.tick() => {}
                }
                // A worker that does not respond serves none of its connections, so a single one stops the
                // notifications.
                let turns = workers.all().map(|it| workers.carry_out(it, async {}));
                tokio::select! {
                    () = &mut stopped => return,
                    turned = join_all(turns) => {
                        if turned.iter().all(Option::is_some) {
                            manager.notify("WATCHDOG=1").await;
                        }
                    }
                }
            }
        });
    }

    async fn notify(&self, state: &str) {
        let Some(socket) = &self.socket else { return };
        let sent = timeout(SEND_TIMEOUT, socket.send(state.as_bytes())).await;
        let sent = sent.unwrap_or_else(|_elapsed| Err(io::ErrorKind::TimedOut.into()));
        if let Err(error) = sent {
            warn!(%error, state, "the gateway could not report its state to the service manager");
        }
    }
}

/// Connects a datagram socket to the manager's socket with this name. A name that begins with `@` is an abstract
/// address, without a file.
fn connect(name: &str) -> io::Result<UnixDatagram> {
    let address = match name.strip_prefix('@') {
        Some(name) => abstract_address(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    let socket = StdDatagram::unbound()?;
    socket.connect_addr(&address)?;
    socket.set_nonblocking(true)?;
    UnixDatagram::from_std(socket)
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &str) -> io::Result<SocketAddr> {
    <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)
}

/// Only Linux has abstract socket addresses, so other systems return an error.
#[cfg(not(target_os = "linux"))]
fn abstract_address(_name: &str) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The watchdog time that the manager has set, if its watchdog is meant for this process.
fn watchdog(environment: &Environment) -> Option<Duration> {
    let number = |name| environment.text(name)?.parse::<u64>().ok();
    let for_another = |pid| pid != u64::from(std::process::id());
    if number("WATCHDOG_PID").is_some_and(for_another) {
        return None;
    }
    let limit = Duration::from_micros(number("WATCHDOG_USEC")?);
    // A watchdog time below 2 ms is ignored, because half of it is no usable period.
    (limit >= Duration::from_millis(2)).then_some(limit)
}

//! Notifications to the service manager that started the gateway, with the protocol of `sd_notify`.

use std::{
    sync::mpsc::{SyncSender, sync_channel},
    thread,
    time::Duration,
};

use futures_util::future::join_all;
use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use crate::{cli::caller::environment::Environment, lifecycle::Lifecycle};

/// The service manager that started the gateway, if it wants notifications. Cheap to clone.
///
/// A thread sends the notifications, because a manager that does not read would keep their sender waiting.
#[derive(Clone)]
pub(super) struct ServiceManager(Option<SyncSender<String>>);

/// How many notifications may wait until the manager reads.
const WAITING: usize = 8;
/// The time that the process needs to end after the grace period.
const LAST_MOMENTS: Duration = Duration::from_secs(5);

// === impl ServiceManager ===

impl ServiceManager {
    /// The service manager that the environment variables name.
    pub(super) fn from_environment(environment: &Environment) -> Self {
        if environment.text("NOTIFY_SOCKET").is_none() {
            return Self(None);
        }
        let (sender, states) = sync_channel::<String>(WAITING);
        let thread = thread::Builder::new().name("latchgate-notify".to_owned());
        let started = thread.spawn(move || {
            for state in states {
                if let Err(error) = sd_notify::notify(&[NotifyState::Custom(&state)]) {
                    warn!(%error, state, "the gateway could not report its state to the service manager");
                }
            }
        });
        if let Err(error) = &started {
            warn!(%error, "the gateway cannot report its state to the service manager");
        }
        Self(started.is_ok().then_some(sender))
    }

    /// Notifies the manager that the gateway accepts requests.
    pub(super) fn ready(&self) {
        self.notify("READY=1\nSTATUS=serving".to_owned());
    }

    /// Notifies the manager that the gateway handles a HUP. A call of `ready` must follow when the HUP is handled.
    pub(super) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        // The manager compares this time with that of its own signal, to know which reload the notification is about.
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        self.notify(format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// Notifies the manager that the gateway stops, which takes at most `grace`. Without the time, the manager might
    /// kill the gateway after its own, shorter time-out.
    pub(super) fn stopping(&self, grace: Duration) {
        let micros = (grace + LAST_MOMENTS).as_micros();
        self.notify(format!(
            "STOPPING=1\nSTATUS=draining: renew and release go on, nothing is acquired\n\
             EXTEND_TIMEOUT_USEC={micros}"
        ));
    }

    /// Starts a task that notifies the manager's watchdog as long as every worker thread responds, until the gateway
    /// stops.
    pub(super) fn keep_watchdog(&self, lifecycle: &Lifecycle) {
        // Half of a shorter time is no usable period.
        let limit = sd_notify::watchdog_enabled().filter(|it| *it >= Duration::from_millis(2));
        let (Some(limit), Some(_)) = (limit, &self.0) else {
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
                            manager.notify("WATCHDOG=1".to_owned());
                        }
                    }
                }
            }
        });
    }

    fn notify(&self, state: String) {
        if let Some(states) = &self.0
            && states.try_send(state).is_err()
        {
            warn!("the service manager does not read what the gateway reports");
        }
    }
}

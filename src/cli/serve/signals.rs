//! The signals that end the gateway.

use std::{
    io::{self, IsTerminal},
    sync::Arc,
};

use rustix::process::Signal;
use tokio::{
    signal::unix::{self, SignalKind, signal},
    sync::Notify,
};
use tracing::warn;

use crate::{audit::Audit, cli::terminal::signals};

use super::service_manager::ServiceManager;

/// TERM, INT and HUP, from the moment this exists.
pub(super) struct ServeSignals {
    term: unix::Signal,
    int: unix::Signal,
    /// Not heard if whoever started the gateway wants it ignored, as `nohup` does.
    hup: signals::Signals,
    /// USR1 and USR2, which would end a process that does not listen for them, and mean nothing here.
    _ignored: [unix::Signal; 2],
    /// Whether somebody started it by hand. Found out at the start: of a terminal that is closed it
    /// cannot be told any more that it was one.
    interactive: bool,
    /// Who reads again what can be read again.
    reload: Vec<Arc<Notify>>,
    /// What a HUP opens anew.
    audit: Audit,
    /// Who is told of what a HUP does.
    manager: Option<ServiceManager>,
}

// === impl ServeSignals ===

impl ServeSignals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signals::Signals::listen([Signal::HUP])?,
            _ignored: [
                signal(SignalKind::user_defined1())?,
                signal(SignalKind::user_defined2())?,
            ],
            interactive: io::stdin().is_terminal(),
            reload: Vec::new(),
            audit: Audit::none(),
            manager: None,
        })
    }

    /// From now on HUP wakes this one too.
    pub(super) fn reload_with(&mut self, reload: Arc<Notify>) {
        self.reload.push(reload);
    }

    /// Opens this anew with every HUP that does not end the gateway.
    pub(super) fn reopen(&mut self, audit: Audit) {
        self.audit = audit;
    }

    /// Tells this one from now on of every HUP that does not end the gateway.
    pub(super) fn report_to(&mut self, manager: Option<ServiceManager>) {
        self.manager = manager;
    }

    /// The next that is to end the gateway.
    ///
    /// A terminal that is closed ends what was started on it. Without a terminal HUP is the usual
    /// way to ask for a new configuration: no reason to end. Of that only keys and certificates are read
    /// again.
    pub(super) async fn next(&mut self) -> &'static str {
        loop {
            tokio::select! {
                _ = self.term.recv() => return "TERM",
                _ = self.int.recv() => return "INT",
                _ = self.hup.next() => {
                    if self.interactive {
                        return "HUP";
                    }
                    if let Some(manager) = &self.manager {
                        manager.reloading().await;
                    }
                    self.audit.reopen();
                    for reload in &self.reload {
                        reload.notify_one();
                    }
                    if self.reload.is_empty() && !self.audit.is_kept() {
                        warn!(
                            "HUP is ignored: the configuration is read at the start only; start \
                             the gateway again to change it"
                        );
                    }
                    if let Some(manager) = &self.manager {
                        manager.ready().await;
                    }
                }
            }
        }
    }
}

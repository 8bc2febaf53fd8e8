//! What every handler works with.

use std::sync::{Arc, OnceLock};

use crate::{
    audit::Audit, auth::Gate, clock::Clock, config::Config, engine::Engine,
    telemetry::trace::Tracer,
};

use super::{base_path::BasePath, dashboard::IndexPage, file::File, tls::Certificates};

/// The gateway as the handlers see it.
pub struct AppState {
    pub(super) engine: Engine,
    /// Who is let in.
    pub(super) gate: Gate,
    /// Who is told of what was broken and refused.
    pub(super) audit: Audit,
    /// By what callers know the gateway, if it speaks TLS.
    pub(super) certificates: Option<Certificates>,
    /// Who begins traces.
    pub(super) tracer: Tracer,
    pub(super) config: Arc<Config>,
    /// For the timestamps in answers. They are displayed; nothing is decided by them.
    pub(super) clock: Arc<dyn Clock>,
    pub(super) base_path: BasePath,
    /// The OpenAPI document of this gateway, once somebody has asked for it: until then its parts would
    /// take a third of the memory of an idle gateway.
    document: OnceLock<File>,
    /// The page for people.
    pub(super) page: IndexPage,
}

// === impl AppState ===

impl AppState {
    /// A gateway over an engine that has been started. It lets everybody in.
    pub fn new(engine: Engine, config: Arc<Config>, clock: Arc<dyn Clock>) -> Self {
        let base_path = BasePath::new(&config.http.base_path);
        Self {
            document: OnceLock::new(),
            page: IndexPage::at(&base_path),
            base_path,
            engine,
            gate: Gate::open(),
            audit: Audit::none(),
            certificates: None,
            tracer: Tracer::none(),
            config,
            clock,
        }
    }

    /// The same gateway for those whom the gate lets in.
    #[must_use]
    pub fn with_gate(self, gate: Gate) -> Self {
        Self { gate, ..self }
    }

    /// The same gateway over TLS, if there are certificates.
    #[must_use]
    pub fn with_certificates(self, certificates: Option<Certificates>) -> Self {
        Self {
            certificates,
            ..self
        }
    }

    /// The same gateway with an audit log.
    #[must_use]
    pub fn with_audit(self, audit: Audit) -> Self {
        Self { audit, ..self }
    }

    /// The same gateway with its part of every trace told.
    #[must_use]
    pub fn with_tracer(self, tracer: Tracer) -> Self {
        Self { tracer, ..self }
    }

    /// The OpenAPI document of this gateway, rendered when it is asked for first.
    pub(super) fn document(&self, render: impl FnOnce() -> File) -> &File {
        self.document.get_or_init(render)
    }
}

//! State that every handler works with, and the path below which the service is.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use parking_lot::RwLock;

use crate::{
    audit::Audit,
    auth::Gate,
    clock::Clock,
    config::{Config, DeclaredLocks},
    engine::Engine,
    telemetry::trace::Tracer,
};

use super::{file::File, tls::Certificates};

/// The gateway as the handlers see it.
pub struct AppState {
    pub(super) engine: Engine,
    /// The gate, which admits callers by their API keys or sessions.
    pub gate: Gate,
    /// The audit log, of breaks and refusals among others.
    pub audit: Audit,
    /// The certificates of the gateway, if it speaks TLS.
    pub certificates: Option<Certificates>,
    /// The declared locks, if there is a locks file.
    pub declarations: Option<Arc<RwLock<DeclaredLocks>>>,
    /// Begins the trace spans of requests.
    pub tracer: Tracer,
    pub(super) config: Arc<Config>,
    /// Clock for the timestamps in answers. The timestamps are displayed; no decision depends on them.
    pub(super) clock: Arc<dyn Clock>,
    pub(super) base_path: BasePath,
    /// The OpenAPI document of this gateway, made for the first request for it: its parts would take a third
    /// of the memory of an idle gateway.
    pub(super) document: OnceLock<File>,
    /// The dashboard's page with the gateway's base path, made at the first request for the page.
    pub(super) page: OnceLock<File>,
}

// === impl AppState ===

impl AppState {
    /// State over an engine that has been started. It admits every caller, speaks plain HTTP, and has no
    /// audit log and no traces.
    pub fn new(engine: Engine, config: Arc<Config>, clock: Arc<dyn Clock>) -> Self {
        Self {
            document: OnceLock::new(),
            page: OnceLock::new(),
            base_path: BasePath::new(&config.http.base_path),
            engine,
            gate: Gate::open(),
            audit: Audit::none(),
            certificates: None,
            declarations: None,
            tracer: Tracer::none(),
            config,
            clock,
        }
    }
}

/// A path prefix: empty, or with a slash at its beginning and none at its end. Cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BasePath(Arc<str>);

// === impl BasePath ===

impl BasePath {
    /// Makes a base path of the configured text, which may have slashes at its ends or not.
    pub(super) fn new(configured: &str) -> Self {
        match configured.trim_matches('/') {
            "" => Self("".into()),
            path => Self(format!("/{path}").into()),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for BasePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_one_slash_at_its_beginning_and_none_at_its_end() {
        for configured in ["", "/"] {
            assert_eq!(BasePath::new(configured).as_str(), "");
        }
        for configured in ["/a/b", "a/b", "/a/b/"] {
            assert_eq!(BasePath::new(configured).as_str(), "/a/b");
        }
    }
}

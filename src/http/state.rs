//! What every handler works with, and the path below which the service is.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use crate::{
    audit::Audit, auth::Gate, clock::Clock, config::Config, engine::Engine,
    telemetry::trace::Tracer,
};

use super::{file::File, tls::Certificates};

/// The gateway as the handlers see it.
pub struct AppState {
    pub(super) engine: Engine,
    /// Who is let in.
    pub gate: Gate,
    /// Who is told of what was broken and refused.
    pub audit: Audit,
    /// By what callers know the gateway, if it speaks TLS.
    pub certificates: Option<Certificates>,
    /// Who begins traces.
    pub tracer: Tracer,
    pub(super) config: Arc<Config>,
    /// For the timestamps in answers. They are displayed; nothing is decided by them.
    pub(super) clock: Arc<dyn Clock>,
    pub(super) base_path: BasePath,
    /// The OpenAPI document of this gateway, once somebody has asked for it: until then its parts would
    /// take a third of the memory of an idle gateway.
    pub(super) document: OnceLock<File>,
    /// The page for people, once somebody has asked for it.
    pub(super) page: OnceLock<File>,
}

// === impl AppState ===

impl AppState {
    /// A gateway over an engine that has been started. It lets everybody in, over plain HTTP, and tells nobody.
    pub fn new(engine: Engine, config: Arc<Config>, clock: Arc<dyn Clock>) -> Self {
        Self {
            document: OnceLock::new(),
            page: OnceLock::new(),
            base_path: BasePath::new(&config.http.base_path),
            engine,
            gate: Gate::open(),
            audit: Audit::none(),
            certificates: None,
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
    /// Takes the prefix as it is configured, slashes at its ends or not.
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

//! By what callers know the gateway, and it them.

use std::{
    fmt,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, Ordering},
    },
};

use rustls::{
    ServerConfig,
    server::{NoClientAuth, WebPkiClientVerifier, danger::ClientCertVerifier},
};
use tokio_rustls::TlsAcceptor;

use crate::{
    config::{ClientAuth, HttpTlsConfig},
    tls::{TlsError, provider},
};

/// By what callers know the gateway, and it them. Cheap to clone; its `Debug` shows no key.
///
/// A connection keeps what it was made with.
#[derive(Clone)]
pub struct Certificates(Arc<Current>);

struct Current {
    config: RwLock<Arc<ServerConfig>>,
    /// Whether the files have changed since and cannot be used.
    is_outdated: AtomicBool,
}

/// What is spoken over TLS, the best first.
pub(in crate::http) const HTTP_2: &[u8] = b"h2";
const HTTP_1: &[u8] = b"http/1.1";

// === impl Certificates ===

impl Certificates {
    pub(super) fn new(config: ServerConfig) -> Self {
        Self(Arc::new(Current {
            config: RwLock::new(Arc::new(config)),
            is_outdated: AtomicBool::new(false),
        }))
    }

    /// Takes one connection, with what the files said last.
    pub(in crate::http) fn acceptor(&self) -> TlsAcceptor {
        let config = self.0.config.read().unwrap_or_else(PoisonError::into_inner);
        TlsAcceptor::from(Arc::clone(&config))
    }

    /// New connections are made with these from now on.
    pub(super) fn replace(&self, new: ServerConfig) {
        *self
            .0
            .config
            .write()
            .unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        self.0.is_outdated.store(false, Ordering::Relaxed);
    }

    /// The files have changed and cannot be used: what was read before goes on.
    pub(super) fn keep_outdated(&self) {
        self.0.is_outdated.store(true, Ordering::Relaxed);
    }

    /// Whether the files have changed since and cannot be used.
    pub(in crate::http) fn is_outdated(&self) -> bool {
        self.0.is_outdated.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Certificates(..)")
    }
}

/// Reads the files.
pub(super) fn read(config: &HttpTlsConfig) -> Result<ServerConfig, TlsError> {
    let identity = config.identity().read()?;
    let callers: Arc<dyn ClientCertVerifier> = match config.client_ca() {
        None => Arc::new(NoClientAuth),
        Some(file) => {
            let authorities = Arc::new(file.authorities()?);
            let verifier = WebPkiClientVerifier::builder_with_provider(authorities, provider());
            let verifier = match config.client_auth {
                ClientAuth::Require => verifier,
                ClientAuth::Optional => verifier.allow_unauthenticated(),
            };
            let built = verifier.build();
            built.map_err(|error| TlsError::Setup(error.to_string()))?
        }
    };
    let mut tls = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(callers)
        .with_single_cert(identity.chain, identity.key)?;
    tls.alpn_protocols = vec![HTTP_2.to_vec(), HTTP_1.to_vec()];
    Ok(tls)
}

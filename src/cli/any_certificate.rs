//! TLS that believes whatever certificate is shown: for a question to this machine that tells nothing.

use std::sync::Arc;

use rustls::{
    Error,
    pki_types::{CertificateDer, ServerName, UnixTime},
};
use tokio_rustls::TlsConnector;

use crate::tls::{IdentityFiles, Judge, TlsError, judged_by};

#[derive(Debug)]
struct AnyCertificate;

/// TLS to whoever it is, with a certificate to show to one that asks for it.
pub(super) fn any_certificate(identity: Option<IdentityFiles>) -> Result<TlsConnector, TlsError> {
    let builder = judged_by(AnyCertificate)?;
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(files) => {
            let identity = files.read()?;
            builder.with_client_auth_cert(identity.chain, identity.key)?
        }
    };
    Ok(TlsConnector::from(Arc::new(config)))
}

// === impl AnyCertificate ===

impl Judge for AnyCertificate {
    fn judge(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: UnixTime,
    ) -> Result<(), Error> {
        Ok(())
    }
}

//! PEM files, with the names of their settings, and the TLS configuration of a client.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::{CryptoProvider, ring},
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
    sign::CertifiedKey,
};
use rustls_platform_verifier::BuilderVerifierExt;

use crate::bounded_file::{self, FileError};

/// A PEM file, with the name of the setting that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PemFile {
    named_by: Cow<'static, str>,
    path: PathBuf,
}

/// Why a PEM file cannot be used. The error shows none of the file's content.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be used: {} {reason}", file.named_by, file.path.display())]
pub struct PemError {
    file: PemFile,
    reason: Reason,
}

#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error("cannot be read: {0}")]
    Unreadable(FileError),
    #[error("is not PEM")]
    Damaged,
    #[error("has no certificate in it (-----BEGIN CERTIFICATE-----)")]
    NoCertificate,
    #[error("has no private key in it (-----BEGIN PRIVATE KEY-----, not encrypted)")]
    NoKey,
    #[error("has something in it that is no certificate of an authority: {0}")]
    NoAuthority(Box<rustls::Error>),
}

/// The maximum length of a PEM file in bytes: five times the length of all authorities that a system trusts.
const MAX_LEN: u64 = 1024 * 1024;
/// The mark with which some editors begin a file. After the mark, the first item of the file would not be found.
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

// === impl PemFile ===

impl PemFile {
    /// Makes a PEM file with this path, which the setting `named_by` names. Reads nothing yet.
    pub fn new(named_by: impl Into<Cow<'static, str>>, path: impl Into<PathBuf>) -> Self {
        Self {
            named_by: named_by.into(),
            path: path.into(),
        }
    }

    /// The path of the PEM file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The name of the setting that names the PEM file.
    pub fn named_by(&self) -> &str {
        &self.named_by
    }

    /// Reads all certificates in the PEM file, in the order of the file. Fails if there is none.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, PemError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.read()?)
            .collect::<Result<_, _>>()
            .map_err(|error| self.unusable(&error, Reason::NoCertificate));
        let found = found?;
        if found.is_empty() {
            return Err(self.refused(Reason::NoCertificate));
        }
        Ok(found)
    }

    /// Reads the first private key in the PEM file.
    pub fn key(&self) -> Result<PrivateKeyDer<'static>, PemError> {
        PrivateKeyDer::from_pem_slice(&self.read()?)
            .map_err(|error| self.unusable(&error, Reason::NoKey))
    }

    /// Reads the certificates of trusted authorities in the PEM file. Fails if there is none.
    pub fn authorities(&self) -> Result<RootCertStore, PemError> {
        let mut authorities = RootCertStore::empty();
        for certificate in self.certificates()? {
            authorities
                .add(certificate)
                .map_err(|error| self.refused(Reason::NoAuthority(Box::new(error))))?;
        }
        Ok(authorities)
    }

    fn read(&self) -> Result<Vec<u8>, PemError> {
        let mut text = bounded_file::read(&self.path, MAX_LEN)
            .map_err(|error| self.refused(Reason::Unreadable(error)))?;
        if text.starts_with(BYTE_ORDER_MARK) {
            text.drain(..BYTE_ORDER_MARK.len());
        }
        Ok(text)
    }

    fn unusable(&self, error: &pem::Error, none: Reason) -> PemError {
        self.refused(match error {
            pem::Error::NoItemsFound => none,
            // The text of any other error is dropped, because it contains a part of the file.
            _ => Reason::Damaged,
        })
    }

    fn refused(&self, reason: Reason) -> PemError {
        PemError {
            file: self.clone(),
            reason,
        }
    }
}

// === Client files ===
//
// The PEM files that a client needs for TLS.

/// The PEM files of a client: the authorities that it trusts, and the certificate that it shows to a server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientFiles {
    /// The authorities that the client trusts, instead of the authorities of the system.
    pub ca: Option<PemFile>,
    /// The certificate and key that the client shows to a server that requests a certificate.
    pub identity: Option<IdentityFiles>,
}

/// Makes a TLS configuration that trusts no certificate, for clients that do not use TLS. It saves the time to read all
/// certificates of the system.
pub fn no_tls() -> Result<ClientConfig, TlsError> {
    Ok(ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth())
}

// === impl ClientFiles ===

impl ClientFiles {
    /// Reads the PEM files, and makes the TLS configuration of a client.
    pub fn config(&self) -> Result<ClientConfig, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?;
        let builder = match &self.ca {
            Some(ca) => builder.with_root_certificates(ca.authorities()?),
            None => builder.with_platform_verifier()?,
        };
        Ok(match &self.identity {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let identity = files.read()?;
                builder.with_client_auth_cert(identity.chain, identity.key)?
            }
        })
    }

    /// All PEM files of the client, so that the caller can check whether they have changed.
    pub fn all(&self) -> impl Iterator<Item = &PemFile> {
        let identity = self.identity.iter();
        let of_identity = identity.flat_map(|files| [&files.certificate, &files.key]);
        self.ca.iter().chain(of_identity)
    }
}

// === Identity ===

/// The PEM files of a certificate and its private key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdentityFiles {
    /// The file with the certificate, followed by the intermediate certificates up to its authority.
    pub certificate: PemFile,
    /// The file with the private key of the certificate.
    pub key: PemFile,
}

/// A certificate and its private key. Without `Debug`, because a key is a secret.
pub struct Identity {
    /// The certificate, followed by the intermediate certificates up to its authority.
    pub chain: Vec<CertificateDer<'static>>,
    /// The private key of the certificate.
    pub key: PrivateKeyDer<'static>,
}

// === impl IdentityFiles ===

impl IdentityFiles {
    /// Reads the certificate and its key. Fails if they do not belong together.
    pub fn read(&self) -> Result<Identity, TlsError> {
        let (chain, key) = (self.certificate.certificates()?, self.key.key()?);
        CertifiedKey::from_der(chain.clone(), key.clone_key(), &provider()).map_err(|error| {
            TlsError::Pair {
                certificate: self.certificate.clone(),
                key: self.key.clone(),
                error: Box::new(error),
            }
        })?;
        Ok(Identity { chain, key })
    }
}

// === TLS error ===

/// Why TLS cannot be set up. The error shows no content of a file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A PEM file cannot be used.
    #[error(transparent)]
    File(#[from] PemError),
    /// The certificate and the private key do not belong together.
    #[error(
        "{} cannot be used: {} with the key in {} ({}): {error}",
        certificate.named_by(), certificate.path().display(), key.path().display(), key.named_by()
    )]
    Pair {
        /// The PEM file of the certificate.
        certificate: PemFile,
        /// The PEM file of the private key.
        key: PemFile,
        /// Why the certificate and the key do not belong together.
        error: Box<rustls::Error>,
    },
    /// TLS cannot be set up, for a reason that does not come from a file.
    #[error("cannot set up TLS: {0}")]
    Setup(String),
}

// === impl TlsError ===

impl From<rustls::Error> for TlsError {
    fn from(error: rustls::Error) -> Self {
        Self::Setup(error.to_string())
    }
}

// === Provider ===

/// The cryptography provider of all TLS connections: ring. A second provider would double the C code in the
/// program.
pub fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, PemFile) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.pem");
        std::fs::write(&path, text).unwrap();
        (directory, PemFile::new("http.tls.cert_file", path))
    }

    #[test]
    fn an_error_names_setting_and_file_and_shows_nothing_of_what_is_in_it() {
        for (text, reason) in [
            ("s3cret", "has no "),
            ("", "has no "),
            ("-----BEGIN CERTIFICATE-----\ns3cret", "is not PEM"),
            ("-----BEGIN s3cret", "is not PEM"),
            (
                "-----BEGIN PRIVATE KEY-----\ns3cret!\n-----END PRIVATE KEY-----\n",
                "",
            ),
        ] {
            let (_directory, file) = file(text);
            for error in [
                file.certificates().unwrap_err(),
                file.key().unwrap_err(),
                file.authorities().unwrap_err(),
            ] {
                let said = format!("{error} {error:?}");
                assert!(said.starts_with("http.tls.cert_file cannot be used: /"));
                assert!(said.contains("x.pem") && said.contains(reason), "{said}");
                assert!(!said.contains("s3cret"), "{said}");
            }
        }
    }

    #[test]
    fn a_byte_order_mark_hides_no_certificate() {
        let key = rcgen::KeyPair::generate().unwrap();
        let certificate = rcgen::CertificateParams::new(["a".to_owned()]).unwrap();
        let certificate = certificate.self_signed(&key).unwrap().pem();
        for (text, count) in [(&*certificate, 1), (&format!("\u{feff}{certificate}"), 1)] {
            let (_directory, file) = file(text);
            assert_eq!(file.certificates().unwrap().len(), count);
        }
        let (_directory, file) = file(&format!("\u{feff}{}", key.serialize_pem()));
        file.key().unwrap();
    }

    #[test]
    fn a_file_that_is_not_there_is_said_to_be_unreadable() {
        let file = PemFile::new("--ca-file", "/nowhere/ca.pem");
        let said = file.authorities().unwrap_err().to_string();
        let expected = "--ca-file cannot be used: /nowhere/ca.pem cannot be read: No such file";
        assert!(said.starts_with(expected), "{said}");
    }
}

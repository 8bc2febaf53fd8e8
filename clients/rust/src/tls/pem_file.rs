//! A PEM file, and the setting that names it.

use std::{
    borrow::Cow,
    path::{Path, PathBuf},
};

use rustls::{
    RootCertStore,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{self, PemObject},
    },
};

use crate::bounded_file::{self, FileError};

/// A PEM file, and the setting that names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PemFile {
    named_by: Cow<'static, str>,
    path: PathBuf,
}

/// Why a PEM file cannot be used. Shows nothing of what is in it.
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

/// All authorities that systems trust are a fifth of that.
const MAX_LEN: u64 = 1024 * 1024;

// === impl PemFile ===

impl PemFile {
    /// A file that a setting names.
    pub fn new(named_by: impl Into<Cow<'static, str>>, path: impl Into<PathBuf>) -> Self {
        Self {
            named_by: named_by.into(),
            path: path.into(),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The setting that names it.
    pub fn named_by(&self) -> &str {
        &self.named_by
    }

    /// The certificates in it, at least one, in the order of the file.
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

    /// The first private key in it.
    pub fn key(&self) -> Result<PrivateKeyDer<'static>, PemError> {
        PrivateKeyDer::from_pem_slice(&self.read()?)
            .map_err(|error| self.unusable(&error, Reason::NoKey))
    }

    /// The authorities in it, at least one.
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
        bounded_file::read(&self.path, MAX_LEN)
            .map_err(|error| self.refused(Reason::Unreadable(error)))
    }

    fn unusable(&self, error: &pem::Error, none: Reason) -> PemError {
        self.refused(match error {
            pem::Error::NoItemsFound => none,
            // The others repeat a part of the file.
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
    fn a_file_that_is_not_there_is_said_to_be_unreadable() {
        let file = PemFile::new("--ca-file", "/nowhere/ca.pem");
        let said = file.authorities().unwrap_err().to_string();
        let expected = "--ca-file cannot be used: /nowhere/ca.pem cannot be read: No such file";
        assert!(said.starts_with(expected), "{said}");
    }
}

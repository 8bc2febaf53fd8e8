//! A certificate authority for one test, and the certificates that it signs.

use std::{path::PathBuf, time::SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use tempfile::TempDir;

/// A certificate authority with its files in a temporary directory.
pub(crate) struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    directory: TempDir,
}

/// The files of a certificate and of its key.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

const THIS_MACHINE: &[&str] = &["localhost", "127.0.0.1", "::1"];

// === impl Authority ===

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        params
            .distinguished_name
            .push(DnType::CommonName, "an authority");
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("ca.pem"), issuer.pem()).unwrap();
        Self { issuer, directory }
    }

    /// The path of the authority's own certificate.
    pub(crate) fn file(&self) -> String {
        self.directory.path().join("ca.pem").display().to_string()
    }

    /// Signs a certificate for some names. Answers the certificate and its key as PEM.
    pub(crate) fn sign(&self, names: &[&str]) -> (String, String) {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        self.sign_params(CertificateParams::new(names).unwrap())
    }

    /// Signs a certificate for this machine that is valid until a time.
    pub(crate) fn sign_until(&self, ends: SystemTime) -> (String, String) {
        let names = THIS_MACHINE.iter().map(|&name| name.to_owned());
        let mut params = CertificateParams::new(names.collect::<Vec<_>>()).unwrap();
        params.not_after = ends.into();
        self.sign_params(params)
    }

    fn sign_params(&self, mut params: CertificateParams) -> (String, String) {
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// Signs a certificate for some names and writes it to files with this name.
    pub(crate) fn files(&self, called: &str, names: &[&str]) -> Files {
        let files = self.at(called);
        files.write(&self.sign(names));
        files
    }

    fn at(&self, called: &str) -> Files {
        Files {
            certificate: self.directory.path().join(format!("{called}.pem")),
            key: self.directory.path().join(format!("{called}.key")),
        }
    }

    /// The files of a certificate for this machine.
    pub(crate) fn of_this_machine(&self) -> Files {
        self.files("gateway", THIS_MACHINE)
    }
}

// === impl Files ===

impl Files {
    /// Writes a certificate and its key, each by an atomic rename.
    pub(crate) fn write(&self, (certificate, key): &(String, String)) {
        for (path, text) in [(&self.certificate, certificate), (&self.key, key)] {
            let new = path.with_extension("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(new, path).unwrap();
        }
    }

    pub(crate) fn certificate(&self) -> String {
        self.certificate.display().to_string()
    }

    pub(crate) fn key(&self) -> String {
        self.key.display().to_string()
    }
}

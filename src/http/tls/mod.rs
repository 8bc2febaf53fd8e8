//! TLS for callers: the certificate of the gateway, and whose certificates they may show.

mod certificates;
mod certificates_watch;
mod expiry_warning;

pub use certificates::Certificates;
pub(super) use certificates::HTTP_2;
pub use certificates_watch::CertificatesWatch;

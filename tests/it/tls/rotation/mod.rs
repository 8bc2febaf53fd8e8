//! Certificates and API keys that are replaced while fifty clients take, renew and hold locks over HTTPS.

mod certificate;
mod clients;
mod either;
mod key;
mod load;

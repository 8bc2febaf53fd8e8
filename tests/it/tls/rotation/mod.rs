//! Certificates and API keys that are replaced while fifty clients acquire, renew and hold locks over HTTPS.

mod load;
mod replaced;

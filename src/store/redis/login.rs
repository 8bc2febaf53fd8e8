//! Why a server is not logged in to.

use std::io;

use bb8_redis::redis::{ErrorKind, RedisError, ServerError};

use crate::{store::Unavailability, tls::distrust};

use super::failure::{self, Failure};

/// Why a connection is not encrypted. That the two do not believe each other does not pass; that the
/// connection broke off may.
pub(super) fn no_tls(error: &io::Error) -> Unavailability {
    if let Some(why) = distrust(error, "redis.tls.ca_file") {
        return Unavailability::Misconfigured(format!(
            "the certificate of the server is not believed: {why}"
        ));
    }
    let rustls = error.get_ref().and_then(|cause| cause.downcast_ref());
    match rustls {
        Some(why @ rustls::Error::InvalidMessage(_)) => Unavailability::Misconfigured(format!(
            "the server does not speak TLS on this port ({why})"
        )),
        Some(why @ rustls::Error::AlertReceived(_)) => {
            Unavailability::Misconfigured(format!("the server refuses the TLS connection: {why}"))
        }
        _ => Unavailability::Connect(format!("no TLS connection: {error}")),
    }
}

/// Whether the server has too many clients, and closes the connection.
pub(super) fn is_full(error: &ServerError) -> bool {
    error
        .details()
        .is_some_and(failure::tells_of_too_many_clients)
}

/// Nothing of ours is sent before the login is complete. What the server says to a login may repeat
/// the password, so of its text nothing is passed on.
pub(super) fn login_failed(error: &RedisError) -> Unavailability {
    let detail = error.detail().unwrap_or_default();
    match error.kind() {
        ErrorKind::AuthenticationFailed if failure::tells_of_too_many_clients(detail) => {
            Unavailability::Refused("the server has too many clients".to_owned())
        }
        ErrorKind::AuthenticationFailed => {
            Unavailability::Misconfigured("the server refuses the user or the password".to_owned())
        }
        ErrorKind::Io => Unavailability::Connect("the server closed the connection".to_owned()),
        ErrorKind::Server(_) | ErrorKind::Extension => {
            let code = error.code().unwrap_or_default();
            match Failure::of(code, "") {
                Failure::NoScript | Failure::WrongType | Failure::Unknown(_) => {
                    Unavailability::Misconfigured(format!("the server refuses the login: {code}"))
                }
                known => known.reason(),
            }
        }
        _ => Unavailability::Misconfigured("the server refuses the login or database".to_owned()),
    }
}

//! Why a server is not logged in to.

use std::io;

use bb8_redis::redis::{RedisError, ServerError, Value};

use crate::{store::Unavailability, tls::distrust};

use super::{
    connection::answered,
    failure::{self, Failure},
};

/// Why the database cannot be chosen, if that is what the server says.
pub(super) fn no_database(database: i64, detail: &str) -> Option<Unavailability> {
    let why = if failure::tells_of_no_database(detail) {
        format!(
            "the server has no database {database}; name another at the end of the store's \
             URL, or raise `databases` in the server's configuration (a cluster has database 0 \
             only)"
        )
    } else if failure::tells_of_no_select(detail) {
        format!("the user may not choose database {database}; give it +select, or use database 0")
    } else {
        return None;
    };
    Some(Unavailability::Misconfigured(why))
}

/// What a server answers to PING. Whatever it is, if only that it is busy or that the user may not ask, it
/// answers.
pub(super) fn judge_greeting(reply: Value) -> Result<(), Unavailability> {
    match reply {
        Value::ServerError(error) if error.code() != "NOPERM" => match answered(&error) {
            Failure::Refused(why @ Unavailability::Misconfigured(_)) => Err(why),
            Failure::Transient(why) if is_full(&error) => Err(why),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}

pub(super) fn closed() -> Unavailability {
    Unavailability::Connect("the server closed the connection".to_owned())
}

pub(super) fn full() -> Unavailability {
    Unavailability::Refused("the server has too many clients".to_owned())
}

pub(super) fn wrong_login() -> Unavailability {
    Unavailability::Misconfigured("the server refuses the user or the password".to_owned())
}

/// What an error to a login means, going by its code alone.
pub(super) fn refused_login(code: &str) -> Unavailability {
    match Failure::of(code, "") {
        Failure::NoScript | Failure::WrongType | Failure::Unknown(_) => {
            Unavailability::Misconfigured(format!("the server refuses the login: {code}"))
        }
        known => known.reason(),
    }
}

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

/// Whether the server takes no connections of other hosts, and closes this one.
pub(super) fn is_protected(error: &ServerError) -> bool {
    error.code() == "DENIED"
}

/// Why a channel cannot be listened to.
pub(super) fn refused(error: &RedisError) -> Unavailability {
    let code = error.code().unwrap_or_default();
    match Failure::of(code, error.detail().unwrap_or_default()) {
        Failure::NoScript | Failure::WrongType | Failure::Unknown(_) => {
            Unavailability::Connect("the connection was lost".to_owned())
        }
        known => known.reason(),
    }
}

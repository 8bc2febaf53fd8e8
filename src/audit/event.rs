//! What is told to the audit log.

use std::{net::IpAddr, sync::Arc};

use crate::lock::{FencingToken, LockName};

/// Who asked, as far as it is known.
#[derive(Debug, Clone, Copy)]
pub struct Requester<'a> {
    /// The name of the API key. Never the key.
    pub key: Option<&'a str>,
    /// The name of the request in the log of the gateway.
    pub request_id: &'a str,
    /// The other end of the connection: the caller, or the last proxy on its way.
    pub remote: Option<IpAddr>,
}

/// A permission that was refused.
#[derive(Debug, Clone, Copy)]
pub struct Refused<'a> {
    /// Who asked.
    pub requester: Requester<'a>,
    /// How they asked: the method of the request.
    pub method: &'a str,
    /// For what they asked: the route, such as `/locks/{name}`.
    pub route: &'a str,
    /// Which lock they meant.
    pub name: Option<&'a LockName>,
    /// The code of the problem that was answered.
    pub outcome: &'a str,
    /// Why.
    pub reason: &'a str,
}

/// Keys that were read again, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReloadedKeys {
    /// How many count now.
    pub count: usize,
    /// Those that are new.
    pub added: Vec<Arc<str>>,
    /// Those that are gone.
    pub removed: Vec<Arc<str>>,
    /// Those that have other secrets, permissions, limits, or another end.
    pub changed: Vec<Arc<str>>,
}

/// A lock that was to be broken.
#[derive(Debug, Clone, Copy)]
pub struct BreakAttempt<'a> {
    /// Who asked.
    pub requester: Requester<'a>,
    /// Which lock.
    pub name: &'a LockName,
    /// The fencing token of the lease that was broken, or that was to be.
    pub fencing_token: Option<FencingToken>,
    /// The reason that they gave.
    pub reason: &'a str,
    /// What became of it: `broken`, or the code of the problem that was answered.
    pub outcome: &'a str,
}

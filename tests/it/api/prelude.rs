//! Imports that nearly every test over HTTP needs.

pub(crate) use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::SocketAddr,
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

pub(crate) use axum::body::Body;
pub(crate) use futures_util::{StreamExt, future::join_all};
pub(crate) use http::{Method, Request};
pub(crate) use http_body_util::BodyExt;
pub(crate) use latchgate::{
    auth::{Gate, KeysFile, SessionSeal},
    clock::SystemClock,
    config::{Config, LogRequests, Millis},
    http::{ProblemCode, openapi},
    lifecycle::Lifecycle,
    lock::{FencingToken, ForeignMark, HeldLease, LockName, Metadata, Owner, Said, Token, Ttl},
    store::{
        StoreError, Unavailability, Uncertainty,
        contract::{
            Acquisition, Breaking, Contention, HeldLock, Holder, Inspection, Loss, Page, Release,
            Renewal, RenewalTtl, SharedHolders, Waiter,
        },
        embedded::EmbeddedStore,
        parking::News,
    },
};
pub(crate) use rustix::process::Signal;
pub(crate) use serde_json::{Value, json};
pub(crate) use tempfile::TempDir;
pub(crate) use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

pub(crate) use super::fixture::*;
pub(crate) use crate::support::{
    Caller, Connection, HttpRequest, ManualClock, RedisServer, assert_has, eventually, fields,
    gateway::{Gateway, Setup},
    operations::{Operation, operations, paths},
    raise_the_limit, rows, with, words,
};

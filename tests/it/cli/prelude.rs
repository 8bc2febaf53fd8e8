//! Imports that nearly every test of the program needs.

pub(crate) use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

pub(crate) use rustix::process::{Pid, Signal, kill_process};
pub(crate) use serde_json::{Value, json};
pub(crate) use tempfile::TempDir;
pub(crate) use tokio::time::Instant;

pub(crate) use crate::support::{
    Connection, HttpRequest, RedisServer, assert_has,
    fake_gateway::{FakeGateway, Reply},
    fields,
    gateway::{Gateway, Setup},
    program::{Ran, Run, latchgate, program, typed, with_path_alone},
    rows, spawn,
};

pub(super) use super::{
    keys::{File, Made},
    run::{begun, held, inspect, is_alive, run_sh, start, until, until_dead, until_free, waiters},
};

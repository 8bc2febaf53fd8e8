//! Helpers that several rooms of tests use.

mod ask;
mod asking;
mod authority;
mod cable;
mod caller;
mod clock;
mod connection;
mod deadline;
mod descriptors;
pub(crate) mod fake_gateway;
mod fields;
mod full;
pub(crate) mod gateway;
pub(crate) mod golden;
mod manual_clock;
mod mock_issuer;
pub(crate) mod operations;
pub(crate) mod prelude;
pub(crate) mod program;
mod proxy;
mod random;
mod redis_server;
mod rows;
mod serving;
mod signer;
mod slow_way;
pub(crate) mod spawn;
mod stopped;
mod tally;
pub(crate) mod tree;

pub(crate) use ask::{
    Ask, assert_health, assert_misconfigured, assert_unavailable, assert_unknown, fence_query,
    list_query, until_all_pass, until_health, until_passing, with,
};
pub(crate) use asking::{new_attempt, new_request, under_key};
pub(crate) use authority::{Authority, Files};
pub(crate) use cable::Cable;
pub(crate) use caller::{Caller, is_busy};
pub(crate) use clock::Clock;
pub(crate) use connection::{Connection, Event, HttpRequest, connect_with_little_room, read_event};
pub(crate) use deadline::{eventually, until};
pub(crate) use descriptors::raise_the_limit;
pub(crate) use fields::{assert_has, fields};
pub(crate) use full::full;
pub(crate) use manual_clock::ManualClock;
pub(crate) use mock_issuer::{Code, MockIssuer, Mode};
pub(crate) use proxy::{Fault, Proxy};
pub(crate) use random::Random;
pub(crate) use redis_server::{RedisServer, cmd, free_port, spawn_in, url};
pub(crate) use rows::{rows, words};
pub(crate) use serving::serve;
pub(crate) use signer::Signer;
pub(crate) use slow_way::SlowWay;
pub(crate) use tally::Tally;

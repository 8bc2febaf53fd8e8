//! What nearly every test of the Redis stores names.

pub(crate) use super::{
    cluster::{
        pool::Pooled,
        servers::{Cluster, NEVER, cluster_url, slot_of},
    },
    rig::{
        Rig, TIMEOUT, assert_holds, assert_most_precede_rounds, attempt, behind_proxy, contention,
        fence_key, foreign_holder, free, granted, health, held_by, keyed, limit, name, one_of,
        open, patient, quick, reader, runs, shared_keys, sharing, token, ttl, until_integer,
        until_runs, waits_for, write_down_everything,
    },
    sentinel::{
        FakeSentinel, SentinelReply,
        process::{SERVICE, SentinelProcess},
        watched::Watched,
    },
    waiting::gate::{
        GRACE, PendingAcquire, TestGateway, gateway, keep, leftovers, request, request_by,
        subscribers, two_gateways, waiting,
    },
};
pub(crate) use crate::{lua::composed, support::prelude::*};

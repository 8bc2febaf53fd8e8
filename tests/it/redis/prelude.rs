//! Imports that nearly every test of the Redis stores needs.

pub(crate) use super::{
    cluster::{
        pool::Pooled,
        servers::{Cluster, NEVER, cluster_url, slot_of, until_away},
    },
    rig::{
        Rig, TIMEOUT, alive, assert_foreign, assert_holds, assert_most_precede_rounds, attempt,
        behind_proxy, contention, fence_at, fence_key, foreign_holder, forget_gateways, free,
        granted, health, hear_grant, held_by, keyed, limit, name, one_of, open, open_in, open_with,
        patient, quick, reader, runs, shared_keys, sharing, stand, token, ttl, turn,
        until_answered, until_integer, until_runs, until_too_few, waits_for, write_down_everything,
        written_down,
    },
    sentinel::{
        FakeSentinel, SentinelReply,
        process::{SERVICE, SentinelProcess},
        watched::Watched,
    },
    waiting::gate::{
        GRACE, NOTICED, PendingAcquire, TestGateway, at_once, channels, gateway, gateway_holding,
        gateways_on, keep, leftovers, request, request_by, subscribers, two_gateways,
        two_gateways_holding, until_taken, waiting,
    },
};
pub(crate) use crate::{lua::composed, support::prelude::*};

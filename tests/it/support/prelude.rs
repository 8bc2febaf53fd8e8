//! Imports that nearly every test of a store needs.

pub(crate) use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

pub(crate) use bb8_redis::redis::{Value, from_redis_value};
pub(crate) use futures_util::future::join_all;
pub(crate) use latchgate::{
    auth::Authorization,
    clock::SystemClock,
    config::{
        HistoryConfig, LimitsConfig, Millis, RedisConfig, RedlockConfig, ServersUrl, StoreUrl,
    },
    engine::{AcquireError, AcquireRequest, Engine, Granted, Hold, HoldEnd, HoldEvent, LossReason},
    lifecycle::Lifecycle,
    lock::{
        BreakTarget, CallerId, Ends, FencingToken, Fingerprint, ForeignMark, HeldLease, HoldLimit,
        IdempotencyHash, IdempotencyKey, Lease, Limit, LockName, Metadata, MinHold, Mode, Owner,
        Reason, RecipientId, ReleaseRequest, Said, Salt, Sharing, SupersedeHash, SupersedeKey,
        Terms, Token, TokenHash, Ttl,
    },
    store::{
        AnyStore, Store, StoreError, Unavailability, Uncertainty,
        contract::{
            Acquisition, Attempt, Breaking, Confirmation, Contention, GiveBack, Health, Holder,
            Idempotency, Inspection, Leaving, ListQuery, Loss, Page, Release, Releaser, Renewal,
            RenewalTtl, Renewer, Requesting, SharedHolders, StoreFeature, Waiting,
        },
        list_filter::ListFilter,
        parking::{News, Parked},
        redis::{RedisStore, RedlockStore, Slot, SlotTags},
    },
    telemetry::metrics::Metrics,
};
pub(crate) use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

pub(crate) use super::{
    Ask, Cable, Clock, Fault, ManualClock, Proxy, Random, RedisServer, assert_health,
    assert_misconfigured, assert_unavailable, assert_unknown, cmd, eventually, fence_query,
    free_port, full, list_query, new_attempt, new_request, under_key, until, until_all_pass,
    until_health, until_passing, url, with, words,
};

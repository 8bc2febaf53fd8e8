//! For those who run the gateway: is it well, what did it do, and a copy of its store.

mod backup;
mod health;
mod stats;

pub(super) use backup::{__path_backup, backup};
pub(super) use health::{
    __path_healthz, __path_metrics, __path_readyz, healthz, metrics, metrics_for_all, readyz,
};
pub(super) use stats::{__path_stats, stats};

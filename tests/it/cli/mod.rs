//! The real program, from the outside.

mod access_lines;
mod audit;
mod backup;
mod delay;
mod dispositions;
mod events;
mod exit_codes;
mod frozen;
mod generated;
mod healthcheck;
mod key_fixture;
mod key_reload;
mod keys;
mod leases;
mod list_and_break;
mod metrics;
mod on_redis;
mod run;
mod scrape;
mod secrets;
mod serve;
mod service_manager;
mod sessions;
mod shutdown;
mod unread_log;
mod waiting;

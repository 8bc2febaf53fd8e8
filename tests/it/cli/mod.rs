//! The real program, from the outside.

mod exit_codes;
mod generated;
mod leases;
mod list_and_break;
mod on_redis;
mod run;
mod secrets;
mod serve;
mod shutdown;
mod waiting;

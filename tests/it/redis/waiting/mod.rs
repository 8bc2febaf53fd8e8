//! Waiting in queues that several gateways share on one Redis.

mod bounds;
mod dead;
mod faults;
mod foreign;
pub(crate) mod gate;
mod history;
mod hung_up;
mod keyed;
mod late_asking;
mod late_news;
mod late_word;
mod lost_places;
mod order;
mod rules;
mod sharing;
mod short;
mod used_keys;

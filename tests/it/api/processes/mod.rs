//! Whole gateways that are killed, end or are besieged.

mod ends;
mod killed;
mod siege;

//! What a collector is told, as it reads it: with the official definitions of OTLP.

mod away;
mod collector;
mod encrypted;
mod measured;
mod passed_on;
mod requests;

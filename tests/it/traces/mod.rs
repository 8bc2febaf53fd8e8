//! What a collector is told, as it reads it: with the official definitions of OTLP.

mod collector;
mod exports;
mod requests;

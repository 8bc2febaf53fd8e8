//! The spans that a collector gets, decoded with the official definitions of OTLP.

mod collector;
mod exports;
mod requests;

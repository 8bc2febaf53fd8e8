//! Leads libFuzzer to what reads bodies of requests.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    latchgate::fuzzing::body(bytes);
});

//! Leads libFuzzer to what reads replies of Redis.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    latchgate::fuzzing::reply(bytes);
});

//! Leads libFuzzer to what reads names of locks, tokens, keys and owners.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    latchgate::fuzzing::name(bytes);
});

//! Leads libFuzzer to what reads rows of the embedded file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    latchgate::fuzzing::row(bytes);
});

//! Fuzz target for the decoder of rows of the embedded log.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    latchgate::fuzzing::row(bytes);
});

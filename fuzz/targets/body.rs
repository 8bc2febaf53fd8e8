//! Fuzz target for the decoder of request bodies.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    latchgate::fuzzing::body(bytes);
});

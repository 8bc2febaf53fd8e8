//! Fuzz target for the decoders of Redis replies.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    latchgate::fuzzing::reply(bytes);
});

//! Fuzz target for the decoders of lock names, tokens, idempotency keys and owners.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    latchgate::fuzzing::name(bytes);
});

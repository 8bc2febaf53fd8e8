//! Fuzz target for the decoders of ID tokens, keys of issuers and templates.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    latchgate::fuzzing::token(bytes);
});

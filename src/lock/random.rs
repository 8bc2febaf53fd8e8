//! Random bytes from the operating system.

/// Fresh random bytes, fit for secrets.
pub(super) fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("a running system has a source of random bytes");
    bytes
}

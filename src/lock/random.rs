//! Random bytes from the operating system.

use std::cell::RefCell;

/// Random bytes that were not used yet.
struct Pool {
    bytes: [u8; POOL],
    used: usize,
}

/// How many bytes are asked for at a time: a system call costs as much as the rest of a token.
const POOL: usize = 1024;

thread_local! {
    static UNUSED: RefCell<Pool> = const {
        RefCell::new(Pool {
            bytes: [0; POOL],
            used: POOL,
        })
    };
}

pub(super) fn bytes<const N: usize>() -> [u8; N] {
    const { assert!(N <= POOL) };
    UNUSED.with_borrow_mut(Pool::take)
}

// === impl Pool ===

impl Pool {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        if POOL - self.used < N {
            getrandom::fill(&mut self.bytes)
                .expect("a running system has a source of random bytes");
            self.used = 0;
        }
        let unused = &mut self.bytes[self.used..self.used + N];
        let mut taken = [0; N];
        // What was handed out must not stay in memory.
        taken.swap_with_slice(unused);
        self.used += N;
        taken
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn are_handed_out_once_and_forgotten() {
        let mut pool = Pool {
            bytes: [0; POOL],
            used: POOL,
        };
        let mut seen = HashSet::new();
        for _ in 0..100 {
            assert!(seen.insert(pool.take::<32>()));
            assert!(pool.bytes[..pool.used].iter().all(|&byte| byte == 0));
        }
    }
}

//! Random numbers that a seed reproduces.

/// A random generator whose seed is printed when a test fails. `LG_SEED` sets the seed.
#[derive(Debug)]
pub(crate) struct Random {
    seed: u64,
    state: u64,
}

// === impl Random ===

impl Random {
    /// A generator with the seed of the environment, or with a fresh seed.
    pub(crate) fn seeded() -> Self {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is not the program but a test that is to be repeated"
        )]
        let given = std::env::var("LG_SEED").ok();
        let seed = given.map_or_else(fresh, |text| text.parse().expect("LG_SEED is a number"));
        Self::with_seed(seed)
    }

    /// A generator with this seed.
    pub(crate) fn with_seed(seed: u64) -> Self {
        Self { seed, state: seed }
    }

    /// A number from 0 to `bound` - 1.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap();
        usize::try_from(self.next() % bound).unwrap()
    }

    /// A random number. The algorithm is splitmix64: good enough, and short.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A second generator, which this generator's seed reproduces too.
    pub(crate) fn fork(&mut self) -> Self {
        Self {
            seed: self.seed,
            state: self.next(),
        }
    }

    /// The text to put before the command to repeat the run.
    pub(crate) fn how_to_repeat(&self) -> String {
        format!("LG_SEED={}", self.seed)
    }
}

fn fresh() -> u64 {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).unwrap();
    u64::from_le_bytes(bytes)
}

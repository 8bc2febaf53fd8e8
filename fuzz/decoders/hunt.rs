//! Tries mutations of inputs for some seconds, and mutates those further that had a new outcome.

use std::{collections::HashSet, panic::catch_unwind, time::Duration};

use tokio::time::Instant;

/// A decoder, and the inputs to begin with.
pub(super) struct Hunt<'a> {
    pub(super) decoder: fn(&[u8]) -> String,
    pub(super) seeds: &'a [&'a [u8]],
    /// Byte strings that mutations insert.
    pub(super) words: &'a [&'a [u8]],
}

/// A random generator whose numbers a seed reproduces.
struct Random(u64);

/// How long each decoder is tried, usually and with `scripts/test --full`.
const TIME: (Duration, Duration) = (Duration::from_secs(2), Duration::from_mins(1));
/// The largest length of an input.
const LONGEST: usize = 4_096;

// === impl Hunt ===

impl Hunt<'_> {
    /// Tries mutations. Answers how many inputs were tried, and how many outcomes they had.
    pub(super) fn run(&self) -> String {
        let seed = seed();
        let mut random = Random(seed);
        let mut corpus: Vec<Vec<u8>> = self.seeds.iter().map(|seed| seed.to_vec()).collect();
        let mut outcomes = HashSet::new();
        let (began, mut tried) = (Instant::now(), 0_u64);
        let time = if full() { TIME.1 } else { TIME.0 };
        while began.elapsed() < time {
            let mut input = corpus[random.below(corpus.len())].clone();
            for _ in 0..=random.below(4) {
                self.mutate(&mut input, &corpus, &mut random);
            }
            input.truncate(LONGEST);
            let outcome = catch_unwind(|| (self.decoder)(&input)).unwrap_or_else(|_panic| {
                panic!("LG_SEED={seed}: it panics over {}", input.escape_ascii())
            });
            tried += 1;
            // An outcome that differs only in numbers is not new.
            let outcome: String = outcome.chars().filter(|c| !c.is_ascii_digit()).collect();
            if outcomes.insert(outcome) {
                corpus.push(input);
            }
        }
        format!(
            "{tried} inputs, {} outcomes, LG_SEED={seed}",
            outcomes.len()
        )
    }

    fn mutate(&self, input: &mut Vec<u8>, corpus: &[Vec<u8>], random: &mut Random) {
        let at = random.below(input.len() + 1);
        let to = at + random.below(input.len() - at + 1);
        match random.below(9) {
            0 if at < input.len() => input[at] ^= 1 << random.below(8),
            1 if at < input.len() => input[at] = random.byte(),
            2 => input.insert(at, random.byte()),
            3 => drop(input.drain(at..to)),
            4 => {
                let piece = input[at..to].to_vec();
                let place = random.below(input.len() + 1);
                input.splice(place..place, piece);
            }
            5 => {
                let other = &corpus[random.below(corpus.len())];
                let from = random.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            6 if at < input.len() => input[at] = input[at].wrapping_add(1),
            7 => input.truncate(to),
            _ => {
                let word = self.words[random.below(self.words.len())];
                input.splice(at..at, word.iter().copied());
            }
        }
    }
}

// === impl Random ===

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap();
        usize::try_from(self.next() % bound).unwrap()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the switches of the person who runs the tests, not a configuration of the product"
)]
fn seed() -> u64 {
    match std::env::var("LG_SEED") {
        Ok(text) => text.parse().expect("LG_SEED is a number"),
        Err(_) => getrandom::u64().unwrap(),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the switches of the person who runs the tests, not a configuration of the product"
)]
fn full() -> bool {
    std::env::var_os("LATCHGATE_TEST_FULL").is_some()
}

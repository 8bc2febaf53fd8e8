//! Known-wrong variants of the program, by which the checker of histories shows that it finds what it is there
//! for.
//!
//! They are in a program that was built with the feature `mutants`, which only `scripts/mutants` and
//! `scripts/test` do, and never in a release build. In any other nothing is left of them: [`is`] is a
//! constant then. Most are patches in `tests/mutants`, applied to a copy of the sources, which thereby begin to
//! ask [`is`].

mod chosen;
mod mutant;
#[cfg(any(test, feature = "mutants"))]
mod scripts;

pub(crate) use chosen::{is, script};
pub(crate) use mutant::Mutant;

//! Which variant this process is.

use super::Mutant;

#[cfg(all(feature = "mutants", not(debug_assertions)))]
compile_error!("the feature `mutants` is for tests: a release build has none of them");

/// Whether this process is that variant.
#[cfg(not(feature = "mutants"))]
pub(crate) const fn is(_mutant: Mutant) -> bool {
    false
}

/// Whether this process is that variant.
#[cfg(feature = "mutants")]
pub(crate) fn is(mutant: Mutant) -> bool {
    chosen() == Some(mutant)
}

/// The text of a script, as this variant has it.
#[cfg(not(feature = "mutants"))]
pub(crate) fn script(text: String) -> String {
    text
}

/// The text of a script, as this variant has it.
#[cfg(feature = "mutants")]
pub(crate) fn script(text: String) -> String {
    match chosen() {
        Some(mutant) => super::scripts::patched(mutant, text),
        None => text,
    }
}

/// The variant that the environment names. Its name does not begin as those of the configuration do, which
/// a program refuses that does not know them.
#[cfg(feature = "mutants")]
fn chosen() -> Option<Mutant> {
    use serde::{Deserialize, de::value::StrDeserializer};

    static CHOSEN: std::sync::LazyLock<Option<Mutant>> = std::sync::LazyLock::new(|| {
        #[expect(
            clippy::disallowed_methods,
            reason = "it is no configuration of the product, and must not look like one"
        )]
        let name = std::env::var("MUTANT_OF_LATCHGATE").ok()?;
        let mutant = Mutant::deserialize(StrDeserializer::<serde::de::value::Error>::new(&name));
        Some(mutant.expect("the environment names a variant that there is"))
    });
    *CHOSEN
}

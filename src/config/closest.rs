//! Which known name somebody probably meant.

/// The known name nearest to what was written, if one is near enough to be meant.
pub(crate) fn closest(written: &str, known: impl IntoIterator<Item = String>) -> Option<String> {
    // One slip in three letters: more and the hint is a guess.
    let most = (written.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|name| (strsim::levenshtein(written, &name), name))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_recognised_and_a_different_word_is_not() {
        let known = || ["listen", "store", "limits.min_ttl_ms"].map(str::to_owned);
        assert_eq!(closest("lisen", known()).as_deref(), Some("listen"));
        assert_eq!(
            closest("limits.min_tll", known()).as_deref(),
            Some("limits.min_ttl_ms")
        );
        assert_eq!(closest("tls", known()), None);
    }
}

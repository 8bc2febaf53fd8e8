//! Which known name somebody probably meant.

/// The known name nearest to what was written, if one is near enough to be meant.
pub(crate) fn closest(written: &str, known: impl IntoIterator<Item = String>) -> Option<String> {
    // One slip in three letters: more and the hint is a guess.
    let most = (written.chars().count() / 3).max(1);
    known
        .into_iter()
        .map(|name| (distance(written, &name), name))
        .filter(|(distance, _)| *distance <= most)
        .min()
        .map(|(_, name)| name)
}

/// How many letters must be added, removed or replaced (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
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

    #[test]
    fn counts_every_kind_of_slip() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "ab"), 2);
        assert_eq!(distance("ab", ""), 2);
    }
}

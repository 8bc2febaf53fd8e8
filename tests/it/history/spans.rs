//! Spans of time, and their unions and differences.

/// A span of time: its first instant, and the instant at its end, which is not part of it.
pub(super) type Span = (u64, u64);

/// The union of spans, in order and without overlaps.
pub(super) fn union(mut spans: Vec<Span>) -> Vec<Span> {
    spans.retain(|(from, until)| from < until);
    spans.sort_unstable();
    let mut merged: Vec<Span> = Vec::with_capacity(spans.len());
    for (from, until) in spans {
        match merged.last_mut() {
            Some(last) if from <= last.1 => last.1 = last.1.max(until),
            _ => merged.push((from, until)),
        }
    }
    merged
}

/// The parts of `spans` that are not in `holes`. Both must be results of `union`.
pub(super) fn without(spans: &[Span], holes: &[Span]) -> Vec<Span> {
    let mut left = Vec::new();
    let mut first = 0;
    for &(mut from, until) in spans {
        while first < holes.len() && holes[first].1 <= from {
            first += 1;
        }
        for &(begins, ends) in &holes[first..] {
            if begins >= until {
                break;
            }
            if from < begins {
                left.push((from, begins));
            }
            from = from.max(ends);
        }
        if from < until {
            left.push((from, until));
        }
    }
    left
}

/// The total length of spans that do not overlap.
pub(super) fn length(spans: &[Span]) -> u64 {
    spans.iter().map(|(from, until)| until - from).sum()
}

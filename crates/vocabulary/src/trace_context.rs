//! The trace to which a request belongs, as W3C Trace Context defines it.

use std::{fmt, sync::Arc};

/// The header `traceparent`: the trace of a request and the span of its caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceParent {
    /// The id of the trace; never zero.
    pub trace_id: u128,
    /// The id of the caller's span; never zero.
    pub span_id: u64,
    /// Whether the caller records its part of the trace (the flag `sampled`).
    pub is_sampled: bool,
}

/// The id of a trace, displayed as 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TraceId(pub u128);

/// The headers `traceparent` and `tracestate` of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace and the span of the caller (`traceparent`).
    pub parent: TraceParent,
    /// The value of the header `tracestate`, passed on unchanged.
    pub state: Option<Arc<str>>,
}

/// The length of a `traceparent`: version, trace id, span id and flags, with hyphens between.
const LEN: usize = 2 + 1 + 32 + 1 + 16 + 1 + 2;
/// The maximum length of a `tracestate` that is passed on: the specification requires at least this length.
const MAX_STATE: usize = 512;

// === impl TraceParent ===

impl TraceParent {
    /// Parses the header `traceparent`; `None` if it is invalid. For a later version of the header, the fields of
    /// version 00 are read.
    pub fn parse(text: &str) -> Option<Self> {
        // Checked before the text is sliced, because a slice that ends within a character would panic.
        if !text.is_ascii() || text.len() < LEN {
            return None;
        }
        let (version, rest) = (&text[..2], &text[LEN..]);
        let is_of_version = match version {
            "00" => rest.is_empty(),
            "ff" => false,
            _ => rest.is_empty() || rest.starts_with('-'),
        };
        let hyphens = [2, 35, 52].map(|at| text.as_bytes()[at]);
        let parts = [version, &text[3..35], &text[36..52], &text[53..LEN]];
        if !is_of_version || hyphens != *b"---" || !parts.iter().all(|part| is_hex(part)) {
            return None;
        }
        let [_, trace_id, span_id, flags] = parts;
        let trace_id = u128::from_str_radix(trace_id, 16).ok()?;
        let span_id = u64::from_str_radix(span_id, 16).ok()?;
        let flags = u8::from_str_radix(flags, 16).ok()?;
        (trace_id != 0 && span_id != 0).then_some(Self {
            trace_id,
            span_id,
            is_sampled: flags & 1 == 1,
        })
    }
}

impl fmt::Display for TraceParent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, span, flags) = (self.trace_id, self.span_id, u8::from(self.is_sampled));
        write!(f, "00-{trace:032x}-{span:016x}-{flags:02x}")
    }
}

fn is_hex(text: &str) -> bool {
    text.bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

// === impl TraceId ===

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

// === impl TraceContext ===

impl TraceContext {
    /// Parses the headers `traceparent` and `tracestate`; `None` if `traceparent` is invalid. An invalid `tracestate`
    /// is left out, as the specification requires.
    pub fn parse(parent: &str, state: Option<&str>) -> Option<Self> {
        let fit = |state: &&str| {
            (1..=MAX_STATE).contains(&state.len())
                && state.bytes().all(|byte| matches!(byte, b' '..=b'~'))
        };
        Some(Self {
            parent: TraceParent::parse(parent)?,
            state: state.map(str::trim).filter(fit).map(Arc::from),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn is_read_and_written_alike() {
        let parent = TraceParent::parse(ONE).unwrap();
        assert!(parent.is_sampled);
        assert_eq!(parent.to_string(), ONE);
        let unsampled = ONE.replace("-01", "-00");
        let parent = TraceParent::parse(&unsampled).unwrap();
        assert!(!parent.is_sampled);
        assert_eq!(parent.to_string(), unsampled);
    }

    #[test]
    fn a_later_version_is_read_as_far_as_this_one_goes() {
        for later in [
            ONE.replacen("00", "01", 1),
            ONE.replacen("00", "cc", 1) + "-more",
        ] {
            let parent = TraceParent::parse(&later).unwrap();
            assert_eq!(parent.to_string(), ONE, "{later}");
        }
    }

    #[test]
    fn what_is_none_is_refused() {
        for bad in [
            "",
            "00",
            &ONE[..54],
            &format!("{ONE}-"),
            &format!("{ONE}0"),
            &ONE.replacen("00", "ff", 1),
            &(ONE.replacen("00", "01", 1) + "more"),
            &ONE.to_ascii_uppercase(),
            &ONE.replace('-', "_"),
            &ONE.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &ONE.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &ONE.replace("4bf9", "+bf9"),
            &ONE.replace("4bf9", "é9"),
            &"é".repeat(28),
        ] {
            assert_eq!(TraceParent::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_state_that_cannot_be_passed_on_is_left_out() {
        let state = |state| TraceContext::parse(ONE, Some(state)).unwrap().state;
        assert_eq!(state("a=1,b=2").as_deref(), Some("a=1,b=2"));
        for bad in ["", "a=\nb", "a=é", &"a".repeat(513)] {
            assert_eq!(state(bad), None, "{bad}");
        }
    }
}

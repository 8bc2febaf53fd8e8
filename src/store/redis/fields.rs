//! Fields of stored records and of script arguments, and the calls with which scripts name these fields.
//!
//! A layout declares the name and the width of each field. Rust and the scripts take the position of a field from it:
//! the calls below are replaced when a script is composed, so that they cost no more than numbers would. `R` is the
//! name of the layout, `F` and `G` are fields, `x` is a name, `ARGV[n]` or a quoted text.
//!
//! | call | becomes |
//! |---|---|
//! | `R_F(x)` | `string.sub(x, F's place)` |
//! | `R_F_is(x, 'c')`, `R_F_below(x, 'c')` | a comparison of the first byte of F |
//! | `R_span(x, 'F', 'G')` | `string.sub` from F to G; to the end of the text if G is `end` |
//! | `R_reaches(x, 'F')` | whether the text is long enough to contain F |
//! | `R_range('F', 'G')`, `R_range('F')` | the arguments of GETRANGE for F to G |
//! | `R_with(x, { F = y, G = z })` | the text with other values in these fields, which are in their order |

use std::ops::Range;

/// Name and width in bytes of a field in a record or a script argument.
pub(super) type Field = (&'static str, usize);

/// The fields at the beginning of a record or script argument, in groups that several layouts may share.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) name: &'static str,
    pub(super) groups: &'static [&'static [Field]],
}

const fn is_same(left: &str, right: &str) -> bool {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    let mut at = 0;
    while at < left.len() && at < right.len() && left[at] == right[at] {
        at += 1;
    }
    at == left.len() && at == right.len()
}

// === impl Layout ===

impl Layout {
    /// The byte range of a field, counted from 0. If this is called in a constant, an undeclared name stops the build.
    pub(super) const fn place(&self, name: &str) -> Range<usize> {
        let (mut from, mut group) = (0, 0);
        while group < self.groups.len() {
            let mut field = 0;
            while field < self.groups[group].len() {
                let (declared, width) = self.groups[group][field];
                if is_same(declared, name) {
                    return from..from + width;
                }
                from += width;
                field += 1;
            }
            group += 1;
        }
        panic!("the layout has no such field")
    }

    /// The Lua text that replaces a call of this layout.
    fn inlined(&self, call: &str, arguments: &str) -> String {
        let words = arguments.split([' ', ',', '=', '{', '}']);
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        match (call, words.as_slice()) {
            ("range", [first, ..]) => {
                let last = self.place(quoted(words[words.len() - 1])).end - 1;
                format!("'{}', '{last}'", self.place(quoted(first)).start)
            }
            ("reaches", [text, field]) => {
                format!("(#{} >= {})", name(text), self.place(quoted(field)).end)
            }
            ("span", [text, first, "'end'"]) => part(text, self.place(quoted(first)).start, None),
            ("span", [text, first, last]) => {
                let (from, to) = (self.place(quoted(first)), self.place(quoted(last)));
                part(text, from.start, Some(to.end))
            }
            ("with", [text, changed @ ..]) => {
                let (mut pieces, mut next) = (Vec::new(), 0);
                for change in changed.chunks(2) {
                    let [field, value] = change else {
                        panic!("{change:?} has no value")
                    };
                    let place = self.place(field);
                    assert!(place.start >= next, "{field} is out of order");
                    if place.start > next {
                        pieces.push(part(text, next, Some(place.start)));
                    }
                    pieces.push(name(value).to_owned());
                    next = place.end;
                }
                pieces.push(part(text, next, None));
                pieces.join(" .. ")
            }
            (field, [text]) => {
                let place = self.place(field);
                part(text, place.start, Some(place.end))
            }
            (compared, [text, byte]) => {
                let is = compared.strip_suffix("_is").map(|field| (field, "=="));
                let below = || Some((compared.strip_suffix("_below")?, "<"));
                let (field, sign) = is.or_else(below).expect("a field is compared");
                let (from, byte) = (self.place(field).start + 1, quoted(byte).as_bytes()[0]);
                format!("(string.byte({}, {from}) {sign} {byte})", name(text))
            }
            _ => panic!("{call}({arguments}) names no field"),
        }
    }
}

/// A Lua call of `string.sub` from one byte of a text to another, or to the end. Lua counts from 1.
fn part(text: &str, from: usize, to: Option<usize>) -> String {
    let to = to.map_or(String::new(), |to| format!(", {to}"));
    format!("string.sub({}, {}{to})", name(text), from + 1)
}

/// Checks that an argument of a call may be evaluated several times: a name, an element of a table, or a quoted text.
fn name(argument: &str) -> &str {
    let is_quoted = argument.len() > 2 && argument.starts_with('\'') && argument.ends_with('\'');
    let is_name = argument.chars().all(|c| is_in_word(c) || "[]".contains(c));
    assert!(is_name || is_quoted, "{argument} is no name");
    argument
}

fn quoted(argument: &str) -> &str {
    let bare = argument.strip_prefix('\'');
    bare.and_then(|it| it.strip_suffix('\''))
        .expect("a quoted text")
}

fn is_in_word(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Reads the number in a field of decimal digits.
pub(super) fn number(text: &str, place: Range<usize>) -> Option<u64> {
    let digits = text.get(place)?;
    let all = digits.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| digits.parse().ok()).flatten()
}

/// Replaces the calls that name fields by the positions of the fields.
///
/// # Panics
///
/// If a call names a field that its layout does not have, or has other arguments.
pub(super) fn inline(text: &str, layouts: &[&Layout]) -> String {
    let mut text = text.to_owned();
    for layout in layouts {
        let prefix = format!("{}_", layout.name);
        let (mut inlined, mut rest) = (String::with_capacity(text.len()), text.as_str());
        while let Some((before, after)) = rest.split_once(&prefix) {
            inlined.push_str(before);
            rest = after;
            let call = &after[..after.find(|c| !is_in_word(c)).unwrap_or(after.len())];
            let arguments = after[call.len()..].strip_prefix('(');
            if let Some((arguments, after)) = arguments.and_then(|it| it.split_once(')'))
                && !inlined.ends_with(is_in_word)
            {
                inlined.push_str(&layout.inlined(call, arguments));
                rest = after;
            } else {
                inlined.push_str(&prefix);
            }
        }
        inlined.push_str(rest);
        text = inlined;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout {
        name: "r",
        groups: &[&[("a", 1), ("b", 4)], &[("c", 2), ("d", 8)]],
    };

    #[test]
    fn calls_become_the_places_of_fields() {
        for (call, inlined) in [
            ("r_b(x)", "string.sub(x, 2, 5)"),
            ("f(r_d(ARGV[2]))", "f(string.sub(ARGV[2], 8, 15))"),
            ("not r_a_is(x, 'h')", "not (string.byte(x, 1) == 104)"),
            ("r_c_below(x, 'a')", "(string.byte(x, 6) < 97)"),
            ("r_span(x, 'b', 'c')", "string.sub(x, 2, 7)"),
            ("r_span(x, 'c', 'end')", "string.sub(x, 6)"),
            ("r_reaches(x, 'c') and y", "(#x >= 7) and y"),
            (
                "('GETRANGE', k, r_range('a', 'c'))",
                "('GETRANGE', k, '0', '6')",
            ),
            ("r_range('b')", "'1', '4'"),
            (
                "r_with(x, { c = y })",
                "string.sub(x, 1, 5) .. y .. string.sub(x, 8)",
            ),
            (
                "r_with(x, { a = 'h', b = y })",
                "'h' .. y .. string.sub(x, 6)",
            ),
            ("for_b(x) .. r_b .. r.b", "for_b(x) .. r_b .. r.b"),
        ] {
            assert_eq!(inline(call, &[&LAYOUT]), inlined);
        }
    }

    #[test]
    fn any_other_call_fails() {
        for call in [
            "r_e(x)",
            "r_b(x.y)",
            "r_b(f(x))",
            "r_b(x .. y)",
            "r_b(x, y)",
            "r_b()",
            "r_a_is(x, y)",
            "r_span(x, 'b')",
            "r_with(x, { b = f() })",
            "r_with(x, { c = y, b = z })",
            "r_with(x, y)",
        ] {
            let inlined = std::panic::catch_unwind(|| inline(call, &[&LAYOUT]));
            assert!(inlined.is_err(), "{call}: {inlined:?}");
        }
    }
}

//! The configuration reference, generated from the doc comments of the settings. `config/latchgate.toml` has every key
//! with its default and description; `docs/configuration.md` also has the type and the environment variable of each
//! key.

use super::{Key, Section, ValueKind};

const FILE_INTRODUCTION: &str = "\
# Every key of Latchgate's configuration, with its default. A file needs only what it changes:
# loading this one is the same as loading none.
#
# A value is taken from the first of these that sets it: a flag of the command line, an environment
# variable (LATCHGATE_ and the key in capitals, with _ for the dot), the file that --config or
# LATCHGATE_CONFIG names, the default. An unknown key or a value that is not allowed stops the
# start.
";

/// The text of `config/latchgate.toml`, which `latchgate config default` prints.
pub fn file() -> String {
    let mut out = FILE_INTRODUCTION.to_owned();
    let comment = |out: &mut String, text: &str| {
        for line in wrap(text, 98) {
            out.push_str("# ");
            out.push_str(&line);
            out.push('\n');
        }
    };
    for section in Section::all() {
        if !section.name.is_empty() {
            out.push('\n');
            comment(&mut out, &section.doc);
            out.extend(["[", &section.name, "]\n"]);
        }
        for (index, key) in section.keys.iter().enumerate() {
            if index > 0 || section.name.is_empty() {
                out.push('\n');
            }
            comment(&mut out, &key.doc);
            if let ValueKind::WholeNumber(Some((least, most))) = key.kind {
                comment(&mut out, &format!("Allowed: {least} to {most}."));
            }
            out.extend([key.name(), " = ", &key.default, "\n"]);
        }
    }
    out
}

const PAGE_INTRODUCTION: &str = "\
# Configuration

`latchgate serve` needs no configuration. A setting is taken from the first of these that
sets it:

1. a flag of the command line (`--listen`, `--store`, `--insecure-no-auth`),
2. an environment variable: `LATCHGATE_` and the key in capitals, with `_` for the dot,
3. the TOML file that `--config` or `LATCHGATE_CONFIG` names,
4. the default.

In a variable, the texts of a list have commas between them.

An unknown key, an unknown `LATCHGATE_` variable or a value that is not allowed stops the start
with a message that names the line, variable or flag. `latchgate config check` does the same
without starting, and shows which source sets each key; `latchgate config default` prints a file
with every key. No message shows the password of a store URL.

A variable that is set and empty is refused like any other value that is not allowed. That holds
for `LATCHGATE_CONFIG` as well, because a gateway without its configuration might serve from
another store.

Variables of the client commands (`LATCHGATE_URL`, `LATCHGATE_KEY`, `LATCHGATE_TOKEN`, ..) and the
variables that Kubernetes sets for a Service whose name begins with `latchgate` are left alone.
The client commands also refuse a variable of theirs that is set and empty.
";

/// The text of `docs/configuration.md`.
pub fn page() -> String {
    let mut out = PAGE_INTRODUCTION.to_owned();
    for section in Section::all() {
        let title = match section.name.as_str() {
            "" => "The gateway".to_owned(),
            name => format!(
                "`[{name}]`: {}",
                lower_first(section.doc.trim_end_matches('.'))
            ),
        };
        out.extend(["\n## ", &title, "\n"]);
        for key in &section.keys {
            out.push_str(&entry(key));
        }
    }
    out
}

fn entry(key: &Key) -> String {
    format!(
        "\n### `{}`\n\n{}\n\n| type | default | variable |\n|---|---|---|\n| {} | `{}` | `{}` |\n",
        key.path,
        key.doc,
        key.kind.allowed(),
        key.default,
        key.variable(),
    )
}

/// Makes the first letter of a text lower-case, unless the text begins with an abbreviation such as `TLS`.
fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    let Some(first) = chars.next() else {
        return String::new();
    };
    if chars.clone().next().is_some_and(char::is_uppercase) {
        return text.to_owned();
    }
    first.to_lowercase().chain(chars).collect()
}

/// Breaks a text into lines of at most `width` characters. A longer word gets a line of its own.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abbreviation_keeps_its_capitals() {
        for (text, within) in [
            ("Redis, for one", "redis, for one"),
            ("HTTPS. With", "HTTPS. With"),
            ("TLS to Redis", "TLS to Redis"),
            ("A", "a"),
            ("", ""),
        ] {
            assert_eq!(lower_first(text), within);
        }
    }

    #[test]
    fn fills_lines_and_keeps_words_whole() {
        assert_eq!(
            wrap("aa bb cc ddddddd e", 5),
            ["aa bb", "cc", "ddddddd", "e"]
        );
        assert!(wrap("", 5).is_empty());
    }
}

//! `config/latchgate.toml`: every key with its default and what it is for.

use crate::config::{Section, ValueKind};

use super::wrap::wrap;

const INTRODUCTION: &str = "\
# Every key of Latchgate's configuration, with its default. A file needs only what it changes:
# loading this one is the same as loading none.
#
# A value is taken from the first of these that sets it: a flag of the command line, an environment
# variable (the key in capitals, behind LATCHGATE_, with _ for the dot), the file that --config or
# LATCHGATE_CONFIG names, the default. An unknown key or a value that is not allowed stops the
# start.
";

/// The file, as `latchgate config default` prints it.
pub fn file() -> String {
    let mut out = INTRODUCTION.to_owned();
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

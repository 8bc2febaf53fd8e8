//! Joins the modules of the dashboard into one script, because a browser spends more time on a request of its own
//! than on the content of a module.
//!
//! The text of a module stays unchanged, except for its imports and exports, which must be on lines of their own, and for
//! comments that begin a line, which are left out because a browser would load them.
//! Each module becomes a function that is called once and returns its exports. Libraries are not joined.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

/// The path of the module that imports all others, which is also the path of the joined script.
pub(super) const SCRIPT: &str = "app.js";
/// The directory of the libraries, which are not joined into the script.
const LIBRARIES: &str = "vendor/";
/// The directory of the JavaScript client, which the dashboard and other programs use. The path begins at the root of
/// the repository.
pub(super) const CLIENT: &str = "clients/js/src/";

/// The script while it is being joined.
struct Joined<'a> {
    directory: &'a Path,
    /// The numbers of the imported libraries, by path.
    libraries: BTreeMap<String, usize>,
    /// The numbers of the joined modules, by path; `None` while a module is being read.
    modules: BTreeMap<String, Option<usize>>,
    bodies: String,
}

/// Returns the joined script of the dashboard, and the paths of the modules in it.
pub(super) fn join(directory: &Path) -> (String, Vec<String>) {
    let mut joined = Joined {
        directory,
        libraries: BTreeMap::new(),
        modules: BTreeMap::new(),
        bodies: String::new(),
    };
    joined.module(SCRIPT);
    let mut script = String::new();
    for (path, number) in &joined.libraries {
        line(
            &mut script,
            &format!("import * as library{number} from \"./{path}\";"),
        );
    }
    script.push_str(&joined.bodies);
    // The export lets a developer inspect the modules in the running page.
    line(&mut script, "export const modules = {");
    for (path, number) in &joined.modules {
        let number = number.expect("every module was read to its end");
        line(&mut script, &format!("  \"{path}\": module{number},"));
    }
    line(&mut script, "};");
    (script, joined.modules.into_keys().collect())
}

// === impl Joined ===

impl Joined<'_> {
    /// Appends a module to the script, after the modules that it imports. Returns the expression for its exports.
    fn module(&mut self, path: &str) -> String {
        match self.modules.get(path) {
            Some(Some(number)) => return format!("module{number}"),
            Some(None) => {
                panic!("{path} imports itself by way of others: none of them can come first")
            }
            None => drop(self.modules.insert(path.to_owned(), None)),
        }
        let file = match path.strip_prefix(CLIENT) {
            Some(inside) => Path::new(CLIENT).join(inside),
            None => self.directory.join(path),
        };
        let text =
            fs::read_to_string(file).unwrap_or_else(|error| panic!("cannot read {path}: {error}"));
        let (mut body, mut exports) = (String::new(), Vec::new());
        for code in text.lines().filter(code_lines()) {
            if let Some(import) = code.strip_prefix("import ") {
                let (names, from) = names_and_path(path, import);
                let source = self.source(path, from);
                line(&mut body, &format!("const {} = {source};", bound(names)));
            } else if let Some(again) = code.strip_prefix("export {") {
                let (names, from) = names_and_path(path, again);
                let source = self.source(path, from);
                let names = names.trim_end_matches(['}', ' ']).split(',').map(str::trim);
                exports.extend(names.map(|name| format!("{name}: {source}.{name}")));
            } else if let Some(exported) = code.strip_prefix("export ") {
                exports.push(declared(path, exported).to_owned());
                line(&mut body, exported);
            } else {
                line(&mut body, code);
            }
        }
        let number = self.modules.values().flatten().count();
        self.modules.insert(path.to_owned(), Some(number));
        let exports = exports.join(", ");
        line(
            &mut self.bodies,
            &format!(
                "\n// === {path} ===\nconst module{number} = (() => {{\n{body}return {{ {exports} }};\n}})();"
            ),
        );
        format!("module{number}")
    }

    /// Returns the expression for a module or a library that the module `importer` imports.
    fn source(&mut self, importer: &str, from: &str) -> String {
        let path = resolved(importer, from);
        if !path.starts_with(LIBRARIES) {
            return self.module(&path);
        }
        let next = self.libraries.len();
        let number = self.libraries.entry(path).or_insert(next);
        format!("library{number}")
    }
}

/// Tells lines of code from comments that begin a line; such a comment between `/**` and `*/` may have several lines.
fn code_lines() -> impl FnMut(&&str) -> bool {
    let mut is_inside = false;
    move |line: &&str| {
        let text = line.trim();
        let is_block = is_inside || text.starts_with("/**");
        is_inside = is_block && !text.ends_with("*/");
        !is_block && !text.starts_with("//")
    }
}

/// Splits the import `{ a, b as c } from "./x.js";` into its names and its path, with either kind of quotes.
fn names_and_path<'a>(module: &str, statement: &'a str) -> (&'a str, &'a str) {
    let parts = statement.split_once(" from ");
    let parts = parts.and_then(|(names, from)| {
        let unquoted = |quote: &str| from.strip_prefix(quote)?.strip_suffix(&format!("{quote};"));
        Some((names, unquoted("\"").or_else(|| unquoted("'"))?))
    });
    parts.unwrap_or_else(|| panic!("{module} imports in a way that is not understood: {statement}"))
}

/// The JavaScript pattern that binds imported names. A name without braces is the default export.
fn bound(names: &str) -> String {
    match names.strip_prefix('{') {
        Some(_) => names.replace(" as ", ": "),
        None => format!("{{ default: {names} }}"),
    }
}

/// The name that an exported declaration, such as `const a = 1`, declares.
fn declared<'a>(module: &str, exported: &'a str) -> &'a str {
    let kinds = ["async function ", "function ", "class ", "const "];
    let rest = kinds.iter().find_map(|kind| exported.strip_prefix(kind));
    let name = rest.and_then(|rest| rest.split([' ', '(', '{']).next());
    // An exported `let` is refused: its importers would have to see later changes of its value.
    name.unwrap_or_else(|| panic!("{module} exports in a way that is not understood: {exported}"))
}

/// Resolves a path relative to the module that imports it.
fn resolved(importer: &str, to: &str) -> String {
    let mut parts: Vec<_> = importer.split('/').collect();
    parts.pop();
    for part in to.split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn line(text: &mut String, line: &str) {
    writeln!(text, "{line}").expect("a String takes every text");
}

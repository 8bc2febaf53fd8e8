//! No two files use each other, directly or through other files: they would have to be one file.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use syn::{
    Attribute, Item, ItemMod, ItemUse, Path, UseTree, Visibility,
    visit::{self, Visit},
};

use crate::support::tree::{Source, sources};

/// The path of a module: `["engine", "acquire"]`.
type Module = Vec<String>;

/// What a file uses and exports.
#[derive(Default)]
struct File {
    path: String,
    /// Paths that the file uses, from the root of the crate.
    used: Vec<Module>,
    /// Paths that the file re-exports, by name.
    handed_on: HashMap<String, Module>,
}

struct Reader<'a> {
    module: Module,
    children: &'a BTreeSet<Module>,
    file: File,
}

#[test]
fn no_files_use_each_other_in_a_circle() {
    for of_crate in ["src", "clients/rust/src", "crates/vocabulary/src"] {
        let circles = circles(&sources(&[of_crate]));
        assert!(circles.is_empty(), "\n{}", circles.join("\n"));
    }
}

#[test]
fn finds_circles_through_what_a_room_hands_on() {
    let source = |path: &str, text: &str| Source {
        path: path.to_owned(),
        text: text.to_owned(),
    };
    let room = source("src/a/mod.rs", "mod b;\nmod c;\npub use b::B;\n");
    let b = source("src/a/b.rs", "use super::c;\npub struct B(c::C);\n");
    let by_name = source("src/a/c.rs", "use super::B;\npub struct C;\n");
    let by_path = source("src/a/c.rs", "fn f(_: crate::a::b::B) {}\n");
    let tests_alone = source(
        "src/a/c.rs",
        "#[cfg(test)]\nmod tests { use crate::a::B; }\n",
    );
    let found = |c: &Source| {
        let copy = |it: &Source| source(&it.path, &it.text);
        circles(&[copy(&room), copy(&b), copy(c)])
    };
    assert_eq!(found(&by_name), ["src/a/b.rs, src/a/c.rs"]);
    assert_eq!(found(&by_path), ["src/a/b.rs, src/a/c.rs"]);
    assert_eq!(found(&tests_alone), [""; 0]);
}

/// The files of each circle.
fn circles(sources: &[Source]) -> Vec<String> {
    let uses = uses(sources);
    let reached: BTreeMap<_, _> = uses.keys().map(|it| (it, reached(&uses, it))).collect();
    let mut circles = BTreeSet::new();
    for (file, others) in &reached {
        if others.contains(file) {
            let circle = others.iter().filter(|it| reached[*it].contains(file));
            let circle: Vec<_> = circle.map(|it| it.as_str()).collect();
            circles.insert(circle.join(", "));
        }
    }
    circles.into_iter().collect()
}

/// The files that each file uses, by their paths, without tests.
pub(super) fn uses(sources: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let sources = sources.iter().filter(|it| !is_of_tests(&it.path));
    let sources: Vec<_> = sources.map(|it| (module(&it.path), it)).collect();
    let children = sources.iter().map(|(module, _)| module.clone()).collect();
    let files: BTreeMap<Module, File> = sources
        .iter()
        .map(|(module, source)| (module.clone(), read(module, source, &children)))
        .collect();
    let uses = files.iter().map(|(module, file)| {
        let used = file.used.iter().filter_map(|path| resolve(&files, path, 0));
        let others = used.filter(|used| *used != module);
        let others = others.map(|used| files[used].path.clone()).collect();
        (file.path.clone(), others)
    });
    uses.collect()
}

/// All files that a file uses, directly or through other files.
fn reached<'a>(uses: &'a BTreeMap<String, BTreeSet<String>>, from: &str) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut open: Vec<_> = uses[from].iter().collect();
    while let Some(next) = open.pop() {
        if found.insert(next) {
            open.extend(&uses[next]);
        }
    }
    found
}

/// The file that defines the item of a path.
fn resolve<'a>(
    files: &'a BTreeMap<Module, File>,
    path: &[String],
    depth: usize,
) -> Option<&'a Module> {
    assert!(depth < 32, "{path:?} is handed on for ever");
    let known = (0..=path.len()).rev().map(|length| path.split_at(length));
    let (module, rest) = known
        .into_iter()
        .find(|(module, _)| files.contains_key(*module))?;
    let handed_on = rest
        .first()
        .and_then(|name| files[module].handed_on.get(name));
    match handed_on {
        Some(path) => resolve(files, path, depth + 1),
        None => files.get_key_value(module).map(|(module, _)| module),
    }
}

fn read(module: &Module, source: &Source, children: &BTreeSet<Module>) -> File {
    let parsed = syn::parse_file(&source.text);
    let parsed = parsed.unwrap_or_else(|error| panic!("{}: {error}", source.path));
    let mut reader = Reader {
        module: module.clone(),
        children,
        file: File {
            path: source.path.clone(),
            ..File::default()
        },
    };
    reader.visit_file(&parsed);
    reader.file
}

fn is_of_tests(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs")
}

fn module(path: &str) -> Module {
    let inside = path.split_once("src/").map_or(path, |(_, inside)| inside);
    let inside = inside.strip_suffix(".rs").unwrap_or(inside);
    let mut module: Module = inside.split('/').map(str::to_owned).collect();
    if matches!(module.last().map(String::as_str), Some("mod" | "lib")) {
        module.pop();
    }
    module
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let list = attribute.meta.require_list();
        attribute.path().is_ident("cfg")
            && list.is_ok_and(|list| list.tokens.to_string().contains("test"))
    })
}

// === impl Reader ===

impl Reader<'_> {
    /// The path from the root of the crate for a written path; none if it belongs to another crate.
    fn absolute(&self, written: &[String]) -> Option<Module> {
        let mut module = self.module.clone();
        let mut rest = written;
        match written.first()?.as_str() {
            "crate" => {
                module.clear();
                rest = &rest[1..];
            }
            "self" => rest = &rest[1..],
            "super" => {
                while let Some(("super", more)) = rest.split_first().map(|(a, b)| (a.as_str(), b)) {
                    module.pop();
                    rest = more;
                }
            }
            child => {
                module.push(child.to_owned());
                if !self.children.contains(&module) {
                    return None;
                }
                rest = &rest[1..];
            }
        }
        module.extend_from_slice(rest);
        Some(module)
    }

    fn leaves(&mut self, tree: &UseTree, path: &mut Module, handed_on: bool) {
        let (last, name) = match tree {
            UseTree::Path(inner) => {
                path.push(inner.ident.to_string());
                self.leaves(&inner.tree, path, handed_on);
                path.pop();
                return;
            }
            UseTree::Group(group) => {
                for inner in &group.items {
                    self.leaves(inner, path, handed_on);
                }
                return;
            }
            UseTree::Name(name) => (name.ident.to_string(), name.ident.to_string()),
            UseTree::Rename(name) => (name.ident.to_string(), name.rename.to_string()),
            UseTree::Glob(_) => ("*".to_owned(), "*".to_owned()),
        };
        let mut written = path.clone();
        if last != "self" && last != "*" {
            written.push(last);
        }
        let Some(used) = self.absolute(&written) else {
            return;
        };
        if handed_on {
            self.file.handed_on.insert(name, used);
        } else {
            self.file.used.push(used);
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        let attributes = match item {
            Item::Fn(it) => &it.attrs,
            Item::Impl(it) => &it.attrs,
            Item::Mod(it) => &it.attrs,
            Item::Use(it) => &it.attrs,
            _ => &Vec::new(),
        };
        if !is_for_tests(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast ItemMod) {
        // Paths in an inline module begin one level deeper.
        self.module.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.module.pop();
    }

    fn visit_item_use(&mut self, item: &'ast ItemUse) {
        let handed_on = !matches!(item.vis, Visibility::Inherited);
        self.leaves(&item.tree, &mut Vec::new(), handed_on);
    }

    fn visit_path(&mut self, path: &'ast Path) {
        let written: Vec<_> = path
            .segments
            .iter()
            .map(|it| it.ident.to_string())
            .collect();
        if matches!(written[0].as_str(), "crate" | "super" | "self")
            && written.len() > 1
            && let Some(used) = self.absolute(&written)
        {
            self.file.used.push(used);
        }
        visit::visit_path(self, path);
    }
}

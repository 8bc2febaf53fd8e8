//! The two stores on Redis, for one server and for a quorum, share some rooms and do not use each other.

use std::collections::HashMap;

use syn::{ImplItem, Item, Type, Visibility};

use super::circles::uses;
use crate::support::tree::{Source, sources};

const REDIS: &str = "src/store/redis/";
/// The rooms that each room may use beside itself. A file of no other room belongs to the last one, the store on one
/// server.
const ROOMS: &[(&str, &[&str])] = &[
    ("slot.rs", &[]),
    ("fields.rs", &[]),
    ("keys.rs", &["slot.rs"]),
    ("client/", &["slot.rs", "keys.rs", "fields.rs"]),
    ("gateways.rs", &["keys.rs", "client/"]),
    ("health/", &["slot.rs", "keys.rs", "client/"]),
    ("history/", &["keys.rs", "client/"]),
    ("redlock/", SHARED),
    (SERVER, SHARED),
];
const SHARED: &[&str] = &[
    "slot.rs",
    "keys.rs",
    "fields.rs",
    "client/",
    "gateways.rs",
    "health/",
    "history/",
];
/// The name of the store on one server.
const SERVER: &str = "";

#[test]
fn neither_store_in_redis_knows_the_other_and_what_they_share_knows_none() {
    let sources = sources(&["src"]);
    let mut wrong = Vec::new();
    for (file, others) in uses(&sources) {
        let Some((room, allowed)) = room(&file) else {
            continue;
        };
        for other in others {
            let used = self::room(&other).map(|(used, _)| used);
            if used.is_some_and(|used| used != room && !allowed.contains(&used)) {
                wrong.push(format!("{file} uses {other}"));
            }
        }
    }
    wrong.extend(reached_over(&sources));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn finds_what_needs_no_import() {
    let source = |path: &str, text: &str| Source {
        path: format!("{REDIS}{path}"),
        text: text.to_owned(),
    };
    let found = |text: &str| {
        let shared = source("client/a.rs", "pub struct A;");
        reached_over(&[shared, source("redlock/b.rs", text)])
    };
    assert_eq!(
        found("impl A { pub(super) fn f() {} const C: u8 = 1; }"),
        [""; 0]
    );
    assert_eq!(found("impl A { pub(crate) fn f() {} }").len(), 1);
    assert_eq!(found("impl A { pub const C: u8 = 1; }").len(), 1);
    assert_eq!(found("struct B; impl B { pub(crate) fn f() {} }"), [""; 0]);
    assert_eq!(
        found("const T: &str = include_str!(\"../x.lua\");").len(),
        1
    );
}

/// Accesses to the other store without an import: the text of a file in another room, and a public method on a type of
/// another room.
fn reached_over(sources: &[Source]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut files = Vec::new();
    for source in sources {
        if let Some((room, _)) = room(&source.path) {
            if source.text.contains("include_str!(\"../") {
                wrong.push(format!("{} includes what is not below it", source.path));
            }
            files.push((source, room, syn::parse_file(&source.text).unwrap()));
        }
    }
    let mut defined = HashMap::new();
    for (_, room, file) in &files {
        for item in &file.items {
            match item {
                Item::Struct(it) => defined.insert(it.ident.to_string(), *room),
                Item::Enum(it) => defined.insert(it.ident.to_string(), *room),
                _ => None,
            };
        }
    }
    for (source, room, file) in &files {
        if SHARED.contains(room) {
            continue;
        }
        for item in &file.items {
            let Item::Impl(item) = item else { continue };
            let Type::Path(of) = &*item.self_ty else {
                continue;
            };
            let of = of.path.segments.last().unwrap().ident.to_string();
            if item.trait_.is_some() || defined.get(&of).is_none_or(|its| its == room) {
                continue;
            }
            for inside in &item.items {
                let visibility = match inside {
                    ImplItem::Fn(it) => &it.vis,
                    ImplItem::Const(it) => &it.vis,
                    _ => continue,
                };
                let shown = match visibility {
                    Visibility::Inherited => false,
                    Visibility::Restricted(to) => !to.path.is_ident("super"),
                    Visibility::Public(_) => true,
                };
                if shown {
                    wrong.push(format!("{} adds to {of} for all to see", source.path));
                }
            }
        }
    }
    wrong
}

/// The room of a file and the rooms that it may use; `None` for files of no Redis store, and for the root, which names
/// all rooms.
fn room(path: &str) -> Option<(&'static str, &'static [&'static str])> {
    let inside = path.strip_prefix(REDIS)?;
    let room = ROOMS.iter().find(|(room, _)| inside.starts_with(room));
    room.copied().filter(|_| inside != "mod.rs")
}

//! Links between the documents: every relative link and anchor exists, every named page exists, and the index lists all
//! pages.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

/// Directories that are not written by hand.
const LEFT_OUT: [&str; 4] = ["target", "vendor", "node_modules", "__pycache__"];
/// The largest size of the README: two pages.
const README_LINES: usize = 110;
const README_COLUMNS: usize = 120;

/// Every text of the repository, by its path from the root.
fn texts() -> BTreeMap<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = BTreeMap::new();
    walk(root, root, &mut found);
    found
}

fn walk(root: &Path, directory: &Path, found: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.starts_with('.') || LEFT_OUT.contains(&name.as_str()) {
            continue;
        }
        if path.is_dir() {
            walk(root, &path, found);
        } else if let Ok(text) = fs::read_to_string(&path) {
            found.insert(path.strip_prefix(root).unwrap().to_owned(), text);
        }
    }
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// The lines of a page that are not in a code block.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// The targets of all links and images of a page.
fn links(page: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for line in prose(page) {
        // A text in backticks is no link.
        let line: String = line.split('`').step_by(2).collect::<Vec<_>>().join("code");
        for rest in line.split("](").skip(1) {
            if let Some((target, _)) = rest.split_once(')') {
                targets.push(target.to_owned());
            }
        }
    }
    targets
}

/// The anchors of the headings of a page, as common renderers make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let headings = prose(page).filter(|line| line.starts_with('#'));
    headings
        .map(|heading| {
            let title = heading.trim_start_matches('#').trim().to_lowercase();
            let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
            let kept: String = title.chars().filter(kept).collect();
            kept.replace(' ', "-")
        })
        .collect()
}

/// A path without its `..`; none if it leaves the repository.
fn resolved(path: &Path) -> Option<PathBuf> {
    let mut parts = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part),
            Component::CurDir => {}
            Component::ParentDir if parts.pop() => {}
            _ => return None,
        }
    }
    Some(parts)
}

/// Whether a relative link of a page leads to an existing file, and to an existing heading.
fn leads_somewhere(
    page: &Path,
    target: &str,
    texts: &BTreeMap<PathBuf, String>,
    exists: impl Fn(&Path) -> bool,
) -> bool {
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let file = if path.is_empty() {
        Some(page.to_owned())
    } else {
        resolved(&page.parent().unwrap().join(path))
    };
    let Some(file) = file.filter(|file| exists(file)) else {
        return false;
    };
    anchor.is_empty()
        || texts
            .get(&file)
            .is_some_and(|text| anchors(text).contains(anchor))
}

/// The pages of `docs/` that a text names.
fn named_pages(text: &str) -> Vec<&str> {
    let is_of_a_path = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_');
    text.match_indices("docs/")
        .filter_map(|(at, _)| {
            let rest = &text[at..];
            let end = rest.find(|c| !is_of_a_path(c))?;
            rest[end..]
                .starts_with(".md")
                .then(|| &rest[..end + ".md".len()])
        })
        .collect()
}

#[test]
fn every_link_of_a_page_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let texts = texts();
    let mut broken = Vec::new();
    let mut followed = 0;
    for (page, text) in texts.iter().filter(|(path, _)| is_page(path)) {
        for target in links(text) {
            if target.contains("://") {
                continue;
            }
            followed += 1;
            if !leads_somewhere(page, &target, &texts, |file| root.join(file).exists()) {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(followed > 100, "{followed} links");
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_page_that_a_file_names_is_there() {
    let texts = texts();
    let mut missing = Vec::new();
    for (path, text) in &texts {
        for name in named_pages(text) {
            if !texts.contains_key(Path::new(name)) {
                missing.push(format!("{}: {name}", path.display()));
            }
        }
    }
    // This file names a page that does not exist.
    missing.retain(|line| !line.starts_with("tests/it/golden/links.rs"));
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn the_index_lists_every_page() {
    let texts = texts();
    let index = Path::new("docs/README.md");
    let listed: BTreeSet<_> = links(&texts[index])
        .iter()
        .filter_map(|target| resolved(&Path::new("docs").join(target)))
        .collect();
    let left_out: Vec<_> = texts
        .keys()
        .filter(|path| path.starts_with("docs") && is_page(path) && *path != index)
        .filter(|path| !listed.contains(*path))
        .collect();
    assert!(left_out.is_empty(), "{left_out:?}");
}

#[test]
fn the_readme_has_two_pages() {
    let readme = &texts()[Path::new("README.md")];
    let lines = readme.lines().count();
    assert!(lines <= README_LINES, "{lines} lines");
    let long: Vec<_> = readme
        .lines()
        .filter(|line| line.chars().count() > README_COLUMNS)
        .collect();
    assert!(long.is_empty(), "{long:#?}");
}

#[test]
fn a_link_that_leads_nowhere_is_found() {
    let page = "# A page\n\n[x](b.md) ![y](../c.png#d) `[no](link)`\n```\n[none](either)\n```\n## Why, and *how*: `it`\n";
    assert_eq!(links(page), ["b.md", "../c.png#d"]);
    let anchors = anchors(page);
    assert!(anchors.contains("a-page") && anchors.contains("why-and-how-it"));
    let texts = BTreeMap::from([(PathBuf::from("docs/a.md"), page.to_owned())]);
    let leads = |target| {
        leads_somewhere(Path::new("docs/a.md"), target, &texts, |file| {
            texts.contains_key(file)
        })
    };
    for target in ["a.md", "#a-page", "a.md#why-and-how-it", "../docs/a.md"] {
        assert!(leads(target), "{target}");
    }
    for target in ["b.md", "#a", "a.md#a", "../a.md", "../../docs/a.md"] {
        assert!(!leads(target), "{target}");
    }
    assert_eq!(named_pages("see docs/b/c.md, docs/d."), ["docs/b/c.md"]);
}

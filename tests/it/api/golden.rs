//! Generated text is what is committed. `BLESS=1` rewrites it.

use std::path::Path;

use latchgate::http::{openapi, problems_markdown};

fn check(file: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    #[expect(
        clippy::disallowed_methods,
        reason = "the environment of the test, not of the program"
    )]
    let bless = std::env::var_os("BLESS").is_some();
    if bless {
        std::fs::write(&path, generated).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == generated,
        "{file} is not what the code generates; run the tests with BLESS=1 and review the change"
    );
}

#[test]
fn the_committed_openapi_document_is_the_generated_one() {
    let mut document = serde_json::to_string_pretty(&openapi()).unwrap();
    document.push('\n');
    check("openapi/latchgate.json", &document);
}

#[test]
fn the_committed_chapter_on_problems_is_the_generated_one() {
    check("docs/problems.md", &problems_markdown());
}

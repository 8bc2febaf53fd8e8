//! Compares generated text with a committed file.

use std::{env, fs, path::Path};

/// Fails unless the file holds the text. With `BLESS=1` in the environment it writes the file.
#[expect(
    clippy::disallowed_methods,
    reason = "the switch of the person who runs the tests, not a configuration of the product"
)]
pub(crate) fn assert_golden(path: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    if env::var("BLESS").is_ok_and(|bless| bless == "1") {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        return;
    }
    let committed = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        committed == text,
        "{} is not what the code says now; run the tests with BLESS=1 and look at the difference.\n\
         The code says:\n{text}",
        path.display()
    );
}

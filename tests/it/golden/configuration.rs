//! The configuration reference.

use latchgate::config::reference;

use crate::support::golden::assert_golden;

#[test]
fn the_default_configuration_file_is_what_the_structs_say() {
    assert_golden("config/latchgate.toml", &reference::file());
}

#[test]
fn the_page_on_configuration_is_what_the_structs_say() {
    assert_golden("docs/configuration.md", &reference::page());
}

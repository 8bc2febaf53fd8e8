//! Generated texts are the same as the committed files.

use latchgate::{cli::Args, config::reference, telemetry::metrics::page};

use crate::support::golden::assert_golden;

#[test]
fn help_says_what_every_command_takes() {
    let mut program = Args::all().term_width(100);
    program.build();
    check("latchgate", &mut program.clone());
    let commands: Vec<_> = program.get_subcommands().cloned().collect();
    for mut command in commands {
        let name = format!("latchgate-{}", command.get_name());
        let inner: Vec<_> = command.get_subcommands().cloned().collect();
        check(&name, &mut command);
        for mut command in inner {
            check(&format!("{name}-{}", command.get_name()), &mut command);
        }
    }
}

fn check(name: &str, command: &mut clap::Command) {
    if name.ends_with("-help") || name.contains("-help-") {
        return;
    }
    let text = command.render_long_help().to_string();
    // clap pads empty lines between paragraphs with blanks.
    let lines: Vec<_> = text.lines().map(str::trim_end).collect();
    assert_golden(
        &format!("tests/it/golden/help/{name}.txt"),
        &(lines.join("\n") + "\n"),
    );
}

#[test]
fn the_default_configuration_file_is_what_the_structs_say() {
    assert_golden("config/latchgate.toml", &reference::file());
}

#[test]
fn the_page_on_configuration_is_what_the_structs_say() {
    assert_golden("docs/configuration.md", &reference::page());
}

#[test]
fn the_page_on_metrics_is_what_the_program_counts() {
    assert_golden("docs/metrics.md", &page());
}

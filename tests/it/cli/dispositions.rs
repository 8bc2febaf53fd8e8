//! What the tests start hears signals, whoever started the tests; and `latchgate run` passes on what it was
//! started with.

use std::process::{Command, Stdio};

use crate::support::{gateway::Gateway, spawn};

/// Set in the child: it is to show how a program begins that a test starts.
const CHILD: &str = "LG_DISPOSITIONS_CHILD";
/// Starts what follows as `nohup` and the background of a shell do, and with a mask beyond that.
const DEAF: &str = r#"trap "" HUP INT QUIT TERM USR1; exec env --block-signal=USR2 "$@""#;
const SHOW: [&str; 3] = ["grep", "-E", "^Sig(Blk|Ign)"];

/// The sets of signals that are blocked and that are ignored.
fn shown(mut command: Command) -> [u64; 2] {
    let output = command
        .arg("/proc/self/status")
        .stdin(Stdio::null())
        .output();
    let output = output.unwrap();
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    let sets = text.lines().map(|line| {
        let set = u64::from_str_radix(line.split_once('\t').unwrap().1, 16).unwrap();
        // 32 and 33 belong to glibc, whose `posix_spawn` has them ignored.
        set & !(0b11 << 31)
    });
    let sets: Vec<_> = sets.collect();
    sets.try_into().unwrap_or_else(|_| panic!("{output:?}"))
}

fn deaf(arguments: &[&str]) -> Command {
    let mut command = spawn::command("sh");
    command.args(["-c", DEAF, "sh"]).args(arguments);
    command
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "tells the child from the parent, not a configuration of the product"
)]
fn what_a_test_starts_ignores_and_blocks_nothing_whoever_started_the_tests() {
    if std::env::var_os(CHILD).is_some() {
        let mut show = spawn::command(SHOW[0]);
        show.args(&SHOW[1..]);
        assert_eq!(shown(show), [0, 0]);
        return;
    }
    let [blocked, ignored] = shown(deaf(&SHOW));
    assert!(blocked != 0 && ignored != 0);
    let this = std::env::current_exe().unwrap();
    let name = "what_a_test_starts_ignores_and_blocks_nothing_whoever_started_the_tests";
    let name = format!("cli::dispositions::{name}");
    let ran = deaf(&[this.to_str().unwrap(), "--exact", &name])
        .env(CHILD, "")
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
}

#[test]
fn a_command_under_run_begins_with_the_signals_that_it_would_have_without() {
    let gateway = Gateway::start();
    let program = env!("CARGO_BIN_EXE_latchgate");
    let run = [program, "run", "--url", &gateway.url(), "deploy", "--"];
    let mut plain = spawn::command(SHOW[0]);
    plain.args(&SHOW[1..]);
    let mut under_run = spawn::command(run[0]);
    under_run.args(&run[1..]).args(SHOW);
    assert_eq!(shown(under_run), shown(plain));
    let run: Vec<_> = run.into_iter().chain(SHOW).collect();
    assert_eq!(shown(deaf(&run)), shown(deaf(&SHOW)));
}

//! What the tests start hears signals, whoever started the tests; and `latchgate run` passes on what it was
//! started with.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::Instant;

use crate::support::{gateway::Gateway, program::with_path_alone, spawn};

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
    let [_, ignored] = shown(deaf(&SHOW));
    // It must hear the end of its command, and blocks nothing for that either.
    assert_eq!(shown(deaf(&run)), [0, ignored]);
}

#[test]
fn a_command_under_run_and_a_gateway_end_although_the_caller_has_blocked_the_signals_for_that() {
    let block = ["env", "--block-signal=CHLD", "--block-signal=TERM"];
    let blocking = |arguments: &[&str]| {
        let mut command = spawn::command(block[0]);
        let program = env!("CARGO_BIN_EXE_latchgate");
        command.args(&block[1..]).arg(program).args(arguments);
        with_path_alone(&mut command);
        command
    };
    let gateway = Gateway::start();
    let mut run = blocking(&["run", "--url", &gateway.url(), "deploy", "--", "true"]);
    let mut run = run.spawn().unwrap();
    ends_with(&mut run, Some(0));

    let directory = tempfile::tempdir().unwrap();
    let store = format!("embedded:{}", directory.path().display());
    let mut serve = blocking(&["serve", "--listen", "127.0.0.1:0", "--store", &store]);
    let mut serve = serve.stdout(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    let mut says = BufReader::new(serve.stdout.take().unwrap());
    while !said.contains("curl") {
        assert_ne!(says.read_line(&mut said).unwrap(), 0, "{said}");
    }
    kill_process(Pid::from_child(&serve), Signal::TERM).unwrap();
    ends_with(&mut serve, Some(0));
}

/// Waits for the end of a process, or kills it.
fn ends_with(process: &mut Child, code: Option<i32>) {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(status) = process.try_wait().unwrap() {
            assert_eq!(status.code(), code);
            return;
        }
        if Instant::now() > deadline {
            process.kill().unwrap();
            process.wait().unwrap();
            panic!("it does not end");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

//! The `latchgate` program.

fn main() -> std::process::ExitCode {
    latchgate::cli::main()
}

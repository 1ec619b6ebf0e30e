//! `rsrun`: starts a program as many ranks. Everything is in the library, so that tests can reach it.

fn main() -> std::process::ExitCode {
    rsrun::main()
}

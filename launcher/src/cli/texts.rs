//! Completions for shells and the manual page, made from the table of options.

use super::{ConfigOptions, Options, SimulateOptions, placement::TopoOptions, usage};
use crate::exit::{ExitCode, Failure};
use clap::{Arg, Command, CommandFactory, ValueHint};
use clap_complete::Shell;
use std::ffi::OsString;

/// The whole command line, the program and the other commands included, as only these texts need it.
pub(super) fn whole() -> Command {
    let program = Arg::new("program").value_name("PROGRAM").value_hint(ValueHint::CommandName);
    let arguments = Arg::new("arguments").value_name("ARGUMENTS").num_args(0..).trailing_var_arg(true);
    Options::command()
        .arg(program.help("The program, by its path or by its name in PATH on every host"))
        .arg(arguments.help("Its arguments").value_hint(ValueHint::AnyPath))
        .subcommand(ConfigOptions::command().name("config"))
        .subcommand(TopoOptions::command().name("topo"))
        .subcommand(SimulateOptions::command().name("simulate"))
        .subcommand(
            Command::new("completions").about("Prints completions for a shell").arg(
                Arg::new("shell")
                    .value_name("SHELL")
                    .required(true)
                    .value_parser(["bash", "zsh", "fish"])
                    .help("Which shell"),
            ),
        )
        .subcommand(Command::new("man").about("Prints the manual page"))
}

/// `rsrun completions SHELL`.
pub(super) fn completions(words: &[OsString]) -> Result<String, Failure> {
    let shell = match words {
        [shell] if shell == "bash" => Shell::Bash,
        [shell] if shell == "zsh" => Shell::Zsh,
        [shell] if shell == "fish" => Shell::Fish,
        _ => return Err(usage("rsrun completions bash|zsh|fish: which shell?")),
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut whole(), "rsrun", &mut text);
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// `rsrun man`.
pub(super) fn manual(words: &[OsString]) -> Result<String, Failure> {
    if let [extra, ..] = words {
        return Err(usage(format!(
            "rsrun man: unexpected `{}` (to run a program called man: rsrun -- man)",
            extra.display()
        )));
    }
    let mut text = Vec::new();
    clap_mangen::Man::new(whole())
        .render(&mut text)
        .map_err(|error| Failure::new(ExitCode::Internal, format!("the manual page: {error}")))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

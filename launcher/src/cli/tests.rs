use super::*;

fn words(text: &[&str]) -> Vec<OsString> {
    text.iter().map(OsString::from).collect()
}

fn run(text: &[&str]) -> Run {
    match parse(words(text)) {
        Ok(Invocation::Run(run)) => *run,
        other => panic!("{text:?}: {other:?}"),
    }
}

fn error(text: &[&str]) -> String {
    let failure = parse(words(text)).unwrap_err();
    assert_eq!(failure.exit, ExitCode::Usage);
    failure.message
}

#[test]
fn long_options_may_have_one_dash() {
    for number in [["-n", "4"], ["-np", "4"], ["--np", "4"]] {
        assert_eq!(run(&[number[0], number[1], "app"]).options.app.ranks, Some(4));
    }
    assert_eq!(run(&["-n4", "app"]).options.app.ranks, Some(4));
    assert_eq!(run(&["-np=4", "app"]).options.app.ranks, Some(4));
    for glued in ["-np4", "--np4"] {
        assert_eq!(run(&[glued, "app"]).options.app.ranks, Some(4));
    }
    assert_eq!(run(&["-ppn2", "app"]).options.placement.npernode, Some(2));
    for file in ["-hostfile", "--hostfile", "-machinefile", "--machinefile"] {
        assert_eq!(run(&[file, "h", "app"]).options.hostfile, Some(PathBuf::from("h")));
    }
    for host in ["-host", "--host", "-H"] {
        assert_eq!(run(&[host, "a:2,b", "app"]).options.host, ["a:2,b"]);
    }
    let all = run(&["-wdir", "/d", "-timeout", "5", "-oversubscribe", "-launch-agent", "x y", "-tag", "app"]);
    assert_eq!(all.options.app.wdir, Some(PathBuf::from("/d")));
    assert_eq!(all.options.timeout, Some(Duration::from_secs(5)));
    assert!(all.options.oversubscribe && all.options.tag == Some(Tag::Rank));
    assert_eq!(all.settings[0].key, "launch.agent");
}

#[test]
fn options_of_one_letter_may_have_two_dashes() {
    for (number, rest) in [("--n", &["4", "app"][..]), ("--c", &["4", "app"]), ("--n=4", &["app"])] {
        let job = run(&[&[number], rest].concat());
        assert_eq!((job.options.app.ranks, job.apps[0].program.clone()), (Some(4), "app".into()), "{number}");
    }
    assert_eq!(run(&["--H", "a:2", "app"]).options.host, ["a:2"]);
    assert_eq!(run(&["--x", "A=1", "app"]).options.app.export, ["A=1"]);
    assert!(error(&["--z", "app"]).contains("unexpected argument"));
}

#[test]
fn options_stop_at_the_program() {
    let job = run(&["-n", "2", "app", "-n", "3", "--help", "-x", "--"]);
    assert_eq!(job.options.app.ranks, Some(2));
    assert_eq!(job.apps[0].program, "app");
    assert_eq!(job.apps[0].arguments, words(&["-n", "3", "--help", "-x", "--"]));
    let job = run(&["-n", "2", "--", "-odd-name", "--", "x"]);
    assert_eq!((job.apps[0].program.clone(), job.apps[0].arguments.clone()), ("-odd-name".into(), words(&["--", "x"])));
    let job = run(&["--mca", "a", "b", "config"]);
    assert_eq!(job.apps[0].program, "config");
}

#[test]
fn settings_keep_the_order_in_which_they_were_given() {
    let job = run(&["--set", "a.b=1=2", "-mca", "c", "3", "-set", "a.b= 4", "app"]);
    let shown: Vec<_> = job.settings.iter().map(|s| (s.option.as_str(), s.key.as_str(), s.value.as_str())).collect();
    assert_eq!(shown, [("--set", "a.b", "1=2"), ("--mca", "c", "3"), ("--set", "a.b", " 4")]);
    assert!(error(&["--set", "a", "app"]).contains("key=value"));
}

#[test]
fn wrong_lines_say_what_is_wrong_in_one_line() {
    assert!(error(&["-n", "0", "app"]).contains("at least one rank"));
    assert!(error(&["-n", "-1", "app"]).contains("-1"));
    assert!(error(&["-n", "two", "app"]).contains("two"));
    assert!(error(&["-n", "2"]).contains("which program"));
    assert!(error(&[]).contains("which program"));
    assert!(error(&["-hostfil", "x", "app"]).contains("hostfil"));
    assert!(error(&["--hosts", "x", "app"]).contains("--host"));
    assert!(error(&["-mca", "a"]).contains("mca"));
    assert!(error(&["-hostfile", "a", "-host", "b", "app"]).contains("cannot be used with"));
    assert!(error(&["--timeout", "soon", "app"]).contains("soon"));
    assert!(error(&["config", "eager.limit", "--json"]).contains("--json before the keys"));
    assert!(error(&["config", "--al"]).contains("see rsrun config --help"));
    assert!(error(&["--tee", "app"]).contains("not provided: --output-dir <DIR>"));
    for text in [&["--np", "0", "a"][..], &["--no-such", "a"]] {
        assert!(!error(text).contains('\n'), "{}", error(text));
    }
}

#[test]
fn options_of_other_launchers_are_refused_with_what_to_do_here() {
    for (line, says) in [
        (&["--bind-to-core", "-n", "2", "app"][..], "--bind-to-core is an option of Open MPI"),
        (&["-n", "2", "-bynode", "app"], "--map-by node"),
        (&["-rf", "file", "app"], "--map-by rankfile:FILE"),
        (&["-perhost", "2", "app"], "-ppn N"),
        (&["-N", "2", "app"], "-ppn N"),
        (&["--display-map", "app"], "--report map"),
        (&["-f", "hosts", "app"], "-hostfile FILE"),
        (&["-hosts", "a,b", "app"], "-host a,b"),
        (&["-nooversubscribe", "app"], "nothing: that is the default"),
        (&["-genv", "A", "1", "app"], "-x NAME=VALUE"),
        (&["-l", "app"], "--tag"),
        (&["--stats", "s.json", "app"], "write --stats=s.json"),
        (&["--tag", "--output-dir", "out", "app"], "add --tee"),
        (&["-output-filename", "out", "app"], "--output-dir DIR"),
    ] {
        assert!(error(line).contains(says), "{line:?}: {}", error(line));
    }
}

#[test]
fn a_colon_between_two_programs_is_not_passed_to_the_first_one() {
    let job = run(&["-n", "1", "app", ":", "-n", "2", "other"]);
    assert_eq!((job.apps[0].arguments.len(), job.apps[1].program.to_str()), (0, Some("other")));
    assert_eq!(run(&["-n", "1", "--", "app", ":", "x"]).apps[0].arguments, words(&[":", "x"]));
    assert_eq!(run(&["app", "a:b", "::"]).apps[0].arguments, words(&["a:b", "::"]));
}

#[test]
fn help_shows_examples_and_every_exit_code() {
    for flag in ["--help", "-h", "-help"] {
        let Ok(Invocation::Text(text)) = parse(words(&[flag])) else { panic!("{flag}") };
        assert!(text.contains("rsrun -n 4 ./app") && text.contains("--launch-agent"), "{text}");
        for (code, meaning) in crate::exit::TABLE {
            // Without what wrapping does to the lines.
            let start: String = meaning.chars().take(30).collect();
            assert!(text.contains(&format!("  {code:<8} {start}")), "{code} is not in --help");
        }
    }
    let Ok(Invocation::Text(text)) = parse(words(&["--version"])) else { panic!() };
    assert_eq!(text.trim(), concat!("rsrun ", env!("CARGO_PKG_VERSION")));
}

#[test]
fn every_sub_command_is_in_the_usage_and_known_to_the_shells() {
    let Ok(Invocation::Text(help)) = parse(words(&["--help"])) else { panic!() };
    let known = texts::whole();
    let names: Vec<&str> = known.get_subcommands().map(clap::Command::get_name).collect();
    assert_eq!(names, ["config", "topo", "simulate", "completions", "man"]);
    for name in names {
        assert!(help.contains(&format!("\n       rsrun {name}")), "{name} is not in the usage: {help}");
    }
}

#[test]
fn config_is_a_sub_command_only_as_the_first_word() {
    let Ok(Invocation::Config(options)) = parse(words(&["config", "-json", "--set", "a=b"])) else { panic!() };
    assert!(options.json && !options.changed && options.keys.is_empty());
    assert_eq!(options.settings[0].key, "a");
    let Ok(Invocation::Config(options)) = parse(words(&["config", "-json", "eager.limit", "wait.policy"])) else {
        panic!()
    };
    assert_eq!(options.keys, ["eager.limit", "wait.policy"]);
}

#[test]
fn exported_variables_keep_every_byte() {
    use std::os::unix::ffi::OsStringExt;
    let odd = OsString::from_vec(b"A=x=\n\xff\"$".to_vec());
    let Exports { variables, missing } =
        exports(&[odd, "B=".into(), "NO_SUCH_VARIABLE_HERE".into(), "PATH".into()]).unwrap();
    assert_eq!(variables[0], (b"A".to_vec(), b"x=\n\xff\"$".to_vec()));
    assert_eq!(variables[1], (b"B".to_vec(), vec![]));
    assert_eq!(variables[2].0, b"PATH");
    assert_eq!(missing, ["NO_SUCH_VARIABLE_HERE"]);
    assert!(exports(&["=x".into()]).is_err() && exports(&["RSRUN_X=1".into()]).is_err());
}

proptest::proptest! {
    #[test]
    fn any_words_give_something_to_do_or_an_error_of_one_line(
        words in proptest::collection::vec(
            proptest::sample::select(
                &["-n", "-np", "-np4", "-n4", "--np=", "-ppn", "2", "-x", "A=1", "=", "-host", "a:2,b", "-H", "--tag", "-tag=host", "--set",
                  "k=v", "-mca", "--", ":", "app", "-", "--wrap", "'", "-stdin", "all", "--map-by", "ppr:1:node", "-bind-to", "core:x",
                  "config", "topo", "--timeout", "5min", "-é", "--é=é", "", "-rf", "-l", "--timeout=1e999"][..]
            ),
            0..8
        )
    ) {
        match parse(self::words(&words)) {
            Ok(Invocation::Run(run)) => {
                proptest::prop_assert!(!run.apps.is_empty() || run.options.placement.dry_run);
            }
            Ok(_) => {}
            Err(failure) => {
                proptest::prop_assert!(!failure.message.is_empty() && !failure.message.contains('\n'), "{}", failure.message);
            }
        }
    }
}

use super::*;
use proptest::prelude::*;

fn names(text: &str) -> Vec<(String, Option<u32>)> {
    parse("hosts", text.as_bytes()).unwrap().into_iter().map(|h| (h.name, h.slots)).collect()
}

fn error(text: &str) -> String {
    parse("hosts", text.as_bytes()).unwrap_err().to_string()
}

#[test]
fn slots_may_be_written_in_both_ways_and_left_out() {
    let expected = [("a".to_string(), Some(4)), ("b".to_string(), Some(2)), ("c".to_string(), None)];
    assert_eq!(names("a slots=4\nb:2\nc\n"), expected);
}

#[test]
fn line_ends_comments_blank_lines_and_a_byte_order_mark_do_not_matter() {
    let plain = names("a slots=4\nb:2\nc\n");
    assert_eq!(names("a slots=4\r\nb:2\r\nc\r\n"), plain);
    assert_eq!(names("a slots=4\nb:2\nc"), plain);
    assert_eq!(names("\u{feff}a slots=4\n\n  \t\nb:2 # two\n#x\nc#1\n".replace("c#1", "c #1").as_str()), plain);
    assert_eq!(names("a \t  slots=4\n   b:2\nc   "), plain);
}

#[test]
fn the_first_field_is_a_host_whatever_it_is_called() {
    for name in ["slots", "cpu", "count", "rank", "port", "group", "user"] {
        assert_eq!(names(&format!("{name} slots=2")), [(name.to_string(), Some(2))]);
    }
}

#[test]
fn user_port_and_group_are_read() {
    let hosts = parse("hosts", b"ann@n1:2222 slots=2 group=rack1\nn2 user=bob port=23").unwrap();
    assert_eq!(hosts[0].user.as_deref(), Some("ann"));
    assert_eq!((hosts[0].port, hosts[0].slots), (Some(2222), Some(2)));
    assert_eq!(hosts[0].group.as_deref(), Some("rack1"));
    assert_eq!(hosts[0].place, "hosts:1");
    assert_eq!((hosts[1].user.as_deref(), hosts[1].port), (Some("bob"), Some(23)));
}

#[test]
fn files_are_relative_to_the_hostfile() {
    let hosts = parse("/lab/hosts", b"a identity=id known_hosts=../known\nb identity=/keys/id\n").unwrap();
    assert_eq!(hosts[0].identity, Some("/lab/id".into()));
    assert_eq!(hosts[0].known_hosts, Some("/lab/../known".into()));
    assert_eq!(hosts[1].identity, Some("/keys/id".into()));
    assert_eq!(parse("hosts", b"a identity=id").unwrap()[0].identity, Some("id".into()));
    assert!(error("a identity=").starts_with("hosts:1:12: "));
}

#[test]
fn an_error_shows_file_line_column_and_the_offending_text() {
    assert_eq!(
        error("a slots=4\nb sluts=4\n"),
        "hosts:2:3: unknown word `sluts=`: known are slots=N, group=NAME, user=NAME, port=N, identity=FILE and known_hosts=FILE\n  2 | b sluts=4\n    |   ^^^^^^^"
    );
    assert!(error("a 8").starts_with("hosts:1:3: unexpected `8`: did you mean slots=8?"));
    assert!(error("a slots=four").starts_with("hosts:1:9: "));
    assert!(error("a slots=").starts_with("hosts:1:9: "));
    assert!(error("a slots=-1").starts_with("hosts:1:9: "));
    assert!(error("a:2 slots=2").contains("twice"));
    assert!(error("ä slots=2").starts_with("hosts:1:1: "));
    assert!(error("# only a comment\n").contains("names no host"));
}

#[test]
fn what_stands_in_hostfiles_of_other_launchers_is_answered_with_what_to_write() {
    for (text, place, says) in [
        ("a cpu=4", "1:3", "did you mean slots=4?"),
        ("a slots=2 max_slots=4", "1:11", "unless --oversubscribe"),
        ("a max-slots=4", "1:3", "unless --oversubscribe"),
        ("a username=ann", "1:3", "user=ann"),
        ("a binding=rr", "1:3", "--bind-to"),
        ("a slots = 4", "1:3", "no blanks around `=`: write slots=VALUE"),
        ("// a comment", "1:1", "comments begin with #"),
        ("a\n/* a comment */", "2:1", "comments begin with #"),
        ("a#comment", "1:1", "a comment needs a blank before its #"),
        ("a slots=1#comment", "1:9", "a comment needs a blank before its #"),
        ("a \\\n slots=2", "1:3", "does not go on in the next one"),
        ("a\\\n slots=2", "1:1", "does not go on in the next one"),
        ("^a", "1:1", "leaving its line out"),
        ("+n0", "1:1", "rankfiles"),
        ("a,b", "1:1", "one host a line"),
    ] {
        let message = error(text);
        assert!(message.starts_with(&format!("hosts:{place}: ")) && message.contains(says), "{text:?}: {message}");
    }
}

#[test]
fn an_error_is_short_and_harmless_whatever_stands_in_the_line() {
    let long = "x".repeat(100_000);
    for line in [
        long.clone(),
        format!("a slots={}", "9".repeat(100_000)),
        format!("a {long}=1"),
        format!("a group={long} {long}"),
        format!("{}a", "[1]".repeat(30_000)),
        format!("a{}", "[1]".repeat(30_000)),
        "a\0b slots=1".to_string(),
        "a group=\x1b[2J".to_string(),
        "\x1b[2J".to_string(),
        "n[1-99999999]".to_string(),
        "n[1-300][1-300]".to_string(),
        "n[00000000000000000000-1]".to_string(),
    ] {
        let message = error(&line);
        assert!(message.starts_with("hosts:1:"), "{message}");
        assert!(message.chars().count() < 800, "{} characters", message.chars().count());
        assert!(!message.chars().any(|c| c.is_control() && c != '\n'), "{message:?}");
        // The mark stands under what is wrong.
        let lines: Vec<&str> = message.lines().collect();
        assert!(lines[2].trim_end().chars().count() <= lines[1].chars().count(), "{message}");
    }
}

#[test]
fn more_hosts_than_any_machine_could_hold_are_refused() {
    let text: String = (0..100).map(|line| format!("n{line}x[1-65000]\n")).collect();
    assert!(error(&text).contains("more than 262144 hosts"));
}

#[test]
fn a_host_on_two_lines_is_an_error_that_names_both() {
    let message = error("a slots=2\nb\nA slots=1\n");
    assert!(message.contains("hosts:3") && message.contains("line 1"), "{message}");
    assert!(error("n[1-3]\nn2").contains("n2"));
    assert_eq!(parse("hosts", b"a port=22\na port=23").unwrap().len(), 2);
}

#[test]
fn names_are_never_cut_so_that_two_hosts_do_not_become_one() {
    let text = "a.x.org\na.y.org slots=2\na slots=3\nnode-1\nnode-1-ib\nnode_1\nbob@a port=22\n";
    let hosts: Vec<String> = names(text).into_iter().map(|(name, _)| name).collect();
    assert_eq!(hosts, ["a.x.org", "a.y.org", "a", "node-1", "node-1-ib", "node_1", "a"]);
}

#[test]
fn zero_slots_are_legal() {
    assert_eq!(names("a slots=0\nb:0"), [("a".to_string(), Some(0)), ("b".to_string(), Some(0))]);
}

#[test]
fn bytes_that_are_no_text_are_refused_with_their_place() {
    let error = parse("hosts", b"a\nb \xff\n").unwrap_err().to_string();
    assert!(error.starts_with("hosts:2:3: this is not UTF-8"), "{error}");
}

#[test]
fn a_directory_and_a_missing_file_are_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let error = read(directory.path()).unwrap_err().to_string();
    assert!(error.contains("directory") && error.contains(&directory.path().display().to_string()), "{error}");
    let error = read(&directory.path().join("none")).unwrap_err().to_string();
    assert!(error.contains("none") && error.contains("No such file"), "{error}");
}

#[test]
fn ten_thousand_lines_are_read() {
    let text: String = (0..10_000).map(|i| format!("node{i} slots=96\n")).collect();
    assert_eq!(names(&text).len(), 10_000);
}

#[test]
fn every_sample_in_the_hostfiles_folder_parses() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hostfiles");
    let mut count = 0;
    for file in std::fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|e| e == "hosts") {
            read(&path).unwrap_or_else(|e| panic!("{e}"));
            count += 1;
        }
    }
    assert!(count >= 4, "{count} samples in {}", folder.display());
}

proptest! {
    #[test]
    fn any_bytes_give_hosts_or_an_error_and_never_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Err(error) = parse("hosts", &bytes) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn any_words_of_the_language_give_hosts_or_an_error(
        words in proptest::collection::vec("[a-c@:\\[\\]0-9,=#%. \t\r\n-]{0,6}|slots=|group=|port=|user=", 0..20)
    ) {
        let _ = parse("hosts", words.concat().as_bytes()).map_err(|e| e.to_string());
    }

    #[test]
    fn what_is_written_is_read_back(
        hosts in proptest::collection::btree_map("[a-z][a-z0-9.-]{0,12}", (proptest::option::of(0_u32..1000), proptest::option::of("[a-z0-9]{1,8}")), 1..20),
        crlf in any::<bool>(), last in any::<bool>()
    ) {
        let end = if crlf { "\r\n" } else { "\n" };
        let lines: Vec<String> = hosts.iter().map(|(name, (slots, group))| {
            let slots = slots.map_or(String::new(), |s| format!(" slots={s}"));
            let group = group.as_ref().map_or(String::new(), |g| format!(" group={g}"));
            format!("{name}{slots}{group}")
        }).collect();
        let text = lines.join(end) + if last { end } else { "" };
        let parsed = parse("hosts", text.as_bytes()).unwrap();
        prop_assert_eq!(parsed.len(), hosts.len());
        for (host, (name, (slots, group))) in parsed.iter().zip(&hosts) {
            prop_assert_eq!((&host.name, &host.slots, &host.group), (name, slots, group));
        }
    }
}

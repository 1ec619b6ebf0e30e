use super::*;
use crate::groups::{Groups, Link};
use crate::select::{AUTO, Request, Why, select};
use proptest::prelude::*;

fn rule() -> Rule {
    Rule {
        collective: Collective::AllReduce,
        ranks: 96,
        groups: vec![12],
        bytes: 0..=65_536,
        operator: OperatorClass::Commutative,
        algorithm: "two_hop_ring".into(),
        segment: Some(16_384),
        chunk: Some(262_144),
        leaders: 2,
        predicted: Some(0.125),
        measured: Some(0.25),
    }
}

fn request(groups: &Groups, elements: usize, commutative: bool) -> Request<'_> {
    Request { collective: Collective::AllReduce, groups, elements, element_bytes: 4, commutative }
}

#[test]
fn what_was_written_is_read_again_also_in_one_line() {
    let network = Network { between: Model { latency: 1.5e-4, ..Model::ASSUMED }, ..Network::ASSUMED };
    let table = Table { network, memory: Some(2e10), rules: vec![rule(), Rule { bytes: 65_537..=1 << 30, ..rule() }] };
    let text = table.to_string();
    assert_eq!(Table::parse(&text), Ok(table.clone()));
    assert_eq!(Table::parse(&text.replace('\n', ";")), Ok(table.clone()));
    let network = Network { across: Some(Model { per_byte: 2.5e-10, ..Model::ASSUMED }), ..network };
    let three = Table { network, rules: vec![Rule { groups: vec![12, 3], ..rule() }], ..table };
    assert_eq!(Table::parse(&three.to_string()), Ok(three));
    assert_eq!(Table::parse("\n# nothing\n"), Ok(Table::default()));
    let open =
        Rule { bytes: 65_537..=usize::MAX, segment: None, chunk: None, predicted: None, measured: None, ..rule() };
    let text = open.to_string();
    assert!(text.contains("bytes=65537.. ") && text.ends_with("segment=auto chunk=auto leaders=2"), "{text}");
    assert_eq!(Table::parse(&text).unwrap().rules, [open]);
}

#[test]
fn an_entry_that_is_none_is_named_with_what_is_wrong() {
    let rule = rule().to_string();
    for (line, says) in [
        ("rules x".to_string(), "'rules' is not network, memory or rule"),
        ("network outside latency=1".into(), "network inside, network between or network across"),
        ("network inside latency=1 overhead=1 byte=1".into(), "reduced= is missing"),
        ("memory bandwidth=-1".into(), "a number, 0 or more"),
        ("memory bandwidth=1 speed=2".into(), "2 words where 1 have a meaning"),
        (rule.replace("all_reduce", "all_reduced"), "there is no collective 'all_reduced'"),
        (rule.replace("two_hop_ring", "two_hop_rings"), "all_reduce has no algorithm 'two_hop_rings'"),
        (rule.replace("bytes=0..65536", "bytes=9..8"), "write 0..65536"),
        (rule.replace("groups=12", "groups=12,"), "whole numbers above 0, separated by commas"),
        (rule.replace("leaders=2", "leaders=0"), "a whole number above 0"),
        (rule.replace("segment=16384", "segment=0"), "segment=0: a whole number above 0, or auto"),
        (rule.replace("bytes=0..65536", "bytes=..65536"), "65537.. without an end"),
        (rule.replace(" measured", " mesured"), "10 words where 9 have a meaning"),
        (rule.replace("leaders=2", "leaders=2 leaders=2"), "leaders= is there twice"),
        (rule.replace("=commutative", "=all"), "any or commutative"),
    ] {
        let error = Table::parse(&format!("# first\n{line}")).unwrap_err();
        assert_eq!(error.entry, 2);
        assert!(error.reason.contains(says), "{line}: {error}");
    }
}

#[test]
fn a_rule_decides_where_it_fits_and_the_formulas_everywhere_else() {
    let table = Table { rules: vec![rule()], ..Table::default() };
    let groups = Groups::every(96, 8);
    let choice = select(&request(&groups, 16_384, true), AUTO, &table).unwrap();
    assert_eq!((choice.algorithm.name, choice.why), ("two_hop_ring", Why::Rule { measured: Some(0.25) }));
    let parameters = choice.parameters;
    assert_eq!((parameters.segment, parameters.chunk, parameters.leaders), (4096, 65_536, 2));
    for other in [request(&groups, 16_385, true), request(&groups, 16_384, false)] {
        assert_eq!(select(&other, AUTO, &table).unwrap().why, Why::Formula);
    }
    let racks = groups.clone().within((0..96).map(|rank| rank / 32), Link::Between).unwrap();
    let three = Table { rules: vec![Rule { groups: vec![12, 3], ..rule() }], ..Table::default() };
    assert_eq!(select(&request(&racks, 16, true), AUTO, &three).unwrap().why, Why::Rule { measured: Some(0.25) });
    assert_eq!(select(&request(&groups, 16, true), AUTO, &three).unwrap().why, Why::Formula);
    let others = [Groups::every(96, 4), Groups::every(88, 8), racks];
    for groups in &others {
        assert_eq!(select(&request(groups, 16, true), AUTO, &table).unwrap().why, Why::Formula);
    }
    assert_eq!(select(&request(&groups, 16, true), "ring", &table).unwrap().why, Why::Forced);
}

#[test]
fn a_rule_whose_algorithm_is_not_legal_for_the_call_is_passed_over() {
    // By mistake, or by hand: a ring needs an operator that commutes.
    let wrong = Rule { operator: OperatorClass::Any, ..rule() };
    let table = Table { rules: vec![wrong, Rule { algorithm: "binomial".into(), ..rule() }], ..Table::default() };
    let groups = Groups::every(96, 8);
    let choice = select(&request(&groups, 16, false), AUTO, &table).unwrap();
    assert_eq!(choice.why, Why::Formula);
    assert!(choice.algorithm.keeps_rank_order(&groups));
}

#[test]
fn the_first_rule_that_is_legal_decides_in_memory_and_by_messages() {
    let one_host = |algorithm: &str, operator: OperatorClass| Rule {
        ranks: 4,
        groups: vec![1],
        algorithm: algorithm.into(),
        operator,
        ..rule()
    };
    let rules = vec![one_host("shared", OperatorClass::Any), one_host("ring", OperatorClass::Commutative)];
    let table = Table { rules, ..Table::default() };
    let chosen = |groups: &Groups, commutative: bool, table: &Table| {
        let choice = select(&request(groups, 16, commutative), AUTO, table).unwrap();
        (choice.algorithm.name, choice.why)
    };
    let ruled = Why::Rule { measured: Some(0.25) };
    let (memory, messages) = (Groups::together(4).with_memory_of_all(), Groups::together(4));
    assert_eq!(chosen(&memory, true, &table), ("shared", ruled));
    assert_eq!(chosen(&messages, true, &table), ("ring", ruled));
    assert_eq!(chosen(&messages, false, &table).1, Why::Formula);
    // Without a rule that may be used memory is taken, and a rule may say that it is not.
    assert_eq!(chosen(&memory, true, &Table::default()), ("shared", Why::Memory));
    let only_ring = Table { rules: table.rules[1..].to_vec(), ..table };
    assert_eq!(chosen(&memory, true, &only_ring), ("ring", ruled));
    assert_eq!(chosen(&memory, false, &only_ring), ("shared", Why::Memory));
}

#[test]
fn pieces_that_a_rule_leaves_open_are_those_of_the_formula_for_each_call() {
    let open = Rule { bytes: 65_537..=usize::MAX, segment: None, chunk: None, measured: None, ..rule() };
    let table = Table { rules: vec![rule(), open], ..Table::default() };
    let groups = Groups::every(96, 8);
    let row = Collective::AllReduce.algorithms().iter().find(|row| row.name == "two_hop_ring").unwrap();
    for elements in [1 << 20, 1 << 24] {
        let choice = select(&request(&groups, elements, true), AUTO, &table).unwrap();
        let formula = row.parameters(&table.network, &groups, elements, 4);
        assert_eq!((choice.algorithm.name, choice.why), ("two_hop_ring", Why::Rule { measured: None }));
        assert_eq!((choice.parameters.segment, choice.parameters.chunk), (formula.segment, formula.chunk));
        assert_eq!(choice.parameters.leaders, 2);
    }
}

proptest! {
    #[test]
    fn any_text_is_a_table_or_an_error_and_a_table_is_its_own_text(text in "[ -~\n]{0,200}") {
        if let Ok(table) = Table::parse(&text) {
            prop_assert_eq!(Table::parse(&table.to_string()), Ok(table));
        }
    }
}

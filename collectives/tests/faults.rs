//! The checker finds what is wrong with schedules: each test breaks one thing.

use spmd_collectives::algorithms::{Collective, Parameters, Shape};
use spmd_collectives::check::{self, Fault, Task};
use spmd_collectives::groups::Groups;
use spmd_collectives::schedule::{Action, Buffer, Lengths, Schedule, Side, Slice};

const ALL_REDUCE_OF_TWO: Task =
    Task { collective: Collective::AllReduce, size: 2, elements: 1, root: 0, rank_order: true };

fn scratch(offset: usize, length: usize) -> Slice {
    Slice { buffer: Buffer::Scratch, offset, length }
}

fn in_place(rank: usize, steps: &[(Action, &[u32])]) -> Schedule {
    let lengths = Lengths { input: 0, output: 1, scratch: 1 };
    Schedule::new(rank, 2, lengths, steps.iter().map(|(action, after)| (*action, after.to_vec()))).unwrap()
}

/// The exchange of two ranks that the tests break; operands in rank order.
fn exchange(rank: usize) -> Vec<(Action, &'static [u32])> {
    let peer = 1 - rank;
    let side = if peer < rank { Side::Left } else { Side::Right };
    vec![
        (Action::Send { peer, from: Slice::output(0, 1) }, &[]),
        (Action::Receive { peer, into: scratch(0, 1) }, &[]),
        (Action::Reduce { operand: scratch(0, 1), into: Slice::output(0, 1), side }, &[0, 1]),
    ]
}

fn proof(task: &Task, first: &[(Action, &[u32])], second: &[(Action, &[u32])]) -> Result<check::Report, Fault> {
    check::schedules(task, &[in_place(0, first), in_place(1, second)])
}

#[test]
fn the_exchange_is_right_before_it_is_broken() {
    let report = proof(&ALL_REDUCE_OF_TWO, &exchange(0), &exchange(1)).unwrap();
    assert_eq!(report, check::Report { messages: 2, elements: 2, rounds: 1, scratch: 1 });
}

#[test]
fn two_ranks_that_send_before_they_receive_wait_for_ever() {
    let blocking = |rank| {
        let mut steps = exchange(rank);
        steps[1].1 = &[0];
        steps
    };
    let fault = proof(&ALL_REDUCE_OF_TWO, &blocking(0), &blocking(1)).unwrap_err();
    assert!(matches!(fault, Fault::Deadlock { rank: 0, step: 0, .. }), "{fault}");
    // One of them may.
    assert!(proof(&ALL_REDUCE_OF_TWO, &blocking(0), &exchange(1)).is_ok());
}

#[test]
fn a_slice_written_while_it_is_sent_is_a_race() {
    let mut steps = exchange(1);
    steps[2].1 = &[1];
    let fault = proof(&ALL_REDUCE_OF_TWO, &exchange(0), &steps).unwrap_err();
    assert_eq!(fault, Fault::Race { rank: 1, first: 0, second: 2 });
}

#[test]
fn a_slice_read_while_it_is_received_is_a_race() {
    let mut steps = exchange(0);
    steps[2].1 = &[0];
    let fault = proof(&ALL_REDUCE_OF_TWO, &steps, &exchange(1)).unwrap_err();
    assert_eq!(fault, Fault::Race { rank: 0, first: 1, second: 2 });
}

#[test]
fn two_receives_into_one_place_are_a_race_even_in_another_order_of_lengths() {
    let lengths = Lengths { input: 0, output: 0, scratch: 4 };
    let steps = [
        (Action::Receive { peer: 1, into: scratch(0, 4) }, vec![]),
        (Action::Receive { peer: 1, into: scratch(3, 1) }, vec![]),
    ];
    let first = Schedule::new(0, 2, lengths, steps).unwrap();
    let second = Schedule::new(1, 2, lengths, []).unwrap();
    let barrier = Task { collective: Collective::Barrier, elements: 0, ..ALL_REDUCE_OF_TWO };
    let fault = check::schedules(&barrier, &[first, second]).unwrap_err();
    assert_eq!(fault, Fault::Race { rank: 0, first: 0, second: 1 });
}

#[test]
fn operands_out_of_rank_order_are_found() {
    let swapped = |rank| {
        let mut steps = exchange(rank);
        if let Action::Reduce { side, .. } = &mut steps[2].0 {
            *side = if *side == Side::Left { Side::Right } else { Side::Left };
        }
        steps
    };
    let fault = proof(&ALL_REDUCE_OF_TWO, &swapped(0), &swapped(1)).unwrap_err();
    assert!(matches!(fault, Fault::WrongResult { rank: 0, what: "was not combined in rank order", .. }), "{fault}");
    let any_order = Task { rank_order: false, ..ALL_REDUCE_OF_TWO };
    assert!(proof(&any_order, &swapped(0), &swapped(1)).is_ok());
    // One rank only: the sums are a + b and b + a, which is not the same expression.
    let fault = proof(&any_order, &exchange(0), &swapped(1)).unwrap_err();
    assert!(matches!(fault, Fault::WrongResult { rank: 1, element: 0, .. }), "{fault}");
}

#[test]
fn a_contribution_combined_twice_is_found() {
    let twice = |rank: usize| {
        let mut steps = exchange(rank);
        let again = (steps[2].0, &[2u32] as &[u32]);
        steps.push(again);
        steps
    };
    let fault = proof(&ALL_REDUCE_OF_TWO, &twice(0), &twice(1)).unwrap_err();
    assert!(matches!(fault, Fault::WrongOperands { step: 3, what: "the contribution of a rank twice", .. }), "{fault}");
}

#[test]
fn a_contribution_left_out_is_found() {
    let fault = proof(&ALL_REDUCE_OF_TWO, &exchange(0)[..2], &exchange(1)).unwrap_err();
    assert!(matches!(fault, Fault::WrongResult { rank: 0, what: "lacks the contribution of some rank", .. }));
}

#[test]
fn an_output_never_written_is_found() {
    let broadcast = Task { collective: Collective::Broadcast, ..ALL_REDUCE_OF_TWO };
    let fault = proof(&broadcast, &[], &[]).unwrap_err();
    assert_eq!(fault, Fault::WrongResult { rank: 1, element: 0, what: "was never written" });
}

#[test]
fn scratch_read_before_it_is_written_is_found() {
    let mut steps = exchange(0);
    steps[0].0 = Action::Send { peer: 1, from: scratch(0, 1) };
    steps[1] = (Action::Receive { peer: 1, into: scratch(0, 1) }, &[0]);
    let fault = proof(&ALL_REDUCE_OF_TWO, &steps, &exchange(1)).unwrap_err();
    assert!(matches!(fault, Fault::Undefined { rank: 0, step: 0, .. }), "{fault}");
}

#[test]
fn both_ends_of_a_message_agree_on_its_length() {
    let mut steps = exchange(0);
    steps[0].0 = Action::Send { peer: 1, from: Slice::output(0, 0) };
    let fault = proof(&ALL_REDUCE_OF_TWO, &steps, &exchange(1)).unwrap_err();
    assert_eq!(fault, Fault::MessageLength { source_rank: 0, destination: 1, label: 0, sent: 0, received: 1 });
}

#[test]
fn a_message_that_nobody_receives_is_found() {
    let mut steps = exchange(0);
    steps.push((Action::Send { peer: 1, from: Slice::EMPTY }, &[]));
    let fault = proof(&ALL_REDUCE_OF_TWO, &steps, &exchange(1)).unwrap_err();
    assert!(matches!(fault, Fault::Deadlock { rank: 0, step: 3, .. }), "{fault}");
}

#[test]
fn a_barrier_that_one_may_leave_early_is_found() {
    let task = Task { collective: Collective::Barrier, size: 4, elements: 0, root: 0, rank_order: true };
    let dissemination = &Collective::Barrier.algorithms()[1];
    let groups = Groups::apart(4);
    let mut schedules: Vec<Schedule> = (0..4)
        .map(|rank| Shape { rank, size: 4, root: 0, elements: 0, groups: &groups, parameters: Parameters::WHOLE })
        .map(|shape| dissemination.schedule(&shape).unwrap())
        .collect();
    assert!(check::schedules(&task, &schedules).is_ok());
    // Rank 1 tells rank 3 before it has heard of rank 0, and rank 3 hears of rank 0 by nobody else.
    let hasty = schedules[1].steps().iter().map(|step| (step.action, vec![]));
    schedules[1] = Schedule::new(1, 4, Lengths::default(), hasty).unwrap();
    let fault = check::schedules(&task, &schedules).unwrap_err();
    assert_eq!(fault, Fault::LeavesEarly { rank: 3, missing: 0 });
}

#[test]
fn a_schedule_with_the_wrong_buffers_or_at_the_wrong_place_is_found() {
    let right = |rank| in_place(rank, &exchange(rank));
    let task = Task { elements: 2, ..ALL_REDUCE_OF_TWO };
    let fault = check::schedules(&task, &[right(0), right(1)]).unwrap_err();
    assert!(matches!(fault, Fault::BufferLength { rank: 0, expected: 2, found: 1, .. }), "{fault}");
    let fault = check::schedules(&ALL_REDUCE_OF_TWO, &[right(1), right(0)]).unwrap_err();
    assert_eq!(fault, Fault::Place { rank: 0, given: 1, size: 2 });
    let fault = check::schedules(&ALL_REDUCE_OF_TWO, &[right(0)]).unwrap_err();
    assert_eq!(fault, Fault::Count { schedules: 1, size: 2 });
}

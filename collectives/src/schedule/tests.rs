//! What makes a list of steps a schedule.

use super::*;

const LENGTHS: Lengths = Lengths { input: 4, output: 4, scratch: 4 };

fn of(steps: &[(Action, &[u32])]) -> Result<Schedule, ScheduleError> {
    Schedule::new(0, 3, LENGTHS, steps.iter().map(|(action, after)| (*action, after.to_vec())))
}

fn scratch(offset: usize, length: usize) -> Slice {
    Slice { buffer: Buffer::Scratch, offset, length }
}

#[test]
fn messages_are_numbered_by_pair_and_direction() {
    let empty = Slice::EMPTY;
    let schedule = of(&[
        (Action::Send { peer: 1, from: empty }, &[]),
        (Action::Receive { peer: 1, into: empty }, &[]),
        (Action::Send { peer: 2, from: empty }, &[]),
        (Action::Send { peer: 1, from: empty }, &[0]),
        (Action::Receive { peer: 1, into: empty }, &[1, 2]),
    ])
    .unwrap();
    let labels: Vec<u32> = schedule.steps().iter().map(|step| step.label).collect();
    assert_eq!(labels, [0, 0, 0, 1, 1]);
    assert_eq!(schedule.dependencies(4), [1, 2]);
    assert_eq!(schedule.dependencies(0), [] as [u32; 0]);
}

#[test]
fn a_slice_outside_its_buffer_is_refused() {
    for slice in [Slice::input(2, 3), Slice::input(5, 0), Slice::input(usize::MAX, 2)] {
        let step = (Action::Send { peer: 1, from: slice }, &[] as &[u32]);
        assert_eq!(of(&[step]), Err(ScheduleError::OutOfBounds { step: 0, slice, available: 4 }));
    }
}

#[test]
fn the_input_is_never_written() {
    let action = Action::Receive { peer: 1, into: Slice::input(0, 1) };
    assert_eq!(of(&[(action, &[])]), Err(ScheduleError::WritesInput { step: 0, action }));
}

#[test]
fn a_dependency_points_backwards() {
    let action = Action::Send { peer: 1, from: Slice::input(0, 1) };
    let circle = of(&[(action, &[1]), (action, &[0])]);
    assert_eq!(circle, Err(ScheduleError::Dependency { step: 0, dependency: 1 }));
    assert_eq!(of(&[(action, &[0])]), Err(ScheduleError::Dependency { step: 0, dependency: 0 }));
}

#[test]
fn a_rank_sends_neither_to_itself_nor_to_nobody() {
    for peer in [0, 3] {
        let step = (Action::Send { peer, from: Slice::input(0, 1) }, &[] as &[u32]);
        assert_eq!(of(&[step]), Err(ScheduleError::Peer { step: 0, peer, rank: 0, size: 3 }));
    }
}

#[test]
fn two_slices_of_a_step_have_one_length_and_no_common_element() {
    let action = Action::Copy { from: Slice::input(0, 2), into: scratch(0, 3) };
    assert_eq!(of(&[(action, &[])]), Err(ScheduleError::Lengths { step: 0, action }));
    let action = Action::Reduce { operand: scratch(0, 2), into: scratch(1, 2), side: Side::Left };
    assert_eq!(of(&[(action, &[])]), Err(ScheduleError::Overlap { step: 0, action }));
}

#[test]
fn a_schedule_prints_one_line_a_step() {
    let schedule = of(&[
        (Action::Receive { peer: 1, into: scratch(0, 2) }, &[]),
        (Action::Reduce { operand: scratch(0, 2), into: Slice::output(1, 2), side: Side::Left }, &[0]),
    ])
    .unwrap();
    let text = schedule.to_string();
    assert!(text.contains("0  receive scratch[0..2] from rank 1, message 0\n"), "{text}");
    assert!(text.contains("1  reduce output[1..3] = scratch[0..2] op output[1..3], after [0]\n"), "{text}");
}

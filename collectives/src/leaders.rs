//! Which ranks of a group lead: those nearest to its network devices, each to another one as far as there are several.
//!
//! What leaves a group leaves it through its leaders, so that each should have a device of its own, and be near it. Pure:
//! knows of devices no more than a name and a distance, which are the same on all ranks.

use crate::groups::Groups;
use spmd::bootstrap::node::SeenDevice;
use std::collections::HashMap;

/// Has the members of each group lead in turn by their devices: the nearest rank of each device first, the nearest of all in
/// front; then the next nearest of each. Ranks whose device is not known come last, and where none is known the first ranks
/// lead, as everywhere. `device` has the host of a rank and its device.
#[must_use]
pub fn by_device<'d>(groups: Groups, device: impl Fn(usize) -> (usize, Option<&'d SeenDevice>)) -> Groups {
    groups.led_by(|members| {
        // The nearest first, of those as near the first ranks.
        let mut nearest: Vec<usize> = (0..members.len()).collect();
        let far = |member: usize| device(member).1.map_or(u32::MAX, |device| device.far);
        nearest.sort_by_key(|position| far(members[*position]));
        let mut turns: HashMap<(usize, Option<&str>), usize> = HashMap::new();
        let mut keys = vec![(usize::MAX, u32::MAX); members.len()];
        for position in nearest {
            let (host, device) = device(members[position]);
            let turn = turns.entry((host, device.map(|device| &device.name[..]))).or_insert(0);
            keys[position] = (if device.is_some() { *turn } else { usize::MAX }, far(members[position]));
            *turn += 1;
        }
        keys
    })
}

/// Who leads the first group and why, in words; empty where no device is known.
pub(crate) fn explain<'d>(groups: &Groups, leaders: usize, device: impl Fn(usize) -> Option<&'d SeenDevice>) -> String {
    let members = groups.members(0);
    let leaders = leaders.clamp(1, groups.widths().0.max(1));
    let leaders = (0..leaders).map(|turn| members[groups.lead(0, turn)]);
    if (0..groups.size()).all(|rank| device(rank).is_none()) {
        return String::new();
    }
    let of = |rank: usize| match device(rank) {
        Some(device) => format!("rank {rank} ({}: {})", device.name, device.distance),
        None => format!("rank {rank} (device not known)"),
    };
    let leaders: Vec<String> = leaders.map(of).collect();
    format!("the ranks nearest to network devices lead, in the first group {}", leaders.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(name: &str, far: u32) -> Option<SeenDevice> {
        Some(SeenDevice { name: name.into(), distance: format!("{far} away"), far })
    }

    /// Who leads in turn, in a group of all ranks or in groups of so many.
    fn leaders(width: usize, devices: &[Option<SeenDevice>]) -> Vec<Vec<usize>> {
        let groups = by_device(Groups::every(devices.len(), width), |rank| (rank / width, devices[rank].as_ref()));
        let of = |group: usize| {
            let members = groups.members(group);
            (0..members.len()).map(|turn| members[groups.lead(group, turn)]).collect()
        };
        (0..groups.count()).map(of).collect()
    }

    #[test]
    fn the_rank_nearest_to_a_device_leads_and_then_the_nearest_to_another() {
        let (near, far, other) = (seen("mlx5_0", 0), seen("mlx5_0", 2), seen("mlx5_1", 1));
        let found = leaders(4, &[far.clone(), near.clone(), near, other]);
        assert_eq!(found, [[1, 3, 2, 0]]);
        assert_eq!(leaders(2, &[far.clone(), far, seen("a", 1), seen("a", 0)]), [[0, 1], [3, 2]]);
    }

    #[test]
    fn devices_lead_in_turn_and_the_first_ranks_of_those_that_are_as_near() {
        let devices: Vec<_> = (0..8).map(|rank| seen(if rank < 4 { "mlx5_0" } else { "mlx5_1" }, 0)).collect();
        assert_eq!(leaders(8, &devices), [[0, 4, 1, 5, 2, 6, 3, 7]]);
    }

    #[test]
    fn who_leads_is_said_with_the_device_and_how_far_it_is() {
        let devices = [seen("mlx5_0", 2), seen("mlx5_0", 0), seen("mlx5_1", 1)];
        let groups = by_device(Groups::together(3), |_| (0, None));
        assert_eq!(explain(&groups, 1, |_| None), "");
        let groups = by_device(groups, |rank| (0, devices[rank].as_ref()));
        assert_eq!(
            explain(&groups, 2, |rank| devices[rank].as_ref()),
            "the ranks nearest to network devices lead, in the first group rank 1 (mlx5_0: 0 away), rank 2 (mlx5_1: 1 away)"
        );
    }

    #[test]
    fn without_devices_the_first_ranks_lead_and_those_without_one_come_last() {
        assert_eq!(leaders(3, &[None, None, None]), [[0, 1, 2]]);
        let groups = by_device(Groups::every(4, 2), |rank| (rank, None));
        assert_eq!(groups, Groups::every(4, 2));
        assert_eq!(leaders(3, &[None, seen("a", 3), seen("a", 0)]), [[2, 1, 0]]);
    }

    #[test]
    fn devices_of_the_same_name_on_two_hosts_of_a_group_are_two() {
        let device = seen("mlx5_0", 0);
        let groups = by_device(Groups::together(4), |rank| (rank / 2, device.as_ref()));
        assert_eq!([0, 1].map(|turn| groups.lead(0, turn)), [0, 2]);
    }
}

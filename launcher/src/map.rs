//! Which rank runs on which host.
//!
//! Pure: slots in, hosts of ranks out. Hosts are filled slot by slot in the order of the hostfile.

/// More ranks were asked for than fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotEnoughSlots {
    /// How many ranks were asked for.
    pub ranks: u32,
    /// How many slots there are.
    pub slots: u32,
}

/// The host of every rank, ranks `0..n`, for hosts with these slots.
///
/// `ranks`: `None` for one rank a slot. With `oversubscribe` a second and further round over the slots takes the ranks
/// that do not fit; ranks of one host are consecutive within a round only.
pub fn map(slots: &[u32], ranks: Option<u32>, oversubscribe: bool) -> Result<Vec<u32>, NotEnoughSlots> {
    let total = slots.iter().fold(0_u32, |sum, s| sum.saturating_add(*s));
    let ranks = ranks.unwrap_or(total);
    if total == 0 || ranks == 0 || (ranks > total && !oversubscribe) {
        return Err(NotEnoughSlots { ranks, slots: total });
    }
    let round = slots.iter().zip(0_u32..).flat_map(|(slots, host)| (0..*slots).map(move |_| host));
    Ok(round.cycle().take(ranks as usize).collect())
}

/// How many of the hosts, in order, can be needed for `ranks` ranks. A host whose slots are not known yet (`None`) has
/// at least one. Hosts behind them need not be contacted.
pub fn needed(slots: &[Option<u32>], ranks: Option<u32>) -> usize {
    let Some(ranks) = ranks else { return slots.len() };
    let mut total = 0_u32;
    for (index, slots) in slots.iter().enumerate() {
        total = total.saturating_add(slots.unwrap_or(1));
        if total >= ranks {
            return index + 1;
        }
    }
    slots.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn hosts_are_filled_slot_by_slot_in_order() {
        assert_eq!(map(&[2, 0, 3], Some(4), false).unwrap(), [0, 0, 2, 2]);
        assert_eq!(map(&[2, 1], None, false).unwrap(), [0, 0, 1]);
    }

    #[test]
    fn more_ranks_than_slots_are_refused_unless_allowed() {
        assert_eq!(map(&[2, 1], Some(4), false), Err(NotEnoughSlots { ranks: 4, slots: 3 }));
        assert_eq!(map(&[2, 1], Some(5), true).unwrap(), [0, 0, 1, 0, 0]);
        assert_eq!(map(&[0, 0], Some(1), true), Err(NotEnoughSlots { ranks: 1, slots: 0 }));
        assert_eq!(map(&[0], None, false), Err(NotEnoughSlots { ranks: 0, slots: 0 }));
    }

    #[test]
    fn hosts_behind_the_last_needed_one_are_not_contacted() {
        assert_eq!(needed(&[Some(2), Some(2), Some(2)], Some(3)), 2);
        assert_eq!(needed(&[None, None, Some(4)], Some(2)), 2);
        assert_eq!(needed(&[None, None], None), 2);
        assert_eq!(needed(&[Some(1)], Some(9)), 1);
    }

    proptest! {
        #[test]
        fn no_host_gets_more_than_its_slots_unless_oversubscribed(
            slots in proptest::collection::vec(0_u32..9, 1..9), ranks in 1_u32..60
        ) {
            if let Ok(hosts) = map(&slots, Some(ranks), false) {
                prop_assert_eq!(hosts.len(), ranks as usize);
                for (host, slots) in slots.iter().enumerate() {
                    prop_assert!(hosts.iter().filter(|h| **h as usize == host).count() <= *slots as usize);
                }
                prop_assert!(hosts.is_sorted());
                let first = needed(&slots.iter().map(|s| Some(*s)).collect::<Vec<_>>(), Some(ranks));
                prop_assert!(hosts.iter().all(|h| (*h as usize) < first));
            }
        }
    }
}

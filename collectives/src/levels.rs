//! The groups that the configuration names, and the larger ones around them: from words to [`Groups`].
//!
//! Pure: knows of hosts no more than which ranks they have, and of what the hostfile says nothing but names.

use crate::groups::{Groups, Link};
use spmd::config::keys;

/// What the configuration says about groups: see the keys `collectives.groups` and `collectives.group_size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels<'a> {
    /// Words from the inner level to the outer, with commas between.
    pub words: &'a str,
    /// Every so many neighbouring ranks instead; 0: none.
    pub width: usize,
}

/// Levels that there cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LevelsError {
    /// The level `group` is empty.
    #[error(
        "{} = {words}: the job has several hosts, and none of them has a group, so that there is no such level: write \
         group=NAME behind the hosts of a rack in the hostfile, or name a number of hosts, as host,8",
        keys::COLLECTIVES_GROUPS.name
    )]
    NoGroup {
        /// The levels.
        words: String,
    },
    /// One level and several.
    #[error(
        "{} = {words} and {} = {width}: one says several levels, the other one only: write {width},{words}, or leave one out",
        keys::COLLECTIVES_GROUPS.name,
        keys::COLLECTIVES_GROUP_SIZE.name
    )]
    Both {
        /// The levels.
        words: String,
        /// The other key.
        width: usize,
    },
}

impl Levels<'_> {
    /// Whether a job on such hosts has these levels; `groups` has what the hostfile says of each host.
    ///
    /// # Errors
    /// [`LevelsError`] when a level has no meaning there.
    pub fn check<'g>(&self, groups: impl IntoIterator<Item = Option<&'g str>>) -> Result<(), LevelsError> {
        let words = || self.words.to_string();
        if self.width > 0 {
            return match self.words.contains(',') {
                true => Err(LevelsError::Both { words: words(), width: self.width }),
                false => Ok(()),
            };
        }
        let groups: Vec<Option<&str>> = groups.into_iter().collect();
        let is_named = self.words.split(',').any(|word| word == "group");
        match is_named && groups.len() > 1 && groups.iter().all(Option::is_none) {
            true => Err(LevelsError::NoGroup { words: words() }),
            false => Ok(()),
        }
    }

    /// Divides ranks: `hosts` has the host of each, in order, and `group` says what the hostfile says of a host.
    ///
    /// A host without a group is a group of its own. A number puts so many neighbours of the level before it together, or
    /// ranks if it is the first, as far as they are in the same group of the next level that has a name.
    #[must_use]
    pub fn divide<'g>(&self, hosts: &[usize], group: impl Fn(usize) -> Option<&'g str>) -> Groups {
        if self.width > 0 {
            return Groups::every(hosts.len(), self.width);
        }
        let words: Vec<&str> = self.words.split(',').collect();
        if words == ["none"] {
            // Still near each other or not, which is what messages cost.
            let is_one = hosts.iter().all(|host| Some(host) == hosts.first());
            return if is_one { Groups::together(hosts.len()) } else { Groups::apart(hosts.len()) };
        }
        // What a rank has in common with the others of a level that has a name; nothing is in common where there is none.
        let named = |word: Option<&&str>, host: usize| match word {
            Some(&"host") => (None, Some(host)),
            Some(_) => (group(host), group(host).is_none().then_some(host)),
            None => (None, None),
        };
        let is_number = |word: &&&str| word.bytes().all(|byte| byte.is_ascii_digit());
        let innermost = words.iter().position(|word| *word == "host").unwrap_or(0);
        let mut groups: Option<Groups> = None;
        for (level, word) in words.iter().enumerate() {
            let around = words[level..].iter().find(|word| !is_number(word));
            let mut label: Vec<_> = hosts.iter().map(|host| (named(around, *host), 0)).collect();
            if let (Ok(width), true) = (word.parse::<usize>(), is_number(&word)) {
                let units = groups.as_ref().map_or_else(|| (0..hosts.len()).collect(), outermost);
                count(&mut label, &units, width);
            }
            groups = Some(match groups {
                None => Groups::by_label(label),
                Some(groups) => {
                    let link = match level {
                        level if level <= innermost => Link::Inside,
                        level if level == innermost + 1 => Link::Between,
                        _ => Link::Across,
                    };
                    groups.within(label, link).unwrap_or_else(|split| unreachable!("{split}"))
                }
            });
        }
        groups.unwrap_or_else(|| Groups::apart(hosts.len()))
    }
}

/// The outermost group of each rank.
fn outermost(groups: &Groups) -> Vec<usize> {
    groups
        .levels()
        .fold((0..groups.size()).collect(), |ranks, level| ranks.into_iter().map(|one| level.of(one)).collect())
}

/// Adds to the label of each rank the number of the `width` units that its unit is one of, counted among those with the same
/// label.
fn count<L: Clone + Eq + std::hash::Hash>(labels: &mut [(L, usize)], units: &[usize], width: usize) {
    let mut numbers = std::collections::HashMap::new();
    let mut met = std::collections::HashMap::new();
    for (label, unit) in labels.iter_mut().zip(units) {
        let number = *numbers.entry(*unit).or_insert_with(|| {
            let before = met.entry(label.0.clone()).or_insert(0);
            *before += 1;
            *before - 1
        });
        label.1 = number / width.max(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Five hosts of four, four, two, four and four ranks; two of them are in rack a, two in b, one in none.
    const HOSTS: [usize; 18] = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4];
    const RACKS: [Option<&str>; 5] = [Some("a"), Some("a"), Some("b"), Some("b"), None];

    fn divided(words: &str) -> Groups {
        let levels = Levels { words, width: 0 };
        levels.check(RACKS).unwrap();
        levels.divide(&HOSTS, |host| RACKS[host])
    }

    fn links(groups: &Groups) -> Vec<Link> {
        groups.levels().map(Groups::link).collect()
    }

    #[test]
    fn one_level_is_what_it_always_was() {
        assert_eq!(divided("host"), Groups::by_label(HOSTS));
        assert_eq!(divided("group").counts(), [3]);
        assert_eq!(divided("none"), Groups::apart(18));
        assert_eq!(Levels { words: "host", width: 5 }.divide(&HOSTS, |_| None), Groups::every(18, 5));
        assert_eq!(divided("5"), Groups::every(18, 5));
        assert_eq!(Levels { words: "none", width: 0 }.divide(&[7, 7], |_| None), Groups::together(2));
    }

    #[test]
    fn hosts_are_in_racks() {
        let groups = divided("host,group");
        assert_eq!((groups.counts(), links(&groups)), (vec![5, 3], vec![Link::Inside, Link::Between]));
        assert_eq!(groups.outermost_link(), Link::Across);
        let racks = groups.above().unwrap();
        assert_eq!((racks.members(0), racks.members(2)), (&[0, 1][..], &[4][..]));
    }

    #[test]
    fn a_number_counts_neighbours_within_the_next_level_that_has_a_name() {
        let pairs = divided("3,host");
        assert_eq!((pairs.counts(), links(&pairs)), (vec![9, 5], vec![Link::Inside, Link::Inside]));
        assert_eq!((pairs.members(0), pairs.members(1), pairs.members(2)), (&[0, 1, 2][..], &[3][..], &[4, 5, 6][..]));
        assert_eq!(pairs.outermost_link(), Link::Between);
        let hosts = divided("host,2");
        assert_eq!((hosts.counts(), links(&hosts)), (vec![5, 3], vec![Link::Inside, Link::Between]));
        let all = divided("2,host,2,group");
        assert_eq!(all.counts(), [9, 5, 3, 3]);
        assert_eq!(links(&all), [Link::Inside, Link::Inside, Link::Between, Link::Across]);
        assert_eq!(divided("2,3,host").counts(), [9, 5, 5]);
    }

    #[test]
    fn a_number_counts_neighbours_of_hosts_whose_ranks_are_no_runs() {
        // Ranks dealt out to two hosts.
        let groups = Levels { words: "2,host", width: 0 }.divide(&[0, 1, 0, 1, 0, 1, 0, 1], |_| None);
        assert_eq!(groups.counts(), [4, 2]);
        assert_eq!((groups.members(0), groups.members(1)), (&[0, 2][..], &[1, 3][..]));
        assert!(!groups.keep_rank_order());
    }

    #[test]
    fn racks_of_one_communicator_that_has_one_of_them_are_no_level() {
        let groups = Levels { words: "host,group", width: 0 }.divide(&[0, 0, 1, 1], |host| RACKS[host]);
        assert_eq!(groups, Groups::every(4, 2));
        let alone = Levels { words: "host,group", width: 0 }.divide(&[3, 3], |host| RACKS[host]);
        assert_eq!(alone, Groups::together(2));
    }

    #[test]
    fn levels_that_a_job_does_not_have_are_refused_with_the_way_out() {
        let check = |words, width, groups: &[Option<&str>]| {
            Levels { words, width }.check(groups.iter().copied()).map_err(|error| error.to_string())
        };
        let error = check("host,group", 0, &[None, None]).unwrap_err();
        assert!(error.starts_with("collectives.groups = host,group: ") && error.contains("group=NAME"), "{error}");
        let error = check("host,group", 4, &RACKS).unwrap_err();
        assert!(error.contains("collectives.group_size = 4") && error.contains("write 4,host,group"), "{error}");
        for (words, width, groups) in [
            ("host,group", 0, &RACKS[..1]),
            ("host,group", 0, &[None][..]),
            ("host", 0, &[None, None]),
            ("group", 4, &RACKS),
        ] {
            assert_eq!(check(words, width, groups), Ok(()));
        }
    }
}

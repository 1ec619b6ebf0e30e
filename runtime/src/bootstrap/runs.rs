//! A list of numbers, on the wire as runs of equal ones: which host each rank is on takes as many bytes as there are
//! hosts, not ranks.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

/// More numbers than any job has ranks: a garbled frame must not make us allocate more.
const MOST: usize = 1 << 22;

#[derive(Serialize, Deserialize)]
struct Run {
    value: u32,
    length: u32,
}

pub(super) fn serialize<S: Serializer>(numbers: &[u32], serializer: S) -> Result<S::Ok, S::Error> {
    let runs = numbers
        .chunk_by(|a, b| a == b)
        .filter_map(|equal| Some(Run { value: *equal.first()?, length: u32::try_from(equal.len()).ok()? }));
    runs.collect::<Vec<_>>().serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u32>, D::Error> {
    let mut numbers = Vec::new();
    for Run { value, length } in Vec::<Run>::deserialize(deserializer)? {
        let length = length as usize;
        if length > MOST - numbers.len() {
            return Err(D::Error::custom(format!("more than {MOST} ranks")));
        }
        numbers.resize(numbers.len() + length, value);
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::super::frame;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct List(#[serde(with = "super")] Vec<u32>);

    #[test]
    fn numbers_come_back_as_they_were_and_equal_ones_cost_nothing() {
        for numbers in [vec![], vec![3], vec![0, 0, 1, 1, 0], (0..100).collect()] {
            let list = List(numbers);
            assert_eq!(frame::decode::<List>(&frame::encode(&list).unwrap()).unwrap(), list);
        }
        assert!(frame::encode(&List(vec![7; 100_000])).unwrap().len() < 10);
    }

    #[test]
    fn a_run_that_claims_more_than_any_job_has_is_refused() {
        let bytes = frame::encode(&vec![(1_u32, 4_000_000_u32), (2, 4_000_000)]).unwrap();
        assert!(frame::decode::<List>(&bytes).is_err());
    }
}

//! The counters that the driver of a port keeps under `/sys`, as what they have risen by. Reads files; no device.
//!
//! Which there are is found by listing the folder: names differ between vendors. Those that are known get a meaning (mlx5:
//! `drivers/infiniband/hw/mlx5/counters.c`, rxe: `rxe_hw_counters.c` of the Linux kernel), others keep their name alone.
//! They belong to the port: whatever else uses it is in them, too.

use crate::statistics::{DeviceCounter, Meaning};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// A file of the folder that is a setting: for how long the driver gives the same numbers again.
const LIFESPAN: &str = "lifespan";

/// The counters of a port since some moment.
#[derive(Debug)]
pub(crate) struct PortCounters {
    folder: PathBuf,
    begun: BTreeMap<String, u64>,
}

impl PortCounters {
    /// From now on. `port` is its folder, as `/sys/class/infiniband/mlx5_0/ports/1`.
    pub(crate) fn of(port: &Path) -> Self {
        let folder = port.join("hw_counters");
        let begun = read(&folder);
        PortCounters { folder, begun }
    }

    /// What has been counted since, by name.
    pub(crate) fn since(&self) -> Vec<DeviceCounter> {
        let since = |(name, now): (String, u64)| {
            let begun = self.begun.get(&name).copied().unwrap_or(0);
            // A counter that somebody has reset begins again.
            let count = now.checked_sub(begun).unwrap_or(now);
            DeviceCounter { meaning: meaning(&name), name, count }
        };
        read(&self.folder).into_iter().map(since).collect()
    }
}

/// Every file of the folder that holds a number.
fn read(folder: &Path) -> BTreeMap<String, u64> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let number = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok().filter(|name| name != LIFESPAN)?;
        let number = fs::read_to_string(entry.path()).ok()?.trim().parse().ok()?;
        Some((name, number))
    };
    entries.filter_map(number).collect()
}

/// What a counter says, where it is known.
fn meaning(name: &str) -> Option<Meaning> {
    // In switchdev mode mlx5 puts this in front.
    Some(match name.strip_prefix("vport_").unwrap_or(name) {
        "sent_pkts" => Meaning::Sent,
        "rcvd_pkts" => Meaning::Received,
        "rnr_nak_retry_err" | "out_of_buffer" | "rcvd_rnr_err" | "send_rnr_err" => Meaning::NotReady,
        "completer_retry_err" | "roce_adp_retrans" => Meaning::Resent,
        "out_of_sequence" | "packet_seq_err" | "implied_nak_seq_err" | "out_of_seq_request" | "rcvd_seq_err" => {
            Meaning::OutOfSequence
        }
        "local_ack_timeout_err" | "roce_adp_retrans_to" => Meaning::TimedOut,
        "duplicate_request" => Meaning::Duplicate,
        "req_transport_retries_exceeded"
        | "req_rnr_retries_exceeded"
        | "retry_exceeded_err"
        | "retry_rnr_exceeded_err" => Meaning::GaveUp,
        "rp_cnp_handled"
        | "rp_cnp_ignored"
        | "np_cnp_sent"
        | "np_ecn_marked_roce_packets"
        | "roce_slow_restart"
        | "roce_slow_restart_cnps"
        | "roce_slow_restart_trans" => Meaning::Congestion,
        "link_downed" => Meaning::LinkDown,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(files: &[(&str, &str)]) -> tempfile::TempDir {
        let port = tempfile::tempdir().unwrap();
        let folder = port.path().join("hw_counters");
        fs::create_dir(&folder).unwrap();
        files.iter().for_each(|(name, text)| fs::write(folder.join(name), text).unwrap());
        port
    }

    fn risen(before: &[(&str, &str)], after: &[(&str, &str)]) -> Vec<(String, u64)> {
        let port = port(before);
        let counters = PortCounters::of(port.path());
        after.iter().for_each(|(name, text)| fs::write(port.path().join("hw_counters").join(name), text).unwrap());
        counters.since().into_iter().map(|counter| (counter.name, counter.count)).collect()
    }

    #[test]
    fn names_of_any_vendor_are_found_and_only_the_rise_counts() {
        let of = |found: Vec<(String, u64)>| found.iter().map(|(name, n)| format!("{name} {n}")).collect::<Vec<_>>();
        let rxe = risen(&[("sent_pkts", "10\n"), ("rcvd_rnr_err", "0\n")], &[("sent_pkts", "25\n")]);
        assert_eq!(of(rxe), ["rcvd_rnr_err 0", "sent_pkts 15"]);
        let other = risen(&[("tx_pkts_v9", "7"), ("lifespan", "10")], &[("tx_pkts_v9", "9"), ("appeared", "4")]);
        assert_eq!(of(other), ["appeared 4", "tx_pkts_v9 2"], "what is a setting is no counter");
    }

    #[test]
    fn a_counter_that_was_reset_begins_again_and_what_is_no_number_is_left_out() {
        assert_eq!(risen(&[("rx", "100")], &[("rx", "3")]), [("rx".to_string(), 3)]);
        assert_eq!(risen(&[("rx", "N/A")], &[("ry", "-1")]), []);
        assert!(PortCounters::of(Path::new("/no/such/port")).since().is_empty());
    }

    #[test]
    fn the_same_trouble_has_one_meaning_whatever_the_vendor_calls_it() {
        for (mlx5, rxe) in [
            ("rnr_nak_retry_err", "rcvd_rnr_err"),
            ("out_of_sequence", "out_of_seq_request"),
            ("packet_seq_err", "rcvd_seq_err"),
            ("req_transport_retries_exceeded", "retry_exceeded_err"),
            ("duplicate_request", "duplicate_request"),
            ("vport_out_of_buffer", "send_rnr_err"),
        ] {
            assert!(meaning(mlx5).is_some());
            assert_eq!(meaning(mlx5), meaning(rxe), "{mlx5}, {rxe}");
        }
        assert_eq!(meaning("tx_pkts_v9"), None);
    }
}

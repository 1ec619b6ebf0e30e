//! The network that is simulated: hosts with a link each, racks of hosts, and the memory of a host.

use crate::price::{Model, Network};

/// A two-level fat tree of hosts. Rates are in bytes a second, times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fabric {
    /// Of each host's link, each way.
    pub rate: f64,
    /// What of it is left where messages of several ranks wait for the link: at most as much.
    pub crowded: f64,
    /// From one host to another; a message that leaves its rack takes twice as long.
    pub latency: f64,
    /// What a message between hosts costs at each end whatever its length.
    pub overhead: f64,
    /// Bytes that wait at a port of a switch before packets are lost; infinite where the network loses none.
    pub queue: f64,
    /// Bytes that pass a link at once after it has been idle: what a token bucket holds.
    pub burst: f64,
    /// Seconds after which a sender that hears nothing sends the end of a message again at the latest; 0: it does not wait.
    pub timeout: f64,
    /// Hosts of a rack and how much faster their links together are than the rack's own; `None`: one switch.
    pub racks: Option<Racks>,
    /// What the ranks of a host together read from and write to memory.
    pub memory: f64,
    /// What leaves before it is asked for.
    pub eager: Eager,
    /// All hosts are emulated on one machine: what they share instead of having memory of their own.
    pub machine: Option<Machine>,
}

/// A machine on which all hosts are emulated, with fewer processors than ranks: what its processors are busy with, in
/// seconds of one processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// How many processors.
    pub processors: usize,
    /// A message within a host, both ends together.
    pub inside: Work,
    /// A message between hosts, both ends and the emulated links together.
    pub between: Work,
    /// To reduce a byte.
    pub reduced: f64,
    /// To give a processor to another rank, with what it takes now and then to let one sleep and wake it.
    pub turn: f64,
}

/// Messages of up to so many bytes leave at once; larger ones are announced, and leave when they are asked for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Eager {
    /// Within a host.
    pub inside: f64,
    /// Between hosts.
    pub between: f64,
}

impl Eager {
    /// Every message.
    pub const ALL: Eager = Eager { inside: f64::INFINITY, between: f64::INFINITY };
}

/// What a message costs processors.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Whatever its length.
    pub message: f64,
    /// For each byte.
    pub byte: f64,
}

/// Racks, joined by links that may be slower than those of their hosts together.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Racks {
    /// Hosts of each.
    pub hosts: usize,
    /// The links of a rack's hosts together in parts of the rack's own link: 1 where it is as fast.
    pub oversubscription: f64,
}

/// Bytes of memory traffic for a byte: into shared memory and out of it, each a read and a write.
pub(super) const INSIDE: f64 = 4.0;
/// Between a buffer and a socket or a card's buffer, at one end.
pub(super) const AT_END: f64 = 2.0;
/// Two operands are read, one is written.
pub(super) const REDUCED: f64 = 3.0;
/// A read and a write.
pub(super) const COPIED: f64 = 2.0;

/// A message inside a host, apart from its bytes: see [`Network::ASSUMED`].
pub(super) const INSIDE_LATENCY: f64 = Network::ASSUMED.inside.latency + Network::ASSUMED.inside.overhead;

impl Fabric {
    /// Ethernet of 10 Gbit/s, 20 us, one switch that loses nothing, 20 GB/s of memory traffic a host; large messages are those
    /// of the default configuration. Assumed.
    pub const ASSUMED: Fabric = Fabric {
        rate: 1.25e9,
        crowded: 1.25e9,
        latency: 2e-5,
        overhead: 2e-6,
        queue: f64::INFINITY,
        burst: 0.0,
        timeout: 0.0,
        racks: None,
        memory: 2e10,
        // `eager.limit`, `tcp.eager_limit`.
        eager: Eager { inside: 8192.0, between: 65_536.0 },
        machine: None,
    };

    /// Bytes a second of a rack's link, each way.
    #[allow(clippy::cast_precision_loss)] // Hosts of a rack.
    pub(super) fn rack_rate(&self) -> f64 {
        self.racks.map_or(f64::INFINITY, |racks| self.rate * racks.hosts as f64 / racks.oversubscription)
    }

    /// The constants of the cost formulas on this fabric with so many hosts, by which chunks are cut.
    #[must_use]
    #[allow(clippy::cast_precision_loss)] // Numbers of hosts.
    pub fn network(&self, hosts: usize) -> Network {
        let network = self.two_levels(hosts);
        let across =
            Model { latency: 2.0 * network.between.latency, per_byte: 1.0 / self.rack_rate(), ..network.between };
        Network { across: self.racks.map(|_| across), ..network }
    }

    #[allow(clippy::cast_precision_loss)] // Numbers of hosts.
    fn two_levels(&self, hosts: usize) -> Network {
        let between = |reduced: f64, overhead: f64| Model {
            latency: self.latency,
            overhead: self.overhead + overhead,
            per_byte: 1.0 / self.rate,
            per_byte_reduced: reduced,
        };
        match self.machine {
            None => {
                let traffic = 1.0 / self.memory;
                let (per_byte, per_byte_reduced) = (INSIDE * traffic, REDUCED * traffic);
                let inside = Model { per_byte, per_byte_reduced, ..Network::ASSUMED.inside };
                Network { inside, between: between(per_byte_reduced, 0.0), across: None }
            }
            Some(machine) => {
                // What all hosts do at once, its processors do one after the other.
                let sharing = hosts as f64 / machine.processors.max(1) as f64;
                let inside = Model {
                    latency: 0.0,
                    overhead: (machine.inside.message + machine.turn) * sharing,
                    per_byte: machine.inside.byte * sharing,
                    per_byte_reduced: machine.reduced * sharing,
                };
                Network {
                    inside,
                    between: between(machine.reduced * sharing, (machine.between.message + machine.turn) * sharing),
                    across: None,
                }
            }
        }
    }
}

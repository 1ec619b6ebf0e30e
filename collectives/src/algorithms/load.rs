//! The numbers of the cost formulas: what a call is to the model of a network. Knows no algorithm; what several of their
//! formulas have in common is here.

use crate::groups::Groups;
use crate::price::{Model, Network};

/// The numbers of the cost formulas, for two ranks or more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Load<'a> {
    /// Ranks (p).
    pub(super) size: f64,
    /// Rounds of doubling that reach all ranks: ⌈log2 p⌉.
    pub(super) rounds: f64,
    /// Whether the ranks are a power of two.
    pub(super) power_of_two: bool,
    /// Bytes of one rank (n).
    pub(super) bytes: f64,
    /// Groups (N).
    pub(super) groups: f64,
    /// Ranks of the largest group (g).
    pub(super) width: f64,
    /// Whether groups are runs of ranks.
    pub(super) runs: bool,
    /// What messages and reductions inside a group cost.
    pub(super) inside: Model,
    /// The outermost groups, where there is a level above the groups.
    pub(super) racks: Option<Racks>,
    /// Of all levels.
    divided: &'a Groups,
    network: &'a Network,
}

/// The outermost groups, where they are groups of groups.
#[derive(Clone, Copy, Debug)]
pub(super) struct Racks {
    /// How many.
    pub(super) count: f64,
    /// Ranks of the largest one.
    pub(super) width: f64,
    /// Messages between the groups of one.
    pub(super) between: Model,
    /// Time of a byte in the port that one shares.
    pub(super) port: f64,
}

impl<'a> Load<'a> {
    // Sizes are far below the 2^53 where this would round.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn new(network: &'a Network, groups: &'a Groups, bytes: usize) -> Load<'a> {
        let size = groups.size();
        let racks = groups.levels().skip(1).last().map(|racks| Racks {
            count: racks.count() as f64,
            width: groups.levels().map(|level| level.widths().1 as f64).product::<f64>().min(size as f64),
            between: network.model(racks.link()),
            port: network.across.map_or(0.0, |across| across.per_byte),
        });
        Load {
            size: size as f64,
            rounds: f64::from(size.next_power_of_two().trailing_zeros()),
            power_of_two: size.is_power_of_two(),
            bytes: bytes as f64,
            groups: groups.count() as f64,
            width: groups.widths().1 as f64,
            runs: groups.keep_rank_order(),
            inside: network.inside,
            racks,
            divided: groups,
            network,
        }
    }

    /// The same for the leaders of the outermost groups alone.
    pub(super) fn of_leaders(&self) -> Load<'a> {
        self.of_ranks(self.racks.map_or(self.groups, |racks| racks.count))
    }

    /// The same for so many ranks, each a group of its own.
    pub(super) fn of_ranks(&self, size: f64) -> Load<'a> {
        Load {
            size,
            groups: size,
            rounds: size.log2().ceil(),
            power_of_two: size.log2().fract() == 0.0,
            width: 1.0,
            racks: None,
            ..*self
        }
    }

    /// Members of the largest group of each level and what messages between them cost, from the inner to the outer.
    #[allow(clippy::cast_precision_loss)]
    pub(super) fn levels(&self) -> impl Iterator<Item = (f64, Model)> + use<'a> {
        let network = self.network;
        self.divided.levels().map(move |level| (level.widths().1 as f64, network.model(level.link())))
    }

    /// The same for so many bytes.
    pub(super) fn of_bytes(&self, bytes: f64) -> Load<'a> {
        Load { bytes, ..*self }
    }

    /// A message that each of p - 1 ranks passes on to the rank next to it: most of them are in the same group if groups
    /// are runs of ranks, and the ports between groups set the pace.
    pub(super) fn neighbours(&self, model: &Model, bytes: f64) -> f64 {
        let crossing = if self.runs { 1.0 / self.width } else { 1.0 };
        let leaving = self.racks.map_or(0.0, |racks| if self.runs { 1.0 / racks.width } else { 1.0 });
        let between = self.racks.map_or(model.latency, |racks| racks.between.latency);
        let wide = leaving * model.latency + (crossing - leaving) * between;
        let latency = wide + (1.0 - crossing) * self.inside.latency;
        (self.size - 1.0) * (latency + model.overhead + bytes * model.per_byte)
    }

    /// The average message of an algorithm in which all ranks exchange with one at distance 1, 2, 4, …: the small
    /// distances stay inside the groups if these are runs of ranks; in the others a whole group shares a port.
    pub(super) fn all_at_once(&self, model: &Model) -> Model {
        self.average(model, self.width, self.racks.map_or(0.0, |racks| racks.width))
    }

    /// The average message of a tree, of which a few links only are between groups, if these are runs of ranks.
    pub(super) fn along_tree(&self, model: &Model) -> Model {
        match self.runs {
            true => self.average(model, 1.0, 1.0),
            false => self.all_at_once(model),
        }
    }

    /// The port time of everyone's data on its way to everyone: that of the other groups once for each rank of the group.
    pub(super) fn everyone_s_data(&self, model: &Model) -> f64 {
        let (others, per_byte) = (self.size - self.width, self.racks.map_or(*model, |racks| racks.between).per_byte);
        let shared = self.racks.map_or(0.0, |racks| (self.size - racks.width) * racks.width * racks.port);
        self.bytes * ((self.width - 1.0) * self.inside.per_byte + (others * self.width * per_byte).max(shared))
    }

    /// The average message when every rank has one for each other rank.
    pub(super) fn in_turn(&self, model: &Model) -> Model {
        let near = (self.width - 1.0) / (self.size - 1.0);
        let mix = |inside: f64, between: f64| near * inside + (1.0 - near) * self.width * between;
        let shared =
            self.racks.map_or(0.0, |racks| (self.size - racks.width) / (self.size - 1.0) * racks.width * racks.port);
        let per_byte = self.racks.map_or(*model, |racks| racks.between).per_byte;
        Model {
            overhead: mix(self.inside.overhead, model.overhead),
            per_byte: mix(self.inside.per_byte, per_byte).max(shared),
            ..*model
        }
    }

    /// The average message when so many ranks of a group, and of a group of groups, share a port.
    fn average(&self, model: &Model, crowd: f64, rack_crowd: f64) -> Model {
        if self.width <= 1.0 && self.racks.is_none() || self.groups <= 1.0 {
            return *model;
        }
        // Of groups that are no power of two some partners at small distances are in the next one.
        let rounds = |width: f64| if width.log2().fract() == 0.0 { width.log2() } else { width.log2().floor() - 1.0 };
        let share = |width: f64| if self.runs { rounds(width).max(0.0) / self.size.log2() } else { 0.0 };
        let inner = share(self.width);
        let (near, between) = self.racks.map_or((0.0, *model), |racks| (share(racks.width) - inner, racks.between));
        let far = 1.0 - inner - near;
        let mix = |inside: f64, between: f64, across: f64| inner * inside + near * between + far * across;
        let shared = self.racks.map_or(0.0, |racks| rack_crowd * racks.port);
        Model {
            latency: mix(self.inside.latency, between.latency, model.latency),
            overhead: mix(self.inside.overhead, crowd * between.overhead, crowd * model.overhead),
            per_byte: mix(
                self.inside.per_byte,
                crowd * between.per_byte,
                (crowd * between.per_byte).max(model.per_byte).max(shared),
            ),
            per_byte_reduced: model.per_byte_reduced,
        }
    }

    /// Messages to or from all other ranks that overlap but for the root's port.
    pub(super) fn fan(&self, model: &Model, bytes: f64) -> f64 {
        model.latency + (self.size - 1.0) * (model.overhead + bytes * model.per_byte)
    }

    /// A power of two of ranks takes no fold; others send all data to a partner first and get it back at the end.
    pub(super) fn folding(&self, model: &Model) -> f64 {
        // Partners are neighbours.
        let model = if self.runs && self.width > 1.0 { &self.inside } else { model };
        if self.power_of_two { 0.0 } else { 2.0 * model.message(self.bytes) + model.reduction(self.bytes) }
    }

    /// Rounds among the ranks that are left after the fold: ⌊log2 p⌋.
    pub(super) fn core_rounds(&self) -> f64 {
        if self.power_of_two { self.rounds } else { self.rounds - 1.0 }
    }
}

/// The digits of positions in k-nomial trees, and the partners of recursive multiplying with this rank.
pub(super) const RADIX: usize = 4;

impl Load<'_> {
    /// Rounds of a tree or an exchange among `RADIX` ranks, each with one message after the other at the busiest port.
    pub(super) fn by_radix(&self, model: &Model, rounds: f64, bytes: f64) -> f64 {
        let partners = f64::from(u32::try_from(RADIX - 1).unwrap_or(3));
        (rounds / 2.0).ceil() * (model.latency + partners * (model.overhead + bytes * model.per_byte))
    }

    /// Segments of each half of the data in a double tree: `sqrt(log2(p) n beta / (4 (latency + overhead)))`.
    pub(super) fn halves_in(&self, model: &Model) -> f64 {
        (self.rounds * self.bytes * model.per_byte / (4.0 * (model.latency + model.overhead))).sqrt().max(1.0)
    }
}

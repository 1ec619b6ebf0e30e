//! Standard input: read only as far as every rank that reads it has room.

use super::{Action, Job, Link};
use spmd::bootstrap::messages::{StdinTarget, ToAgent};

impl Job {
    /// A rank has room for more bytes; 0: it reads no more.
    pub(super) fn input_taken(&mut self, rank: usize, bytes: u32) {
        let room = &mut self.ranks[rank].input;
        *room = if bytes == 0 { None } else { room.map(|room| room + u64::from(bytes)) };
        let target = self.plan.start.stdin;
        let readers = (0_u32..).zip(&self.ranks).filter(|(rank, _)| target.includes(*rank));
        let mut rooms = readers.filter_map(|(_, state)| state.input).peekable();
        if rooms.peek().is_none() {
            self.actions.push(Action::StopStdin);
        }
        // The one with the least room decides; one that is not started yet has none.
        if let Some(room) = rooms.min().filter(|room| *room > self.input_asked) {
            let more = u32::try_from(room - self.input_asked).unwrap_or(u32::MAX);
            self.input_asked += u64::from(more);
            self.actions.push(Action::ReadStdin(more));
        }
    }

    /// A piece of standard input; empty at its end.
    pub(super) fn input(&mut self, data: Vec<u8>) {
        match self.plan.start.stdin {
            StdinTarget::None => {}
            StdinTarget::Rank(rank) => {
                if let Some(reader) = self.ranks.get(rank as usize).filter(|reader| reader.input.is_some())
                    && self.hosts[reader.host].link == Link::Started
                {
                    let host = reader.host;
                    self.send(host, ToAgent::Stdin { rank: Some(rank), data });
                }
            }
            StdinTarget::All => {
                let hosts = self.started();
                self.send_all(hosts, ToAgent::Stdin { rank: None, data });
            }
        }
    }
}

//! The process beside an agent that connects to further hosts for the launcher.
//!
//! A process of its own, so that the agent keeps its one thread and its children are ranks alone. Decides nothing: opens
//! and closes the links it is told to, and passes on what is said. Which link leads to a host that is further down it
//! learns from what came up.

use crate::connect::{self, How, Link, LinkEvent, onward};
use crate::exit::ExitCode;
use crate::sys;
use spmd::bootstrap::frame;
use spmd::bootstrap::messages::{FromAgent, ToAgent};
use spmd::bootstrap::onward::{FromBelow, Reach};
use std::collections::{BTreeMap, HashMap};
use std::io::{self, Write};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long links that were closed may take to end.
const LINKS_END: Duration = Duration::from_millis(1500);

/// The life of `rsrun --relay`; returns its exit code.
pub(crate) fn main() -> u8 {
    sys::close_inherited(None);
    sys::reset_signals();
    let (ended, ends) = channel();
    let open_files = sys::raise_open_files();
    let mut relay = Relay { links: HashMap::new(), routes: Arc::default(), ended, open_files };
    let mut input = io::stdin().lock();
    // A stream that ends or makes no sense: the agent is gone.
    while let Ok(Some(message)) = frame::read::<ToAgent>(&mut input) {
        match message {
            ToAgent::Reach(reach) => relay.reach(&reach),
            ToAgent::Leave { host } => {
                if let Some(link) = relay.links.get(&host) {
                    link.close();
                }
            }
            ToAgent::Below { hosts, message } => relay.pass(&hosts, &message),
            // The agent's own.
            _ => {}
        }
    }
    relay.end(&ends);
    ExitCode::Success.number()
}

/// Routes: for each host that is not linked directly the one whose link leads to it.
type Routes = Arc<Mutex<HashMap<u32, u32>>>;

struct Relay {
    links: HashMap<u32, Link>,
    routes: Routes,
    /// Is told of each link that has ended.
    ended: Sender<u32>,
    open_files: Option<u64>,
}

impl Relay {
    fn reach(&mut self, reach: &Reach) {
        let how = How::told(reach, self.open_files);
        for told in &reach.hosts {
            let host = told.host;
            let (routes, ended) = (Arc::clone(&self.routes), self.ended.clone());
            let deliver = move |event| {
                let over = matches!(event, LinkEvent::Ended(_));
                say(upward(host, event, &routes));
                if over {
                    let _ = ended.send(host);
                }
            };
            match connect::open(&onward::host(told), &how, deliver) {
                Ok(link) => drop(self.links.insert(host, link)),
                Err(error) => {
                    let text = format!("host {}: no thread can be started for its connection: {error}", told.name);
                    say(FromAgent::Below { host, said: FromBelow::Ended(text) });
                }
            }
        }
    }

    /// Passes a message on: to hosts that are linked here as it is, to others by way of the agent that leads to them.
    fn pass(&self, hosts: &[u32], message: &[u8]) {
        let mut further: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        let routes = self.routes.lock().unwrap_or_else(PoisonError::into_inner);
        for host in hosts {
            match (self.links.get(host), routes.get(host)) {
                (Some(link), _) => send(link, frame::framed(message)),
                (None, Some(next)) => further.entry(*next).or_default().push(*host),
                // It is gone, and the launcher has been or will be told.
                (None, None) => {}
            }
        }
        for (next, hosts) in further {
            if let Some(link) = self.links.get(&next) {
                send(link, frame::to_frame(&ToAgent::Below { hosts, message: message.to_vec() }));
            }
        }
    }

    /// The agent wants no more: every link ends, those that cannot hear it with this process.
    fn end(self, ends: &Receiver<u32>) {
        let mut open = self.links;
        open.values().for_each(Link::close);
        let until = Instant::now() + LINKS_END;
        while open.values().any(|link| !link.can_be_left()) {
            match ends.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(host) => drop(open.remove(&host)),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return,
            }
        }
    }
}

/// Sends a frame; one that is too large to be passed on would have been too large for the launcher.
fn send(link: &Link, frame: Result<Vec<u8>, frame::FrameError>) {
    match frame {
        Ok(bytes) => link.send(bytes),
        Err(error) => drop(writeln!(io::stderr(), "{error}")),
    }
}

/// What a link says, as it goes up to the launcher.
fn upward(host: u32, event: LinkEvent, routes: &Routes) -> FromAgent {
    let said = match event {
        LinkEvent::Stage(text) => FromBelow::Stage(text),
        LinkEvent::Unguarded => FromBelow::Unguarded,
        LinkEvent::Ended(failure) => {
            routes.lock().unwrap_or_else(PoisonError::into_inner).retain(|_, next| *next != host);
            FromBelow::Ended(failure.message)
        }
        LinkEvent::Frame(FromAgent::Below { host: further, said }) => {
            routes.lock().unwrap_or_else(PoisonError::into_inner).insert(further, host);
            return FromAgent::Below { host: further, said };
        }
        LinkEvent::Frame(frame) => match frame::encode(&frame) {
            Ok(bytes) => FromBelow::Message(bytes),
            Err(error) => FromBelow::Ended(error.to_string()),
        },
    };
    FromAgent::Below { host, said }
}

/// Writes one whole frame. Waits when the agent does not keep up, and with it the link that says it.
fn say(message: FromAgent) {
    let Ok(bytes) = frame::to_frame(&message) else { return };
    let mut out = io::stdout().lock();
    // An agent that is gone takes this process with it.
    let _ = out.write_all(&bytes).and_then(|()| out.flush());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Failure;

    #[test]
    fn what_comes_from_further_down_is_passed_on_and_remembered_until_its_way_ends() {
        let routes = Routes::default();
        let own = upward(3, LinkEvent::Frame(FromAgent::Done), &routes);
        let FromAgent::Below { host: 3, said: FromBelow::Message(bytes) } = own else { panic!("{own:?}") };
        assert!(matches!(frame::decode(&bytes), Ok(FromAgent::Done)));
        let said = FromBelow::Stage("connecting".into());
        let passed = upward(3, LinkEvent::Frame(FromAgent::Below { host: 9, said: said.clone() }), &routes);
        assert!(matches!(&passed, FromAgent::Below { host: 9, said: again } if *again == said));
        assert_eq!(routes.lock().unwrap().get(&9), Some(&3));
        upward(3, LinkEvent::Ended(Failure::new(ExitCode::Internal, "gone")), &routes);
        assert!(routes.lock().unwrap().is_empty());
    }
}

//! `cargo xtask lab netns`: the namespace lab from the command line, with the caller's rights or through sudo.

use crate::command::{Interrupts, line, root, target};
use crate::error::{Result, XtaskError};
use crate::say::say;
use crate::setup;
use crate::system::{Rights, for_administrator, user};
use spmd_lab::folder::{names, remove_remains};
use spmd_lab::netns::{self, Lab, Link, Plan};
use std::path::PathBuf;

/// The lab that `up` makes unless told another name.
pub(crate) const DEFAULT_NAME: &str = "netns";

/// What `lab netns up` was asked for.
#[derive(Clone, Debug)]
pub(crate) struct Up {
    pub(crate) hosts: usize,
    pub(crate) slots: usize,
    pub(crate) name: String,
    pub(crate) user: Option<String>,
    /// Slow links, instead of as fast as this machine is.
    pub(crate) link: Option<Link>,
}

impl Default for Up {
    fn default() -> Self {
        Self { hosts: 1, slots: netns::SLOTS, name: DEFAULT_NAME.to_owned(), user: None, link: None }
    }
}

impl Up {
    fn user(&self) -> String {
        self.user.clone().unwrap_or_else(user)
    }

    /// The same as arguments of this program, for a call with more rights.
    fn arguments(&self) -> Vec<String> {
        let mut words: Vec<String> = ["lab", "netns", "up"].map(str::to_owned).into();
        words.push(self.hosts.to_string());
        if self.slots != netns::SLOTS {
            words.extend(["--slots".into(), self.slots.to_string()]);
        }
        if self.name != DEFAULT_NAME {
            words.extend(["--name".into(), self.name.clone()]);
        }
        words.extend(["--user".into(), self.user()]);
        if let Some(Link { mbit, queue }) = self.link {
            words.extend(["--mbit".into(), mbit.to_string(), "--queue".into(), queue.to_string()]);
        }
        words
    }

    /// The command that an administrator would run instead.
    pub(crate) fn for_administrator(&self) -> String {
        for_administrator(&own_program(), &self.arguments())
    }
}

/// The folder of a lab.
pub(crate) fn folder(name: &str) -> PathBuf {
    root().join("lab/state").join(name)
}

/// Brings a lab up and says how to use it.
pub(crate) fn up(up: &Up) -> Result<()> {
    check_name(&up.name)?;
    if let Some(lab) = Lab::open(&folder(&up.name))?.filter(Lab::is_whole)
        && lab.hosts().len() == up.hosts
    {
        say!("lab: '{}' is up already", up.name);
        if up.link.is_some() {
            raise(up, false)?;
        }
        print_use(&lab);
        return Ok(());
    }
    setup::run()?;
    print_use(&raise(up, false)?);
    Ok(())
}

/// Brings a lab up as root or through sudo. `tied`: it ends with this program, however this ends (as root only).
pub(crate) fn raise(up: &Up, tied: bool) -> Result<Lab> {
    let folder = folder(&up.name);
    match Rights::of_caller() {
        Rights::Root => {
            let keep = vec![root(), target()];
            let plan = Plan { folder, hosts: up.hosts, slots: up.slots, user: up.user(), keep, tied };
            let lab = netns::up(&plan)?.0;
            if let Some(link) = up.link
                && let Err(error) = lab.limit_links(link)
            {
                // Links as fast as ever are not what was asked for.
                lab.down()?;
                return Err(error.into());
            }
            Ok(lab)
        }
        rights => {
            as_root(rights, &up.arguments(), "making hosts needs the rights of root")?;
            let gone = || XtaskError::Usage(format!("the lab '{}' is not there after `up`", up.name));
            Lab::open(&folder)?.ok_or_else(gone)
        }
    }
}

/// Takes a lab down and says what it did.
pub(crate) fn down(name: &str) -> Result<()> {
    check_name(name)?;
    let folder = folder(name);
    let Some(lab) = Lab::open(&folder)? else {
        let had = remove_remains(&folder)?;
        say!("lab: '{name}' is not up{}", if had { "; removed what was left of it" } else { "" });
        return Ok(());
    };
    let hosts = lab.hosts().len();
    match Rights::of_caller() {
        Rights::Root => lab.down()?,
        rights => {
            let arguments = ["lab", "netns", "down", "--name", name].map(str::to_owned);
            return as_root(rights, &arguments, "taking hosts down needs the rights of root");
        }
    }
    say!("lab: '{name}' is down ({hosts} hosts)");
    Ok(())
}

/// Shows every lab.
pub(crate) fn status() -> Result<()> {
    let names = names(&folder(""));
    let mut some = false;
    for name in names {
        let Some(lab) = Lab::open(&folder(&name))? else { continue };
        some = true;
        print_use(&lab);
    }
    if !some {
        say!("lab: no hosts are up; cargo xtask lab netns up 3 makes three");
    }
    Ok(())
}

fn print_use(lab: &Lab) {
    let name = lab.name();
    say!("lab '{name}', {} logs in, this machine is {} there:", lab.user(), lab.own_address());
    for host in lab.hosts() {
        let state = match host.processes().len() {
            _ if !host.is_up() => "DEAD: take the lab down".to_owned(),
            // Another user's processes do not show their namespaces.
            0 => "up".to_owned(),
            1 => "up, 1 process".to_owned(),
            count => format!("up, {count} processes"),
        };
        say!("    {:<8} {:<12} {state}", host.name, host.address);
    }
    let short = |path: PathBuf| path.strip_prefix(root()).map(|path| path.display().to_string()).unwrap_or_default();
    // Without -n: one rank a slot, so that every host takes part.
    say!("  target/release/rsrun -hostfile {} target/release/examples/train", short(lab.hostfile()));
    say!("  ssh -F {} node1", short(lab.ssh_config()));
    let option = if name == DEFAULT_NAME { String::new() } else { format!(" --name {name}") };
    say!("  cargo xtask lab netns down{option}");
}

fn as_root(rights: Rights, arguments: &[String], what: &str) -> Result<()> {
    let program = own_program();
    let Some(mut command) = rights.command(&program, arguments) else {
        return Err(XtaskError::NeedsRights { what: what.to_owned(), command: for_administrator(&program, arguments) });
    };
    say!("lab: {}", line(&command));
    Interrupts::catch()?.run(&mut command)
}

fn own_program() -> String {
    std::env::current_exe().unwrap_or_else(|_| target().join("debug/xtask")).display().to_string()
}

/// A lab's name is a folder's: nothing that leads elsewhere, and not where machines keep theirs.
fn check_name(name: &str) -> Result<()> {
    if name == crate::vm::KIND {
        return Err(XtaskError::Usage(format!("'{name}' is no name for a lab: `lab vm` keeps its machines there")));
    }
    check_folder_name(name)
}

/// A name that leads nowhere else.
pub(crate) fn check_folder_name(name: &str) -> Result<()> {
    let good = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if !name.is_empty() && name.chars().all(good) {
        return Ok(());
    }
    Err(XtaskError::Usage(format!("'{name}' is no name for a lab: letters, digits, - and _ only")))
}

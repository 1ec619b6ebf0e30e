//! An open device with one of its ports, one address of that, and a protection domain.

#![expect(unsafe_code, reason = "calls of libibverbs")]

use super::{
    address::{self, Entry, Gid},
    counters::PortCounters,
    error::{Result, VerbsError},
    library::{Library, library},
    sys::{self, Plain},
    units::Mtu,
};
use std::{
    ffi::CStr,
    fmt, io,
    net::IpAddr,
    path::{Path, PathBuf},
    ptr::NonNull,
};

/// Where the kernel shows its RDMA devices.
const CLASS: &str = "/sys/class/infiniband";
/// Packets may pass this many routers.
const HOP_LIMIT: u8 = 255;

/// What `verbs.device` asks for: `mlx5_0`, `mlx5_0:1` or `mlx5_0:1:3` (device, port, number of the address).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    device: String,
    port: Option<u8>,
    gid: Option<u8>,
}

impl Wanted {
    /// The entry of the list that this rank of its host takes: they take them in turn. `None` for an empty list.
    pub(crate) fn of(list: &str, rank: usize) -> Result<Option<Self>> {
        let words: Vec<&str> = list.split(',').map(str::trim).filter(|word| !word.is_empty()).collect();
        if words.is_empty() {
            return Ok(None);
        }
        let word = words[rank % words.len()];
        let mut parts = word.split(':');
        let device = parts.next().unwrap_or_default().to_string();
        let mut number = || parts.next().map(str::parse::<u8>).transpose();
        let (Ok(port), Ok(gid)) = (number(), number()) else { return Err(wrong(word)) };
        if device.is_empty() || port == Some(0) || parts.next().is_some() {
            return Err(wrong(word));
        }
        Ok(Some(Self { device, port, gid }))
    }
}

fn wrong(word: &str) -> VerbsError {
    let reason = "write DEVICE, DEVICE:PORT or DEVICE:PORT:GID, the numbers from 1 and from 0, as mlx5_0:1:3".into();
    VerbsError::Wanted { wanted: word.to_string(), reason }
}

/// An open device. Closed when nothing of it is left.
pub(crate) struct Device {
    pub(super) library: &'static Library,
    pub(super) context: NonNull<sys::Context>,
    pub(super) pd: NonNull<sys::Pd>,
    name: String,
    port: Port,
    pub(super) limits: sys::DeviceAttr,
}

/// The port that is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Port {
    pub(crate) number: u8,
    pub(crate) lid: u16,
    pub(crate) mtu: Mtu,
    pub(crate) gid: Gid,
    pub(crate) gid_index: u8,
    /// Packets carry addresses: always on Ethernet.
    pub(crate) global: bool,
}

// SAFETY: the library's objects may be used from any thread (ibv_open_device(3)); ours are moved, not shared for writing.
unsafe impl Send for Device {}
// SAFETY: as above; every call through a shared device is one that the library allows from several threads.
unsafe impl Sync for Device {}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Device").field("name", &self.name).field("port", &self.port).finish_non_exhaustive()
    }
}

/// The names of the devices that the kernel has: without the library.
fn names() -> Vec<String> {
    let entries = std::fs::read_dir(CLASS).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Whether the kernel has an RDMA device.
pub(crate) fn has_device() -> bool {
    !names().is_empty()
}

impl Device {
    /// Opens the device that is asked for, or the best: the one named `near` (the rank's own), one that has the address
    /// `reached_at`, the first that can be used.
    ///
    /// # Errors
    /// No library, no device, no port that is up with an address that can be used.
    pub(crate) fn open(wanted: Option<&Wanted>, near: Option<&str>, reached_at: Option<IpAddr>) -> Result<Self> {
        let mut names = names();
        if let Some(wanted) = wanted {
            if !names.contains(&wanted.device) {
                let have = if names.is_empty() { "none".into() } else { names.join(", ") };
                let reason = format!("this host has {have}");
                return Err(VerbsError::Wanted { wanted: wanted.device.clone(), reason });
            }
            names.retain(|name| *name == wanted.device);
        }
        if names.is_empty() {
            return Err(VerbsError::NoDevice);
        }
        names.sort_by_key(|name| (near != Some(name.as_str()), !has_address(name, reached_at)));
        let library = library().map_err(|reason| VerbsError::NoLibrary { reason })?;
        let mut reasons = Vec::new();
        for name in &names {
            match Opened::open(library, name).and_then(|opened| opened.with_port(wanted, reached_at)) {
                Ok(device) => return Ok(device),
                Err(error) => reasons.push(error.to_string()),
            }
        }
        Err(VerbsError::NoneUsable { reasons: reasons.join("; ") })
    }

    /// Its name and port, as `rxe0:1`.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.name, self.port.number)
    }

    /// What the driver counts for the port, from now on.
    pub(crate) fn counters(&self) -> PortCounters {
        PortCounters::of(&port_folder(&self.name, self.port.number))
    }

    pub(crate) fn port(&self) -> &Port {
        &self.port
    }

    /// What peers may do with memory that is registered for them: atomic operations where the device can.
    pub(super) fn remote_access(&self) -> i32 {
        let atomic = if self.limits.atomic_cap == 0 { 0 } else { sys::ACCESS_REMOTE_ATOMIC };
        sys::ACCESS_REMOTE_WRITE | sys::ACCESS_REMOTE_READ | atomic
    }

    pub(super) fn failed(&self, call: &'static str) -> VerbsError {
        VerbsError::Call { device: self.name(), call, source: io::Error::last_os_error() }
    }

    /// The way to a port elsewhere.
    pub(super) fn way_to(&self, gid: Gid, lid: u16, traffic_class: u8) -> sys::AhAttr {
        let port = &self.port;
        let mut way = sys::AhAttr { dlid: lid, port_num: port.number, ..sys::AhAttr::zeroed() };
        if port.global {
            way.is_global = 1;
            way.grh = sys::GlobalRoute {
                dgid: sys::Gid(gid.0),
                flow_label: 0,
                sgid_index: port.gid_index,
                hop_limit: HOP_LIMIT,
                traffic_class,
            };
        }
        way
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: everything that was made in the domain holds the device, so it is gone. What the kernel has against
        // it changes nothing any more.
        unsafe {
            (self.library.ibv_dealloc_pd)(self.pd.as_ptr());
            (self.library.ibv_close_device)(self.context.as_ptr());
        }
    }
}

/// A device between opening and the choice of its port: closed when that fails.
struct Opened {
    library: &'static Library,
    context: NonNull<sys::Context>,
    name: String,
}

impl Opened {
    fn open(library: &'static Library, name: &str) -> Result<Self> {
        let failed = |call| VerbsError::Call { device: name.to_string(), call, source: io::Error::last_os_error() };
        let mut count = 0;
        // SAFETY: the list ends with null and is freed below, after the last use of its devices.
        let list = unsafe { (library.ibv_get_device_list)(&raw mut count) };
        if list.is_null() {
            return Err(failed("ibv_get_device_list"));
        }
        let mut context = None;
        for index in 0..usize::try_from(count).unwrap_or_default() {
            // SAFETY: below the number of devices.
            let device = unsafe { *list.add(index) };
            // SAFETY: a listed device has a NUL-terminated name.
            let listed = unsafe { CStr::from_ptr((library.ibv_get_device_name)(device)) };
            if listed.to_bytes() == name.as_bytes() {
                // SAFETY: a listed device.
                context = Some(unsafe { (library.ibv_open_device)(device) });
            }
        }
        let error = failed("ibv_open_device");
        // SAFETY: as it was given; open devices stay open.
        unsafe { (library.ibv_free_device_list)(list) };
        match context.map(NonNull::new) {
            Some(Some(context)) => Ok(Self { library, context, name: name.to_string() }),
            Some(None) => Err(error),
            None => Err(VerbsError::NoneUsable { reasons: format!("{name}: libibverbs has no driver for it") }),
        }
    }

    fn close(self) {
        // SAFETY: nothing was made with it.
        unsafe { (self.library.ibv_close_device)(self.context.as_ptr()) };
    }

    /// The device with the first port that can be used.
    fn with_port(self, wanted: Option<&Wanted>, reached_at: Option<IpAddr>) -> Result<Device> {
        match self.find_port(wanted, reached_at) {
            Ok((pd, port, limits)) => {
                let Opened { library, context, name } = self;
                Ok(Device { library, context, pd, name, port, limits })
            }
            Err(error) => {
                self.close();
                Err(error)
            }
        }
    }

    fn find_port(
        &self,
        wanted: Option<&Wanted>,
        reached_at: Option<IpAddr>,
    ) -> Result<(NonNull<sys::Pd>, Port, sys::DeviceAttr)> {
        let failed = |call, number: i32| {
            let source = io::Error::from_raw_os_error(number);
            VerbsError::Call { device: self.name.clone(), call, source }
        };
        let mut limits = sys::DeviceAttr::zeroed();
        // SAFETY: an open device, a structure of the size that the library knows.
        match unsafe { (self.library.ibv_query_device)(self.context.as_ptr(), &raw mut limits) } {
            0 => {}
            number => return Err(failed("ibv_query_device", number)),
        }
        // SAFETY: an open device.
        let pd = NonNull::new(unsafe { (self.library.ibv_alloc_pd)(self.context.as_ptr()) });
        let Some(pd) = pd else {
            return Err(failed("ibv_alloc_pd", io::Error::last_os_error().raw_os_error().unwrap_or_default()));
        };
        let mut reasons = Vec::new();
        for number in 1..=limits.phys_port_cnt.max(1) {
            if wanted.and_then(|wanted| wanted.port).is_some_and(|port| port != number) {
                continue;
            }
            match self.port(pd, number, wanted.and_then(|wanted| wanted.gid), reached_at) {
                Ok(port) => return Ok((pd, port, limits)),
                Err(reason) => reasons.push(format!("{}:{number}: {reason}", self.name)),
            }
        }
        // SAFETY: nothing was made in it.
        unsafe { (self.library.ibv_dealloc_pd)(pd.as_ptr()) };
        if reasons.is_empty() {
            reasons.push(format!("{} has ports 1 to {}", self.name, limits.phys_port_cnt));
        }
        Err(VerbsError::NoneUsable { reasons: reasons.join("; ") })
    }

    fn port(
        &self,
        pd: NonNull<sys::Pd>,
        number: u8,
        gid: Option<u8>,
        reached_at: Option<IpAddr>,
    ) -> std::result::Result<Port, String> {
        let mut attributes = sys::PortAttr::zeroed();
        // SAFETY: an open device; the library fills the first fields of the structure.
        match unsafe { (self.library.ibv_query_port)(self.context.as_ptr(), number, &raw mut attributes) } {
            0 => {}
            error => return Err(format!("ibv_query_port failed: {}", io::Error::from_raw_os_error(error))),
        }
        if attributes.state != sys::PORT_ACTIVE {
            return Err(format!("the port is {}", state_name(attributes.state)));
        }
        let mtu = Mtu::from_code(attributes.active_mtu).ok_or("the port has no MTU")?;
        let ethernet = attributes.link_layer == sys::LINK_LAYER_ETHERNET;
        let global = ethernet || attributes.flags & sys::PORT_GRH_REQUIRED != 0;
        let mut entries = address::entries(&port_folder(&self.name, number));
        if let Some(index) = gid {
            entries.retain(|entry| entry.index == index);
            if entries.is_empty() {
                return Err(format!("it has no address number {index}"));
            }
        }
        if ethernet {
            entries = address::by_preference(&entries, reached_at);
        }
        let usable = |entry: &Entry| !global || self.can_reach(pd, number, *entry);
        let have = entries.len();
        let chosen = entries.into_iter().find(usable);
        let port =
            |entry: Entry| Port { number, lid: attributes.lid, mtu, gid: entry.gid, gid_index: entry.index, global };
        chosen.map(port).ok_or_else(|| format!("none of its {have} addresses can be used"))
    }

    /// Whether packets can be sent from an address: tried by asking for the way to itself.
    fn can_reach(&self, pd: NonNull<sys::Pd>, number: u8, entry: Entry) -> bool {
        let mut way = sys::AhAttr { is_global: 1, port_num: number, ..sys::AhAttr::zeroed() };
        way.grh.dgid = sys::Gid(entry.gid.0);
        way.grh.sgid_index = entry.index;
        way.grh.hop_limit = HOP_LIMIT;
        // SAFETY: a domain of this device, a filled structure.
        let handle = NonNull::new(unsafe { (self.library.ibv_create_ah)(pd.as_ptr(), &raw mut way) });
        // SAFETY: just made and used by nothing.
        handle.is_some_and(|handle| unsafe { (self.library.ibv_destroy_ah)(handle.as_ptr()) } == 0)
    }
}

fn port_folder(name: &str, number: u8) -> PathBuf {
    Path::new(CLASS).join(name).join("ports").join(number.to_string())
}

/// Whether any port of a device has an address.
fn has_address(name: &str, address: Option<IpAddr>) -> bool {
    let Ok(ports) = std::fs::read_dir(Path::new(CLASS).join(name).join("ports")) else { return false };
    let mut entries = ports.flatten().flat_map(|port| address::entries(&port.path()));
    address.is_some_and(|address| entries.any(|entry| entry.gid.address() == address))
}

/// `enum ibv_port_state` in words.
fn state_name(state: i32) -> &'static str {
    match state {
        1 => "down",
        2 => "initializing (is a subnet manager running?)",
        3 => "armed (is a subnet manager running?)",
        5 => "active, but deferred",
        _ => "in no state that is known",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(list: &str, rank: usize) -> std::result::Result<Option<Wanted>, String> {
        Wanted::of(list, rank).map_err(|error| error.to_string())
    }

    #[test]
    fn ranks_take_the_devices_of_the_list_in_turn() {
        let name = |rank| wanted("rxe0, rxe1:1", rank).unwrap().unwrap();
        assert_eq!(name(0), Wanted { device: "rxe0".into(), port: None, gid: None });
        assert_eq!(name(3), Wanted { device: "rxe1".into(), port: Some(1), gid: None });
        assert_eq!(wanted("", 0), Ok(None));
        assert_eq!(wanted("mlx5_0:2:3", 7), Ok(Some(Wanted { device: "mlx5_0".into(), port: Some(2), gid: Some(3) })));
    }

    #[test]
    fn a_device_that_cannot_be_meant_is_refused_with_what_to_write() {
        for list in ["rxe0:x", "rxe0:0", "rxe0:1:300", "rxe0:1:2:3", ":1"] {
            let error = wanted(list, 0).unwrap_err();
            assert!(error.contains(list) && error.contains("DEVICE:PORT:GID"), "{error}");
        }
    }
}

#!/usr/bin/env python3
"""Makes the topologies of machine classes in this folder, in the XML that hwloc 2 reads.

Usage: python3 make.py   (writes the files next to itself; README.md says what each stands for)
"""
import pathlib

HERE = pathlib.Path(__file__).parent
GIB, MIB = 1 << 30, 1 << 20
BLOCK, GPU, NETWORK, OPENFABRICS, DMA, COPROC = range(6)


def bits(numbers):
    """A set as hwloc writes it: words of 32 bits, most significant first."""
    value = sum(1 << n for n in set(numbers))
    words = []
    while value or not words:
        words.append(f"0x{value & 0xffffffff:08x}")
        value >>= 32
    return ",".join(reversed(words))


class Machine:
    def __init__(self):
        self.gp = 0

    def object(self, kind, attributes, children=(), infos=()):
        self.gp += 1
        # hwloc wants to read what is said about an object before the objects in it.
        inner = "".join(f'<info name="{k}" value="{v}"/>\n' for k, v in infos) + "".join(children)
        text = " ".join(f'{k}="{v}"' for k, v in attributes.items())
        return f'<object type="{kind}" gp_index="{self.gp}" {text}>\n{inner}</object>\n'

    def normal(self, kind, cpus, nodes, children=(), **more):
        sets = {"cpuset": bits(cpus), "complete_cpuset": bits(cpus), "nodeset": bits(nodes),
                "complete_nodeset": bits(nodes)}
        return self.object(kind, {**more, **sets}, children)

    def core(self, number, cpus, nodes):
        threads = [self.normal("PU", [c], nodes, os_index=c) for c in cpus]
        return self.normal("Core", cpus, nodes, threads, os_index=number)

    def l3(self, size, cpus, nodes, cores):
        return self.normal("L3Cache", cpus, nodes, cores, cache_size=size, depth=3, cache_linesize=64,
                           cache_associativity=16, cache_type=0)

    def numa(self, number, cpus, size):
        return self.normal("NUMANode", cpus, [number], os_index=number, local_memory=size)

    def osdev(self, name, kind, **infos):
        return self.object("OSDev", {"name": name, "osdev_type": kind}, infos=infos.items())

    def pci(self, address, kind, children, name="", vendor="15b3:1021"):
        infos = [("PCIDevice", name)] if name else []
        return self.object("PCIDev", {"pci_busid": address, "name": name, "pci_link_speed": "63.015385",
                                      "pci_type": f"{kind} [{vendor}] [{vendor}] 00"}, children, infos)

    def bridge(self, bus, children, host=False):
        first = bus[0]
        if host:
            return self.object("Bridge", {"bridge_type": "0-1", "depth": 0,
                                          "bridge_pci": f"0000:[{bus[0]:02x}-{bus[1]:02x}]"}, children)
        return self.object("Bridge", {"bridge_type": "1-1", "depth": 1, "pci_link_speed": "63.015385",
                                      "bridge_pci": f"0000:[{bus[0]:02x}-{bus[1]:02x}]",
                                      "pci_busid": f"0000:{first - 1:02x}:01.0",
                                      "pci_type": "0604 [1000:c030] [1000:c030] b0"}, children)

    def infiniband(self, bus, rdma, net, active=True):
        return self.pci(f"0000:{bus:02x}:00.0", "0207", [
            self.osdev(net, NETWORK), self.osdev(rdma, OPENFABRICS, Port1State=4 if active else 1)],
            "MT2910 Family [ConnectX-7]")

    def ethernet(self, bus, net, vendor="8086:1521", name="I350 Gigabit Network Connection"):
        return self.pci(f"0000:{bus:02x}:00.0", "0200", [self.osdev(net, NETWORK)], name, vendor)

    def gpu(self, bus, name, uuid):
        children = [self.osdev(f"cuda{uuid}", COPROC), self.osdev(
            f"nvml{uuid}", GPU, NVIDIAUUID=f"GPU-00000000-0000-0000-0000-{uuid:012d}")]
        return self.pci(f"0000:{bus:02x}:00.0", "0302", children, name, "10de:2330")

    def write(self, file, packages, cpus, nodes, allowed=None, extra=""):
        sets = {"os_index": 0, "cpuset": bits(cpus), "complete_cpuset": bits(cpus),
                "allowed_cpuset": bits(allowed or cpus), "nodeset": bits(nodes), "complete_nodeset": bits(nodes),
                "allowed_nodeset": bits(nodes)}
        root = self.object("Machine", sets, packages)
        (HERE / file).write_text('<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n'
                                 f'<topology version="2.0">\n{root}{extra}</topology>\n')


def two_sockets():
    m, packages, total = Machine(), [], 48
    for p in range(2):
        cpus = [[c, c + total] for c in range(24 * p, 24 * p + 24)]
        flat = sum(cpus, [])
        cores = [m.core(c, pair, [p]) for c, pair in enumerate(cpus)]
        bus = 0x17 + 0x80 * p
        devices = [m.bridge([bus, bus], [m.infiniband(bus, f"mlx5_{p}", f"ib{p}")])]
        if p == 0:
            devices.append(m.bridge([0x04, 0x04], [m.ethernet(0x04, "eno1")]))
        children = [m.numa(p, flat, 256 * GIB), m.l3(36 * MIB, flat, [p], cores),
                    m.bridge([0x80 * p, 0x80 * p + 0x7f], devices, host=True)]
        packages.append(m.normal("Package", flat, [p], children, os_index=p))
    m.write("two-sockets.xml", packages, range(96), range(2))


def eight_gpus():
    m, packages, total = Machine(), [], 112
    for p in range(2):
        cpus = [[c, c + total] for c in range(56 * p, 56 * p + 56)]
        flat = sum(cpus, [])
        cores = [m.core(c, pair, [p]) for c, pair in enumerate(cpus)]
        switches = []
        for k in range(4):
            n, bus = 4 * p + k, 0x10 + 0x80 * p + 0x10 * k
            inner = m.bridge([bus + 1, bus + 4], [m.infiniband(bus + 2, f"mlx5_{n}", f"ibp{n}"),
                                                  m.gpu(bus + 3, "H100 SXM5 80GB", n)])
            switches.append(m.bridge([bus, bus + 4], [inner]))
        if p == 0:
            switches.append(m.bridge([0x04, 0x04], [m.ethernet(0x04, "eno3")]))
            switches.append(m.bridge([0x06, 0x06], [m.infiniband(0x06, "mlx5_8", "ibs0", active=False)]))
        children = [m.numa(p, flat, 1024 * GIB), m.l3(105 * MIB, flat, [p], cores),
                    m.bridge([0x80 * p, 0x80 * p + 0x7f], switches, host=True)]
        packages.append(m.normal("Package", flat, [p], children, os_index=p))
    m.write("eight-gpus.xml", packages, range(224), range(2))


def four_domains():
    m, packages, total = Machine(), [], 128
    for p in range(2):
        domains, whole = [], []
        for d in range(4):
            number, caches, flat = 4 * p + d, [], []
            for l in range(2):
                first = 16 * number + 8 * l
                cpus = [[c, c + total] for c in range(first, first + 8)]
                cores = [m.core(first - 64 * p + i, pair, [number]) for i, pair in enumerate(cpus)]
                part = sum(cpus, [])
                caches.append(m.l3(32 * MIB, part, [number], cores))
                flat += part
            children = [m.numa(number, flat, 64 * GIB)] + caches
            if d == 2:
                bus = 0x41 + 0x80 * p
                children.append(m.bridge([bus - 1, bus + 1], [m.bridge([bus, bus], [
                    m.infiniband(bus, f"mlx5_{p}", f"ib{p}")])], host=True))
            domains.append(m.normal("Group", flat, [number], children))
            whole += flat
        packages.append(m.normal("Package", whole, range(4 * p, 4 * p + 4), domains, os_index=p))
    m.write("four-domains.xml", packages, range(256), range(8))


def laptop():
    m = Machine()
    fast = [[2 * c, 2 * c + 1] for c in range(6)]
    slow = [[12 + c] for c in range(8)]
    flat = sum(fast + slow, [])
    cores = [m.core(4 * c if c < 6 else 18 + c, cpus, [0]) for c, cpus in enumerate(fast + slow)]
    wireless = m.pci("0000:00:14.3", "0280", [m.osdev("wlan0", NETWORK)], "Wi-Fi 6E AX211", "8086:51f0")
    screen = m.pci("0000:00:02.0", "0300", [m.osdev("card0", GPU)], "Iris Xe Graphics", "8086:46a6")
    children = [m.numa(0, flat, 32 * GIB), m.l3(24 * MIB, flat, [0], cores),
                m.bridge([0, 0xff], [wireless, screen], host=True)]
    package = m.normal("Package", flat, [0], children, os_index=0)
    kinds = "".join(f'<cpukind cpuset="{bits(sum(cpus, []))}" forced_efficiency="{e}">'
                    f'<info name="CoreType" value="{name}"/></cpukind>\n'
                    for e, (name, cpus) in enumerate([("IntelAtom", slow), ("IntelCore", fast)]))
    m.write("laptop.xml", [package], flat, [0], extra=kinds)


def container():
    m, packages, total = Machine(), [], 16
    for p in range(2):
        cpus = [[c, c + total] for c in range(8 * p, 8 * p + 8)]
        flat = sum(cpus, [])
        cores = [m.core(c, pair, [p]) for c, pair in enumerate(cpus)]
        children = [m.numa(p, flat, 96 * GIB), m.l3(20 * MIB, flat, [p], cores)]
        if p == 0:
            children.append(m.bridge([0, 0x7f], [m.bridge([4, 4], [m.ethernet(4, "eth0")])], host=True))
        packages.append(m.normal("Package", flat, [p], children, os_index=p))
    # One hardware thread of each of four cores of the second package, and both of a fifth.
    m.write("container.xml", packages, range(32), range(2), allowed=[10, 11, 28, 29, 14, 30])


two_sockets(), eight_gpus(), four_domains(), laptop(), container()

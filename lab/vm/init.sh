#!/bin/sh
# First program of a lab's machine: loads the modules, makes the host's root read-only under a layer in memory, puts
# the folders that change while the machine runs over it, and goes on in there.
#
# What the machine is to be lies in its own share (machine.sh), which is the only place that it can write to for good.
export PATH=/bin
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
for module in /modules/*; do
    insmod "$module" || echo "lab: $module cannot be loaded"
done

# Small messages would make each read of a program take hundreds of round trips.
plain=trans=virtio,version=9p2000.L,msize=512000
mount -t 9p -o $plain share /share
. /share/machine.sh
# Cached without asking: nothing but a new login of the host's user changes it. What changes comes below.
mount -t 9p -o ro,cache=loose,$plain root /host
mount -t tmpfs -o size=80% tmpfs /overlay
mkdir -p /overlay/upper /overlay/work
mount -t overlay -o lowerdir=/host,upperdir=/overlay/upper,workdir=/overlay/work overlay /new
number=0
# One folder a line: the repository, the build folder.
while read -r folder; do
    mkdir -p "/new$folder"
    mount -t 9p -o ro,cache=none,$plain "tree$number" "/new$folder"
    number=$((number + 1))
done < /share/trees
mount -t proc proc /new/proc
mount -t sysfs sys /new/sys
mount -t devtmpfs dev /new/dev
mkdir -p /new/dev/shm /new/dev/pts
mount -t devpts devpts /new/dev/pts
mount -t tmpfs -o mode=1777 tmpfs /new/dev/shm
mount -t tmpfs -o mode=755 tmpfs /new/run
mount -t tmpfs -o mode=700 tmpfs /new/root
# An emulated machine on busy processors takes longer than a real one to answer.
mkdir -p /new/etc/rsrun
echo 'launch.connect_timeout = "2min"' > /new/etc/rsrun/config.toml
mkdir -p /new/run/lab
mount -o bind /share /new/run/lab
# The first program must not end: the kernel would panic.
chroot /new /bin/sh /run/lab/machine-main.sh
echo "lab: the machine's main script has ended"
echo o > /proc/sysrq-trigger
sleep 60

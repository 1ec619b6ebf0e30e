#!/bin/sh
# Becomes one host of a namespace lab: the first process of its own network, mount, name, IPC and process namespaces.
#
#   unshare --net --mount --uts --ipc --pid --fork --kill-child --mount-proc sh host.sh NAME FOLDER USER KEEP...
#
# NAME    host name
# FOLDER  this host's folder in the lab's state: sshd_config is there
# USER    who may log in
# KEEP... folders that stay visible though they lie under /tmp or /run (the repository, the build folder)
#
# Says "ready" when the host is made, waits for "go" (its network is plugged in from outside meanwhile), then becomes
# sshd. When whoever starts the lab dies before "go", the end of input ends the host, and nothing is left.
set -eu
name=$1 folder=$2 user=$3
shift 3

printf '%s\n' "$name" > /proc/sys/kernel/hostname
ip link set lo up

# A first /dev/shm holds what is mounted elsewhere below; a second one covers it at the end.
mount -t tmpfs -o mode=755 tmpfs /dev/shm
number=0
for keep in "$@"; do
    number=$((number + 1))
    mkdir "/dev/shm/$number"
    mount --bind "$keep" "/dev/shm/$number"
done

# /etc is a copy: what is put there stays on this host, and the real one is never written.
mkdir -m 755 /dev/shm/etc
cp -a /etc/. /dev/shm/etc/
printf '%s\n' "$name" > /dev/shm/etc/hostname
printf '127.0.0.1 localhost\n127.0.1.1 %s\n' "$name" > /dev/shm/etc/hosts
rm -rf /dev/shm/etc/rsrun /dev/shm/etc/nologin
# Without PAM sshd refuses an account whose password is locked, even for a login by key.
sed -i "s/^\($user\):!\{1,\}/\1:*/" /dev/shm/etc/shadow
mount --bind /dev/shm/etc /etc

mount -t tmpfs -o mode=755 tmpfs /run
mkdir -m 755 /run/sshd
mkdir -m 1777 /run/lock
mount -t tmpfs -o mode=1777 tmpfs /tmp
number=0
for keep in "$@"; do
    number=$((number + 1))
    mkdir -p "$keep"
    mount --bind "/dev/shm/$number" "$keep"
done
mount -t tmpfs -o mode=1777 tmpfs /dev/shm

echo ready
read -r word || exit 1
[ "$word" = go ] || exit 1
cd /
exec /usr/sbin/sshd -D -e -f "$folder/sshd_config" < /dev/null >> "$folder/log" 2>&1

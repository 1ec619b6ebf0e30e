# What a lab's machine does once it has its file system: name, network, RDMA devices, sshd, then the commands that
# `lab vm run` sends over the second serial line. Sourced variables (machine.sh): NUMBER, MACHINES, REPOSITORY.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8
. /run/lab/machine.sh
# RDMA pins memory; sessions of sshd and commands inherit this.
ulimit -l unlimited
ulimit -n 65536 || ulimit -n "$(ulimit -Hn)"

echo "lab$NUMBER" > /proc/sys/kernel/hostname
rm -f /etc/hosts /etc/shadow /etc/nologin
rm -rf /etc/rsrun
cp /run/lab/hosts-file /etc/hosts
# Without PAM sshd refuses an account whose password is locked, even for a login by key.
echo 'root:*:1::::::' > /etc/shadow
chmod 600 /etc/shadow

ip link set lo up
if [ "$MACHINES" = 1 ]; then
    # Two devices on the two ends of a pair. Both addresses are this machine's own, so that the kernel would deliver
    # between them directly: rules by source and destination force the traffic onto the pair, where netem sees it.
    ip link add v0 type veth peer name v1
    for device in v0 v1; do
        for setting in accept_local=1 rp_filter=0 arp_ignore=1 arp_announce=2; do
            echo "${setting#*=}" > "/proc/sys/net/ipv4/conf/$device/${setting%=*}"
        done
        # The RDMA device derives its link-local address from the hardware's.
        echo 0 > "/proc/sys/net/ipv6/conf/$device/addr_gen_mode"
    done
    echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter
    ip -batch - << 'IP'
address add 10.88.0.1/24 dev v0
address add 10.88.0.2/24 dev v1
link set v0 mtu 4200 up
link set v1 mtu 4200 up
rule add pref 10 iif v0 lookup local
rule add pref 11 iif v1 lookup local
rule add pref 20 to 10.88.0.2 from 10.88.0.1 lookup 101
rule add pref 21 to 10.88.0.1 from 10.88.0.2 lookup 102
rule add pref 22 to 10.88.0.2 oif v0 lookup 101
rule add pref 23 to 10.88.0.1 oif v1 lookup 102
route add 10.88.0.2 dev v0 src 10.88.0.1 table 101
route add 10.88.0.1 dev v1 src 10.88.0.2 table 102
rule add pref 100 lookup local
rule del pref 0
IP
    devices="v0 v1"
else
    ip address add "10.88.0.$NUMBER/24" dev eth0
    # Room for an RDMA packet of 4096 bytes and its headers.
    ip link set eth0 mtu 4200 up
    devices=eth0
fi
number=0
for device in $devices; do
    rdma link add "rxe$number" type rxe netdev "$device" || echo "lab: no RDMA device on $device"
    number=$((number + 1))
done

mkdir -p -m 700 /root/.ssh
mkdir -p -m 755 /run/sshd
cp /run/lab/id_ed25519 /run/lab/id_ed25519.pub /run/lab/known_hosts /root/.ssh/
cp /run/lab/id_ed25519.pub /root/.ssh/authorized_keys
cp /run/lab/host_key /run/lab/host_key.pub /run/sshd/
chown -R 0:0 /root /run/sshd
chmod 600 /root/.ssh/* /run/sshd/host_key
/usr/sbin/sshd -f /run/lab/sshd_config -E /run/sshd/log || echo "lab: sshd does not start"

# A command of `lab vm run`: a folder with what to run and where; output and exit code are written beside it.
start() {
    local job="/run/lab/jobs/$1"
    (
        cd "$(cat "$job/directory")" || cd "$REPOSITORY" || exit
        # A session of its own, so that it can be ended with everything it has started.
        setsid /bin/sh "$job/command" < /dev/null > "$job/stdout" 2> "$job/stderr" &
        echo $! > "$job/pid"
        wait $!
        echo $? > "$job/code.new"
        mv "$job/code.new" "$job/code"
    ) &
}
stop() {
    read -r pid < "/run/lab/jobs/$1/pid" && kill -s "$2" -- "-$pid"
}

exec 3<> /dev/ttyS1
stty -F /dev/ttyS1 raw -echo
touch /run/lab/ready
while read -r verb job signal <&3; do
    case $verb in
        start) start "$job" ;;
        stop) stop "$job" "$signal" ;;
    esac
    echo "done $verb $job" >&3
done

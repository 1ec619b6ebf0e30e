#!/bin/sh
# Becomes the switch of a namespace lab: a bridge in a network namespace of its own, so that neither the bridge nor
# the firewall of this machine's own network touches the traffic between the lab's hosts.
#
#   unshare --net sh switch.sh
#
# Says "ready", waits for "go" as host.sh does, then only holds the namespace open.
set -eu
ip link add bridge0 type bridge forward_delay 0 stp_state 0
ip link set bridge0 up
echo ready
read -r word || exit 1
[ "$word" = go ] || exit 1
cd /
exec sleep infinity < /dev/null > /dev/null 2>&1

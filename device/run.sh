#!/usr/bin/env bash
# Checks and measures device put and signal on a machine with two GPUs of one host. Everything it needs lies beside it
# (`cargo xtask device FOLDER` puts it there); on the machine the programs need nothing but the CUDA driver and libc.
# With one GPU the ranks share it, and what goes from GPU to GPU is not measured.
#
#     ./run.sh                    all of the below but `sanitize`
#     ./run.sh examples           device_put and train_device
#     ./run.sh check              every check, with memory mapped and through the proxy; four ranks, two on each GPU, in
#                                 two groups that stand for hosts
#     ./run.sh loss               a rank dies while kernels wait for it; a heap that is too large for the GPU
#     ./run.sh sanitize           the checks, shortened, under compute-sanitizer, where that is installed
#     ./run.sh bench              our figures; with nvcc and Python there also NVSHMEM's, NCCL's and bare stores', and ratios
set -uo pipefail
cd "$(dirname "$0")"
here=$PWD
scratch=$(mktemp -d)
daemon= # whether MPS is running, on our behalf
leave() { # also at ^C: nobody else would end the daemon
    [ -z "$daemon" ] || echo "quit -t 5" | $mps
    rm -rf "$scratch"
}
trap leave EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
failed=0
ranks=(env "LD_LIBRARY_PATH=$here/lib:${LD_LIBRARY_PATH:-}" ./rsrun)
two=("${ranks[@]}" -n 2 -host localhost:2)
# Ranks 0 and 1 map each other, so do 2 and 3; between the groups goes the proxy, as between hosts.
groups=("${ranks[@]}" -n 4 -host localhost:4 --set device.way=proxy --set collectives.group_size=2)

gpus=$(nvidia-smi -L 2> /dev/null | wc -l)

# Ranks that share a GPU take turns of milliseconds, unless MPS, a daemon of the driver, has their kernels run at once.
mps=nvidia-cuda-mps-control
shared() { # COMMAND...: with MPS, where it is installed
    if ! command -v $mps > /dev/null; then "$@"; return; fi
    export CUDA_MPS_PIPE_DIRECTORY=$scratch/mps CUDA_MPS_LOG_DIRECTORY=$scratch/mps
    mkdir -p "$scratch/mps"
    daemon=1
    $mps -d
    "$@"
    local code=$?
    echo quit | $mps
    daemon=
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    return $code
}
# Two ranks have a GPU each where there are two.
pair() { if [ "$gpus" -lt 2 ]; then shared "$@"; else "$@"; fi; }

step() { # NAME COMMAND...: runs a step and remembers whether it failed
    local name=$1 begun=$SECONDS
    shift
    echo "== $name"
    if "$@"; then echo "== $name: passed ($((SECONDS - begun)) s)"; else echo "== $name: FAILED"; failed=1; fi
}

examples() {
    step "device_put" pair "${two[@]}" ./device_put
    step "device_put through the proxy" pair "${two[@]}" --set device.way=proxy ./device_put
    step "train_device" pair "${two[@]}" ./train_device
    step "train_device in two groups" shared "${groups[@]}" ./train_device
}

check() {
    step "checks, mapped" pair "${two[@]}" --set device.wait_limit=2s ./gpu_check
    step "checks, proxy" pair "${two[@]}" --set device.way=proxy --set device.wait_limit=2s ./gpu_check 16
    step "collectives in two groups" shared "${groups[@]}" ./gpu_check 16 collectives
    step "collectives in two groups, TCP" shared "${groups[@]}" --set transport.allow=tcp ./gpu_check 16 collectives
    step "software NIC, driven by kernels" ./gpu_nic
}

# The others go on with a kernel that waits; for ever, as far as the limit goes.
survivors=("${two[@]}" --on-failure continue --set device.wait_limit=0)

# Runs a job that is to fail and to say something, before so many seconds are over.
fails() { # SECONDS TEXT COMMAND...
    local seconds=$1 text=$2 code
    shift 2
    timeout --foreground -k 5 "$seconds" "$@" > "$scratch/said" 2>&1
    code=$?
    cat "$scratch/said"
    [ $code -ne 0 ] && [ $code -ne 124 ] && grep -q -- "$text" "$scratch/said"
}

loss() {
    local all="the loss of a rank: all checks passed"
    step "a rank dies, mapped" pair fails 100 "$all" "${survivors[@]}" ./gpu_check 1 loss
    step "a rank dies, proxy" pair fails 100 "$all" "${survivors[@]}" --set device.way=proxy ./gpu_check 1 loss
    # Rank 1 of the bench is killed in the middle of it.
    local dying='[ "$SPMD_RANK" = 0 ] || exec timeout -s KILL 3 ./gpu_bench; exec ./gpu_bench'
    local bench=(--set device.heap_bytes=700MiB sh -c "$dying")
    step "a rank of the bench dies" pair fails 60 "Error: .*rank 1 " "${survivors[@]}" "${bench[@]}"
    step "a rank of the bench dies and ends the job" pair fails 60 "rank 1 " "${two[@]}" --set device.wait_limit=0 "${bench[@]}"
    step "a heap that is too large" pair fails 60 "bytes of the GPU's memory are wanted" \
        "${two[@]}" --set device.heap_bytes=1TiB ./device_put
}

sanitize() {
    local tool=compute-sanitizer
    command -v $tool > /dev/null || { echo "== sanitize: NOT RUN, there is no $tool"; return; }
    # Without MPS, which the tool does not know.
    step "memcheck, mapped" "${two[@]}" --set device.wait_limit=5s $tool --error-exitcode 9 ./gpu_check 64
    step "memcheck, proxy" "${two[@]}" --set device.way=proxy --set device.wait_limit=5s $tool --error-exitcode 9 \
        ./gpu_check 64
}

# Every peer prints its own lines; here they become lines of `key figure`.
peers() {
    command -v nvcc > /dev/null || { echo "no nvcc: peers NOT measured" >&2; return; }
    local nvshmem
    nvshmem=$(python3 -c 'import nvidia.nvshmem as m; print(list(m.__path__)[0])' 2> /dev/null)
    nvcc -O3 -arch=sm_90 peers/floors.cu -o "$scratch/floors" &
    if [ -n "$nvshmem" ]; then
        ln -s "$nvshmem/lib/libnvshmem_host.so.3" "$scratch/libnvshmem_host.so"
        nvcc -O3 -arch=sm_90 -rdc=true -I"$nvshmem/include" peers/nvshmem.cu -o "$scratch/nvshmem" -L"$scratch" \
            -L"$nvshmem/lib" -lnvshmem_host -lnvshmem_device -lcuda -lnvidia-ml 2> /dev/null &
    fi
    wait
    for peer in floors nvshmem; do
        [ -x "$scratch/$peer" ] || continue
        mkdir "$scratch/$peer.d"
        (cd "$scratch" && LD_LIBRARY_PATH=$nvshmem/lib:${LD_LIBRARY_PATH:-} timeout 60 "./$peer" 1 "$scratch/$peer.d" &
            cd "$scratch" && LD_LIBRARY_PATH=$nvshmem/lib:${LD_LIBRARY_PATH:-} timeout 60 "./$peer" 0 "$scratch/$peer.d"
            wait) > "$scratch/$peer.txt" 2>&1
    done
    python3 -c 'import torch' 2> /dev/null && NCCL_NVLS_ENABLE=0 timeout 120 python3 peers/nccl.py > "$scratch/nccl.txt" 2>&1
    sed -nE 's/^nvshmem signal .* ([0-9.]+)$/nvshmem signal_relaxed \1/p
        s/^nvshmem putsig block1024 ([0-9]+) B .* ([0-9.]+)$/nvshmem put_signal_\1 \2/p
        s/^nvshmem put grid ([0-9]+): ([0-9.]+) .*/nvshmem put_blocks_\1 \2/p
        s/^put grid ([0-9]+): ([0-9.]+) .*/stores put_blocks_\1 \2/p
        s/^copy engine: ([0-9.]+) .*/stores copy_engine \1/p
        s/^nccl graph allreduce ([0-9]+) B: median ([0-9.]+) us.*/nccl all_reduce_\1 \2/p' "$scratch"/*.txt
}

bench() {
    : > "$scratch/ours" > "$scratch/peers"
    if [ "$gpus" -lt 2 ]; then
        echo "one GPU: what goes from GPU to GPU, and peers, are NOT measured" >&2
    else
        "${two[@]}" --set device.heap_bytes=700MiB ./gpu_bench >> "$scratch/ours" || failed=1
        peers > "$scratch/peers"
    fi
    pair "${two[@]}" --set device.way=proxy ./gpu_bench >> "$scratch/ours" || failed=1
    echo "== figures: key, ours, unit; a peer's figure and how many times as fast ours is"
    awk 'FILENAME == ARGV[1] { peer[$2] = peer[$2] " " $1 " " $3; next }
        # The number of threads that is best for us stands for a size.
        { key = $1; sub(/_threads_.*/, "", key); if (key != $1 && $3 == "us" && (!(key in best) || $2 < best[key])) best[key] = $2 }
        { print $1, $2, $3; if ($1 in peer) compare($1, $2, $3) }
        END { for (key in best) { print key, best[key], "us (best number of threads)"; if (key in peer) compare(key, best[key], "us") } }
        function compare(key, ours, unit, n, part, i, ratio) {
            n = split(peer[key], part, " ")
            for (i = 1; i < n; i += 2) {
                ratio = unit == "us" ? part[i + 1] / ours : ours / part[i + 1]
                printf "    %-8s %9.3f   x %.2f\n", part[i], part[i + 1], ratio
            }
        }' "$scratch/peers" "$scratch/ours"
}

for part in "${@:-examples check loss bench}"; do
    for name in $part; do
        case $name in examples | check | loss | sanitize | bench) $name ;; *) echo "no part '$name'" >&2; exit 64 ;; esac
    done
done
exit $failed

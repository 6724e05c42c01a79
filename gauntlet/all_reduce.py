"""Does an all-reduce between the GPUs of this host finish, give the right sum, and how fast: NCCL's hangs found early.

`check` runs this very file on an engine's Python (torch is there, Gauntlet is not) and ends it after a deadline.
Bus bandwidth is NCCL's own definition: bytes / time × 2(n−1)/n, comparable across n.
"""

import json
import os
import signal
import subprocess
import sys

SIZES = [4096 * 4**step for step in range(8)]  # 4 KiB … 64 MiB: what tensor parallelism sends per layer lies between
REPEATS = 50
SUSPECTS = [
    "peer-to-peer access broken by the IOMMU or ACS (verify.yml shows both; try NCCL_P2P_DISABLE=1)",
    "/dev/shm too small or full",
    "an NCCL_* variable that does not fit this host (NCCL_ALGO, NCCL_PROTO, NCCL_GRAPH_FILE of another TP size)",
    "a GPU held by an earlier process that was never ended (nvidia-smi)",
]


def check(python: str, world: int, deadline_s: float, environment: dict[str, str] | None = None) -> dict:
    """{'world', 'finished', 'rows': [{'bytes', 'us', 'bus_gb_s'}], 'nccl', 'reason', 'suspects'}.

    A hang, a crash and a wrong sum are answers (`finished` false with the `reason`), not exceptions.
    """
    process = subprocess.Popen(
        [python, os.path.abspath(__file__), str(world)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "NCCL_NVLS_ENABLE": "0", **(environment or {})},
    )
    try:
        out, err = process.communicate(timeout=deadline_s)
        reason = None if process.returncode == 0 else f"exit status {process.returncode}: {err.strip()[-500:]}"
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, _ = process.communicate()
        reason = f"no end within {deadline_s:g} s"
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    return {
        "world": world,
        "finished": reason is None,
        "nccl": next((line["nccl"] for line in lines if "nccl" in line), None),
        "rows": [line for line in lines if "bytes" in line],
        "reason": reason,
        "suspects": [] if reason is None else SUSPECTS,
    }


def worker(rank: int, world: int) -> None:
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=world, device_id=torch.device("cuda", rank))
    if rank == 0:
        print(json.dumps({"nccl": ".".join(map(str, torch.cuda.nccl.version()))}), flush=True)
    for size in SIZES:
        data = torch.ones(size // 2, dtype=torch.bfloat16, device="cuda")
        dist.all_reduce(data)
        if not bool((data == world).all()):
            raise SystemExit(f"wrong sum at {size} bytes")
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        dist.barrier()
        begin.record()
        for _ in range(REPEATS):
            dist.all_reduce(data)
        end.record()
        torch.cuda.synchronize()
        us = begin.elapsed_time(end) * 1000 / REPEATS
        if rank == 0:
            bus = size / us * 2 * (world - 1) / world / 1000
            print(json.dumps({"bytes": size, "us": round(us, 2), "bus_gb_s": round(bus, 2)}), flush=True)
    dist.destroy_process_group()


def main(world: int) -> None:
    import torch

    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29577")
    torch.multiprocessing.spawn(worker, args=(world,), nprocs=world)


if __name__ == "__main__":
    main(int(sys.argv[1]))

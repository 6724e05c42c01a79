"""A failed start must be named by its cause, and nothing may be advised that cannot work.

The journals are public cases (tests/cases) and recordings; each is asked as its whole kind: with and without other
failures beside it, behind prefixes of other languages, and among the noise of a healthy start.
"""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from gauntlet import diagnose
from gauntlet.diagnose import look
from gauntlet.errors import GauntletError

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests/cases"
RECORDINGS = ROOT / "tests/recordings/sglang-0.5.16-h200"
CATALOG = {path.stem: yaml.safe_load(path.read_text()) for path in sorted((ROOT / "catalog/diagnoses").glob("*.yml"))}


def case(path):
    return (CASES / path).read_text().splitlines()


def names(lines):
    return [found["name"] for found in diagnose.find(lines, CATALOG)]


def first(lines):
    return diagnose.find(lines, CATALOG)[0]


@pytest.mark.parametrize(
    ("path", "name", "words"),
    [
        ("10-mem-fraction-no-window/try-084.log", "pool-memory", "no memory is left for the KV cache"),
        (
            "10-mem-fraction-no-window/try-085.log",
            "cuda-out-of-memory",
            "448.00 MiB wanted, 201.31 MiB of 44.39 GiB free",
        ),
        ("10-mem-fraction-no-window/template-bug.log", "pool-memory-template", "mem-fraction-static is 0.2"),
        ("12-spec-needs-extra-buffer/journal.log", "extra-buffer-needed", "Qwen3_5MoeForConditionalGeneration"),
        (
            "14-eagle3-without-draft/journal-llama.log",
            "eagle-without-drafter",
            "took LlamaForCausalLM as its own drafter",
        ),
        ("14-eagle3-without-draft/journal-qwen.log", "eagle-without-drafter", "the model file is not at fault"),
        ("15-draft-context-shorter/journal.log", "drafter-too-short", "outside of a table"),
        ("16-unknown-architecture/a.log", "model-type-unknown", "transformers is too old for the model type glm5_next"),
        (
            "16-unknown-architecture/b.log",
            "architecture-unknown",
            "SGLang is too old for the architecture Glm4ForCausalLM",
        ),
        ("17-cuda-runtime-mismatch/nvrtc.log", "library-missing", "built for CUDA 12 (libnvrtc.so.12)"),
        ("17-cuda-runtime-mismatch/symbol.log", "library-symbol", "_ZN3c104cuda9SetDeviceEa"),
        ("17-cuda-runtime-mismatch/err802.log", "driver-not-initialised", "the driver stack is not initialised"),
        (
            "19-nccl-shm-too-small/old-wording.log",
            "shared-memory-full",
            "/dev/shm is too small or full, first seen by rank 0",
        ),
        ("19-nccl-shm-too-small/new-wording.log", "shared-memory-full", "at /dev/shm/nccl-WU88OE"),
        ("20-orphan-schedulers-hold-gpu/journal.log", "port-taken", "31234"),
        ("36-systemd-start-timeout/a.log", "start-timeout", "still loading"),
        ("36-systemd-start-timeout/b.log", "model-type-unknown", "qwen3_5"),
        ("51-locale-and-timestamps/journal-fr.txt", "pool-memory", "no memory is left"),
        ("51-locale-and-timestamps/dmesg-zh.txt", "killed-for-memory", "90001 (python)"),
    ],
)
class TestCases:
    def test_the_cause_is_named(self, path, name, words):
        found = first(case(path))
        assert found["name"] == name
        assert words in found["cause"]

    def test_among_the_lines_of_a_start_that_went_well_so_far(self, path, name, words):
        healthy = (RECORDINGS / "hybrid-ar.log").read_text().splitlines()[:9]
        assert names([*healthy, *case(path)])[0] == name

    def test_behind_a_prefix_in_another_language(self, path, name, words):
        assert names([f"oct. 30 00:20:12 hôte sglang[5]: {line}" for line in case(path)])[0] == name

    def test_beside_the_echoes_that_follow(self, path, name, words):
        echoes = [
            "RuntimeError: CUDA error: an illegal memory access was encountered",
            "gpu-host:1:2 [3] proxy.cc:1326 NCCL WARN Socket recv failed",
            "torch.distributed.DistBackendError: NCCL error: unhandled system error",
        ]
        assert names([*case(path), *echoes])[0] == name


class TestFoundingFailures:
    @pytest.mark.parametrize("name", ["eagle3-bad-steps-only", "eagle3-bad-topk-only"])
    def test_recorded_bare_asserts_and_type_errors(self, name):
        assert "give all three" in first((RECORDINGS / f"{name}.log").read_text().splitlines())["remedy"].lower()

    def test_zero_running_requests_in_each_wording_and_only_advice_of_its_generation(self):
        old = first(["AssertionError: max_running_request is zero"])
        new = first([
            "RuntimeError: Hybrid (mamba/linear-attention) state cache is too small to serve any requests. "
            "max_mamba_cache_size=2, mamba_ratio=5, resulting max_num_reqs=0. Try: (1) reduce --max-running-requests"
        ])  # fmt: skip
        newest = first(["RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. "
                        "Computed max_mamba_cache_size=-3 (total_rest_memory=1.2 GB"])  # fmt: skip
        assert old["remedy"].startswith("Lower max-running-requests")
        for found in (new, newest):
            assert "max-running-requests alone does not help" in found["remedy"].replace("\n", " ")
            assert not found["remedy"].startswith("Lower max-running-requests")
        assert "2 slots" in new["cause"] and "-3 slots" in newest["cause"]

    @pytest.mark.parametrize(
        ("line", "name"),
        [
            ("ImportError: cannot import name 'X' from 'compressed_tensors' (/opt/x)", "quantization-package"),
            ("AttributeError: nvfp4_pack_quantized", "quantization-package"),
            ("RuntimeError: Cannot find any model weights with `/srv/gauntlet/models/x`", "weights-missing"),
            ("SafetensorError: Error while deserializing header: MetadataIncompleteBuffer", "weights-partial"),
            ("E gguf_init_from_file: failed to open GGUF file '/srv/x.gguf' (No such file)", "weights-missing"),
            ("ERROR: [Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use",
             "port-taken"),
            ("huggingface_hub.errors.GatedRepoError: 403 Client Error.", "repository-gated"),
            ("RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied", "memory-unbalanced"),
            ("Failed to initialize NVML: Driver/library version mismatch", "driver-mismatch"),
            ("RuntimeError: The NVIDIA driver on your system is too old (found version 12020).", "driver-mismatch"),
            ("gauntlet: silent for 310 s while GPUs 0, 1 are busy", "nccl-hang"),
            ("ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.5. Raise "
             "--mem-fraction-static above 0.640", "pool-memory"),
            ("mamba extra_buffer is not compatible with --disable-radix-cache ", "extra-buffer-without-radix"),
        ],
    )  # fmt: skip
    def test_what_else_people_meet(self, line, name):
        assert names([line])[0] == name

    def test_a_needed_minimum_is_passed_on(self):
        line = "Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.5. "
        found = first([line + "Raise --mem-fraction-static above 0.640 (minimum viable"])
        assert "above 0.640" in found["remedy"] and "mem-fraction-static 0.5 allows" in found["cause"]


class TestHealthy:
    @pytest.mark.parametrize("path", sorted(RECORDINGS.glob("*.log")), ids=lambda path: path.stem)
    def test_nothing_is_diagnosed_in_a_start_that_went_well(self, path):
        if "bad" not in path.stem:
            assert names(path.read_text().splitlines()) == []

    def test_lines_that_only_look_like_failures(self):
        assert names(case("16-unknown-architecture/c-noise.log")) == []

    def test_a_very_long_line_is_cut(self):
        assert len(first(case("16-unknown-architecture/b.log"))["line"]) <= 300


class TestFractions:
    """Case 10: the two messages ask for opposite changes; one step apart, neither advice can work."""

    LOW, HIGH = case("10-mem-fraction-no-window/try-084.log"), case("10-mem-fraction-no-window/try-085.log")

    def test_no_fraction_fits(self):
        said = look.no_window([(0.84, self.LOW), (0.85, self.HIGH)])
        assert "no fraction fits: 0.84" in said and "larger tp" in said

    @pytest.mark.parametrize(
        "attempts",
        [[(0.84, LOW)], [(0.85, HIGH)], [(0.6, LOW), (0.85, HIGH)], [(0.85, LOW), (0.84, HIGH)], []],
        ids=["one", "other", "far apart", "other way round", "none"],
    )
    def test_otherwise_nothing_is_claimed(self, attempts):
        assert look.no_window(attempts) == ""


class TestLeftovers:
    """Case 20: schedulers that outlived their launcher are named."""

    FOLDER = CASES / "20-orphan-schedulers-hold-gpu"
    PARENTS = {int(line.split()[1]): int(line.split()[2]) for line in (FOLDER / "ps.txt").read_text().splitlines()[1:]}
    PROCESSES = look.gpu_processes((FOLDER / "nvidia-smi-compute-apps.csv").read_text())

    def test_orphans_are_named_with_pid_parent_and_memory(self):
        said = look.leftovers(self.PROCESSES, self.PARENTS)
        assert "sglang::scheduler_DP0_TP0_EP0 (pid 2505781, parent 1, 100998 MiB)" in said
        assert "2505782" in said and "2505783" not in said  # of the others no parent is known

    def test_the_units_own_processes_are_no_orphans(self):
        assert "2505781" not in look.leftovers(self.PROCESSES, self.PARENTS, own=[2505781])

    def test_a_row_without_gpu_column_is_read_too(self):
        assert look.gpu_processes("42, python, 100 MiB\n") == [{"pid": 42, "process": "python", "memory": "100 MiB"}]


def test_shared_memory_is_named_with_size_and_use(monkeypatch):
    """Case 19: a container's default of 64 MiB, full."""
    with (CASES / "19-nccl-shm-too-small/df.txt").open() as file:
        row = next(line.split() for line in file if line.rstrip().endswith("/dev/shm"))
    status = SimpleNamespace(f_blocks=int(row[1]), f_bfree=int(row[3]), f_frsize=1024)
    monkeypatch.setattr(os, "statvfs", lambda path: status)
    assert look.shm() == "/dev/shm has 64 MiB, 100 % used"


class TestCatalog:
    @pytest.mark.parametrize("name", CATALOG)
    def test_every_entry_is_whole_and_its_words_are_found_by_a_pattern(self, name):
        entry = CATALOG[name]
        diagnose.find(["nothing"], {name: entry})
        groups = {group for pattern in entry["patterns"] for group in diagnose.compiled(pattern, name).groupindex}
        used = set(re.findall(r"\{(\w+)\}", entry["cause"] + entry["remedy"]))
        assert used <= groups

    @pytest.mark.parametrize("broken", [{"patterns": ["("]}, {"remedy": ""}, {"look": "moon"}, {"rnak": 1}])
    def test_a_broken_entry_is_refused_by_name(self, broken):
        entry = {"patterns": ["x"], "cause": "c", "remedy": "r", **broken}
        with pytest.raises(GauntletError, match="mine"):
            diagnose.find(["x"], {"mine": entry})


def test_case_table_is_covered():
    """Each public case of failures that is kept here is used above."""
    text = Path(__file__).read_text() + (Path(__file__).parent / "test_preflight.py").read_text()
    for number in ("10", "12", "14", "15", "16", "17", "19", "20", "36", "51"):
        assert f"{number}-" in text

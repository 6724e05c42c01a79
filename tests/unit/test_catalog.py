"""The catalog is data that people edit by hand on hosts that nobody else has: every mistake must name its file."""

import hashlib
import json
from pathlib import Path

import pytest

from gauntlet import catalog
from gauntlet.catalog.reading import read_prompts, read_text
from gauntlet.errors import GauntletError
from gauntlet.plan import workload

ROOT = Path(__file__).parents[2]
CATALOG = ROOT / "catalog"


CAMPAIGN = "title: x\nmodels: [a]\nmethods: [b]\nmatrix: []\n"
WORKLOAD = "title: x\nprompts: 1\noutput_tokens: 1\n"
MODEL = "title: x\ncontext_window: 1\nengines: {}\nweights: "
SHAPED = MODEL + "{id: w, size_bytes: 1, source: {kind: local, path: /m}}\nshape: "


@pytest.fixture(scope="module")
def ours():
    return catalog.load([CATALOG])


@pytest.fixture
def write(tmp_path):
    def write(name, text):
        file = tmp_path / "catalog" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return tmp_path / "catalog"

    return write


def test_every_name_that_an_entry_uses_exists(ours):
    families = {method["family"] for method in ours.methods.values()}
    for campaign in ours.campaigns.values():
        assert set(campaign["models"]) <= ours.models.keys()
        for block in (campaign, *campaign["matrix"]):
            assert set(block.get("methods") or []) <= ours.methods.keys() | families
            assert set(block.get("workloads") or []) <= ours.workloads.keys()
        if isinstance(campaign["environments"], list):
            assert set(campaign["environments"]) <= ours.settings.keys()
    for method in ours.methods.values():
        assert set(method["models"] or []) <= ours.models.keys()


def test_the_catalogs_of_our_inventories_load():
    for folder in (ROOT / "inventory").glob("*/catalog"):
        catalog.load([CATALOG, folder])


def test_a_family_defines_its_members_and_a_member_adds_to_it(ours):
    b15, b16 = ours.methods["ddtree-b15"], ours.methods["ddtree-b16"]
    assert b15["family"] == b16["family"] == "ddtree"
    assert b16["engines"]["sglang"]["arguments"]["speculative-algorithm"] == "DDTREE"
    assert b16["engines"]["sglang"]["requires"] == {
        "algorithm": "DDTREE", "release": "none", "page_size": 1, "attention_backend": "triton",
    }  # fmt: skip
    assert len(b16["notes"]) == len(b15["notes"]) + 1


def test_a_later_folder_replaces_whole_entries_and_whole_families(write):
    folder = write("methods/ngram.yml", "title: mine\nmembers:\n  ngram-mine: {}\nengines: {llamacpp: {}}\n")
    write("models/smollm2-135m.yml", (CATALOG / "models/smollm2-135m.yml").read_text().replace("parallel:", "slots:"))
    found = catalog.load([CATALOG, folder])
    assert [name for name, method in found.methods.items() if method["family"] == "ngram"] == ["ngram-mine"]
    assert "parallel" not in found.models["smollm2-135m"]["engines"]["llamacpp"]["arguments"]
    assert "dflash" in found.methods


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("campaigns/x.yml", CAMPAIGN + "metods: [b]\n", "unknown key 'metods'; did you mean 'methods'"),
        ("campaigns/x.yml", "title: x\nmethods: [b]\nmatrix: []\n", "x.yml lacks 'models'"),
        ("campaigns/x.yml", "title: x\nmodels: a\nmethods: [b]\nmatrix: []\n", "models is 'a'; it takes a list"),
        ("campaigns/x.yml", CAMPAIGN + "tp: [0]\n", "tp holds 0; it takes numbers from 1"),
        ("campaigns/x.yml", CAMPAIGN + "tp: [two]\n", "a value of tp is 'two'"),
        ("campaigns/x.yml", CAMPAIGN + "tuning: [tunned]\n", "stock or tuned"),
        ("campaigns/x.yml", CAMPAIGN + "repeats: true\n", "repeats is True; it takes a whole number"),
        ("campaigns/x.yml", "title: x\ntitle: y\n", "'title' is given twice"),
        ("campaigns/x.yml", "title: [x\n", "no readable YAML"),
        ("campaigns/x.yml", "- x\n", "holds no mapping"),
        ("workloads/x.y.yml", WORKLOAD, "'x.y' is no name"),
        ("workloads/x.yml", "title: x\nprompts: a\noutput_tokens: 0\n", "output_tokens is 0"),
        ("workloads/x.yml", WORKLOAD + "kind: context\ntext: t\n", "needs 'context_tokens'"),
        ("models/x.yml", MODEL + "{id: w, size_bytes: 1, source: {kind: hub, repository: r}}\n", "lacks 'revision'"),
        ("models/x.yml", MODEL + "{id: w, size_bytes: 1, source: {kind: ftp}}\n", "it takes hub or wheel or local"),
        ("models/x.yml", MODEL + "{id: w, source: {kind: local, path: /m}}\n", "weights lacks 'size_bytes'"),
        ("models/x.yml", SHAPED + "{layer: 1}\n", "shape: unknown key 'layer'; did you mean 'layers'"),
        ("models/x.yml", SHAPED + "{full: {head_dim: 1}}\n", "shape.full: unknown key 'head_dim'"),
        ("models/x.yml", SHAPED + "{linear: [1]}\n", "shape.linear is [1]; it takes a mapping"),
        ("campaigns/x.yml", CAMPAIGN + "client: {think: 1}\n", "client: unknown key 'think'; did you mean 'think_s'"),
        ("methods/x.yml", "title: x\nengines: {sglang: {argument: {}}}\n", "did you mean 'arguments'"),
        ("methods/x.yml", "title: x\nengines: {sglang: {requires: {pagesize: 1}}}\n", "did you mean 'page_size'"),
        ("methods/x.yml", "name: y\ntitle: x\nengines: {}\n", "its name is the file's"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_sentence_with_the_file(write, name, text, sentence):
    with pytest.raises(GauntletError) as error:
        catalog.load([write(name, text)])
    assert sentence in str(error.value) and Path(name).name in str(error.value)


def test_a_folder_that_is_not_there_is_said(tmp_path):
    with pytest.raises(GauntletError, match="no catalog folder"):
        catalog.load([tmp_path / "nothing"])


def test_short_questions_cover_five_kinds(ours):
    ids = [prompt["id"] for prompt in workload.content(ours.workloads["short-512"])["prompts"]]
    assert len(ids) >= 12
    assert {name.partition("-")[0] for name in ids} == {"code", "maths", "prose", "translation", "extraction"}


def test_agents_work_over_at_least_eight_turns_of_tools(ours):
    for prompt in workload.content(ours.workloads["agentic"])["prompts"]:
        roles = [message["role"] for message in prompt["conversation"]]
        assert roles[:2] == ["system", "user"] and roles.count("tool") >= 8
        calls = [json.loads(m["content"]) for m in prompt["conversation"] if m["role"] == "assistant"]
        assert all(call.keys() == {"tool", "arguments"} for call in calls)


def test_contexts_are_cut_from_one_text_and_begin_differently(ours):
    """A common beginning would be found in the prefix cache; another text elsewhere would be another cell."""
    text = read_text(CATALOG / "prompts/python-reference.txt.gz")
    told = (CATALOG / "prompts/README.md").read_text()
    assert hashlib.sha256(text.encode()).hexdigest() in told
    for name in ("context-3k", "context-30k", "context-100k"):
        content = workload.content(ours.workloads[name])
        assert len({prompt["text"][:200] for prompt in content["prompts"]}) == len(content["prompts"]) > 1
        assert all(len(prompt["text"]) == 6 * content["context_tokens"] for prompt in content["prompts"])


def test_another_set_of_prompts_needs_a_path_and_field_names(write):
    folder = write(
        "workloads/mine.yml",
        "title: mine\nprompts: {path: sets/mine.jsonl, id: task_id, text: prompt}\noutput_tokens: 8\n",
    )
    write(
        "sets/mine.jsonl",
        '{"task_id": 7, "prompt": "Say \u2028 hello", "messages": "ignored"}\n\n{"task_id": 8, "prompt": "b"}\n',
    )
    content = workload.content(catalog.load([folder]).workloads["mine"])
    assert content["prompts"] == [{"id": "7", "text": "Say \u2028 hello"}, {"id": "8", "text": "b"}]


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("{", "line 1 is no JSON"),
        ('{"id": 1}', "line 1 holds none of 'text', 'messages', 'conversation'"),
        ('{"id": 1, "text": "a", "messages": []}\n{"id": 1, "text": "a"}', "line 2 repeats the id '1'"),
        ('{"id": 1, "text": "a", "messages": [1]}', "line 1 holds 2 of"),
        ("", "holds no prompt"),
    ],
)
def test_prompts_that_cannot_be_read_name_the_line(tmp_path, lines, sentence):
    (tmp_path / "p.jsonl").write_text(lines)
    with pytest.raises(GauntletError, match=sentence):
        read_prompts(tmp_path / "p.jsonl")


def test_prompts_of_the_wrong_kind_are_refused(write):
    folder = write("workloads/mine.yml", "title: mine\nkind: multi_turn\nprompts: mine.jsonl\noutput_tokens: 8\n")
    write("prompts/mine.jsonl", '{"id": 1, "text": "a"}\n')
    with pytest.raises(GauntletError, match="a prompt of kind multi_turn needs an id and conversation"):
        workload.content(catalog.load([folder]).workloads["mine"])


@pytest.mark.parametrize("kind", ["models", "methods", "workloads", "campaigns"])
def test_the_documentation_has_every_entry_in_its_table(ours, kind):
    section = (ROOT / "docs/catalog.md").read_text().partition(f"## {kind.capitalize()}\n")[2].partition("\n## ")[0]
    table = section.partition("| name |")[2].partition("\n\n")[0]
    named = [name for row in table.splitlines()[2:] for name in row.split("|")[1].strip().split(", ")]
    assert sorted(named) == sorted(getattr(ours, kind))


def test_a_workload_of_ones_own_may_ask_the_prompts_of_the_common_catalog(write):
    """A copy of a text in every inventory would be another text one day; one of the same name beside it comes first."""
    folder = write("workloads/mine.yml", "title: mine\nprompts: short.jsonl\noutput_tokens: 8\n")
    ours = workload.content(catalog.load([CATALOG]).workloads["short-128"])
    assert workload.content(catalog.load([CATALOG, folder]).workloads["mine"])["prompts"] == ours["prompts"]
    write("prompts/short.jsonl", '{"id": "own", "text": "x"}\n')
    mine = workload.content(catalog.load([CATALOG, folder]).workloads["mine"])
    assert [prompt["id"] for prompt in mine["prompts"]] == ["own"]

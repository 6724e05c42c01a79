"""Folders as people really have them: the right files are staged, and a folder that is not whole says why it is not."""

import json
import shutil
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gauntlet.errors import GauntletError
from gauntlet.weights import contents, safetensors

CASES = Path(__file__).parents[1] / "cases"
WEIGHTS = {"id": "tiny", "format": "safetensors", "source": {"kind": "local", "path": "/x"}}


def files(folder):
    return {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}


def of(folder, **more):
    return contents.of_folder(files(folder), WEIGHTS | more)


def tensor_bytes(folder, selection):
    return sum(sum(safetensors.tensors(folder / name).values()) for name in selection.weights)


class TestTwoFormatsInOneFolder:
    """Sized by every *.safetensors, a model counts double and the tmpfs is full: the index says what is loaded."""

    folder = CASES / "32-two-formats-in-one-folder/model"

    def test_consolidated_beside_shards(self):
        selection = of(self.folder / "both")
        assert tensor_bytes(self.folder / "both", selection) == 512
        assert selection.left_out == ["consolidated.safetensors"]
        assert "config.json" in selection.files and "model.safetensors.index.json" in selection.files

    def test_two_quantisations(self):
        selection = of(self.folder / "two-quants")
        assert selection.weights == ["model-00001-of-00001.safetensors"]
        assert selection.left_out == ["model-fp8-00001-of-00001.safetensors"]

    def test_names_that_differ_only_in_case(self):
        selection = of(self.folder / "case")
        assert selection.weights == ["model.safetensors"]
        assert selection.left_out == ["Model.safetensors"]
        assert any("Model.safetensors and model.safetensors differ only in case" in note for note in selection.notes)

    def test_only_consolidated_goes_by_its_own_index(self):
        selection = of(self.folder / "only-consolidated")
        assert selection.index == "consolidated.safetensors.index.json"
        assert selection.weights == ["consolidated-00001-of-00001.safetensors"]
        assert selection.left_out == []

    def test_no_index_and_two_candidates_asks(self, tmp_path):
        shutil.copytree(self.folder / "two-quants", tmp_path / "model")
        (tmp_path / "model/model.safetensors.index.json").unlink()
        with pytest.raises(GauntletError, match=r"no index says which is the model: .*fp8.*; name its files in the"):
            of(tmp_path / "model")

    def test_files_that_the_catalog_names_settle_it(self):
        wanted = {"config.json": {}, "model-fp8-00001-of-00001.safetensors": {}}
        selection = of(self.folder / "two-quants", files=wanted)
        assert selection.files == sorted(wanted)
        assert "model-00001-of-00001.safetensors" in selection.left_out


class TestIndexMissingStaleWrong:
    """An interrupted download, an index nobody regenerated and a wrong map need three different repairs."""

    folder = CASES / "30-index-missing-stale-wrong/model"

    def test_missing_names_the_shard(self):
        with pytest.raises(GauntletError, match=r"^missing: model-00002-of-00003\.safetensors$"):
            of(self.folder / "missing")

    def test_stale_blames_the_index_and_not_the_weights(self):
        with pytest.raises(GauntletError, match="index is stale, the tensors look complete; get the index again"):
            of(self.folder / "stale")

    def test_wrong_map_names_the_tensor(self):
        sentence = r"^tensor b is in model-00001-of-00002\.safetensors, .*index\.json says model-00002-of-00002"
        with pytest.raises(GauntletError, match=sentence):
            of(self.folder / "wrongmap")

    def test_a_tensor_that_is_in_no_file_is_named(self, tmp_path):
        shutil.copytree(CASES / "32-two-formats-in-one-folder/model/both", tmp_path / "model")
        index = tmp_path / "model/model.safetensors.index.json"
        content = json.loads(index.read_text())
        content["weight_map"]["lm_head"] = "model-00002-of-00002.safetensors"
        index.write_text(json.dumps(content))
        with pytest.raises(GauntletError, match="tensor lm_head is in no file"):
            of(tmp_path / "model")

    def test_a_wrong_total_is_a_note(self, tmp_path):
        """Public repositories have wrong totals and load well."""
        shutil.copytree(CASES / "32-two-formats-in-one-folder/model/both", tmp_path / "model")
        index = tmp_path / "model/model.safetensors.index.json"
        index.write_text(index.read_text().replace("512", "1024"))
        assert any("says 1024 bytes of tensors, there are 512" in note for note in of(tmp_path / "model").notes)

    @pytest.mark.parametrize("text", ["", "{}", "[]", '{"weight_map": {}}', '{"weight_map": {"a": 1}}', "\0" * 8])
    def test_an_index_that_is_none_is_a_sentence(self, tmp_path, text):
        shutil.copytree(self.folder / "missing", tmp_path / "model")
        (tmp_path / "model/model.safetensors.index.json").write_text(text)
        with pytest.raises(GauntletError, match=r"model\.safetensors\.index\.json is not an index"):
            of(tmp_path / "model")


def test_other_formats_and_hidden_files_are_left_out(tmp_path):
    """A repository's .bin copies would double the size; .cache and .git are not the model's."""
    shutil.copytree(CASES / "32-two-formats-in-one-folder/model/both", tmp_path / "model")
    for name in ("pytorch_model.bin", "original/consolidated.00.pth", "tiny-q4.gguf", ".cache/x/model.safetensors"):
        (tmp_path / "model" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "model" / name).write_bytes(b"x")
    selection = of(tmp_path / "model")
    assert {"pytorch_model.bin", "original/consolidated.00.pth", "tiny-q4.gguf"} < set(selection.left_out)
    assert not [name for name in (*selection.files, *selection.left_out) if name.startswith(".")]


def test_a_gguf_entry_brings_all_of_its_parts(tmp_path):
    names = ["m-Q4-00001-of-00002.gguf", "m-Q4-00002-of-00002.gguf", "m-Q8.gguf", "README.md"]
    for name in names:
        (tmp_path / name).write_bytes(b"GGUF")
    weights = {"id": "m", "format": "gguf", "entry": names[0]}
    selection = contents.of_folder(files(tmp_path), weights)
    assert (selection.files, selection.left_out) == (names[:2], ["README.md", "m-Q8.gguf"])
    (tmp_path / names[1]).unlink()
    with pytest.raises(GauntletError, match="missing: m-Q4-00002-of-00002.gguf"):
        contents.of_folder(files(tmp_path), weights)
    with pytest.raises(GauntletError, match="does not begin with GGUF"):
        (tmp_path / "m-Q8.gguf").write_bytes(b"\0" * 100)
        contents.of_folder(files(tmp_path), weights | {"entry": "m-Q8.gguf"})


def st_file(path, header, data):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


HEADER = {
    "__metadata__": {"format": "pt"},
    "a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]},
    "scalar": {"dtype": "F32", "shape": [], "data_offsets": [12, 16]},
    "none": {"dtype": "F32", "shape": [0], "data_offsets": [16, 16]},
    "future": {"dtype": "F2_E9", "shape": [100], "data_offsets": [16, 20]},
}


def test_a_shape_is_whole_without_tensors_but_not_without_a_configuration(tmp_path):
    """A shape is served with made-up tensors: its folder is right with none, and wrong without what describes them."""
    weights = {"format": "shape", "entry": None, "files": {}}
    (tmp_path / "tokenizer.json").write_text("{}")
    files = {"tokenizer.json": tmp_path / "tokenizer.json"}
    with pytest.raises(GauntletError, match=r"config\.json"):
        contents.of_folder(files, weights)
    (tmp_path / "config.json").write_text("{}")
    selection = contents.of_folder({**files, "config.json": tmp_path / "config.json"}, weights)
    assert selection.files == ["config.json", "tokenizer.json"] and not selection.weights


def test_header_gives_each_tensor_its_bytes(tmp_path):
    found = safetensors.tensors(st_file(tmp_path / "m.safetensors", HEADER, b"x" * 20))
    assert found == {"a": 12, "scalar": 4, "none": 0, "future": 4}


@given(kept=st.integers(0, 400))
def test_a_file_cut_anywhere_is_refused(tmp_path_factory, kept):
    """A truncated shard loads as garbage or dies late: its header tells its length."""
    path = st_file(tmp_path_factory.mktemp("cut") / "m.safetensors", HEADER, b"x" * 20)
    whole = path.read_bytes()
    path.write_bytes(whole[:kept])
    if kept < len(whole):
        with pytest.raises(GauntletError, match=r"m\.safetensors"):
            safetensors.tensors(path)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no safetensors header"),
        (b"\0" * 4096, "no safetensors header"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "no safetensors header"),
        (struct.pack("<Q", 2**60) + b"{}", "no safetensors header"),
        (struct.pack("<Q", 4) + b"[[]]", "cannot be read"),
        (struct.pack("<Q", 8) + b'{"a": 1}', "cannot be read"),
    ],
    ids=["empty", "zeros", "lfs pointer", "endless", "list", "no entry"],
)
def test_what_is_no_such_file_is_a_sentence(tmp_path, data, why):
    (tmp_path / "m.safetensors").write_bytes(data)
    with pytest.raises(GauntletError, match=why):
        safetensors.tensors(tmp_path / "m.safetensors")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"a": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 12]}}, "12 bytes, its shape needs 8"),
        ({"scalar": {"dtype": "F32", "shape": [], "data_offsets": [13, 17]}}, "gap or an overlap before tensor scalar"),
    ],
)
def test_tensors_that_do_not_cover_the_file_are_refused(tmp_path, change, why):
    with pytest.raises(GauntletError, match=why):
        safetensors.tensors(st_file(tmp_path / "m.safetensors", HEADER | change, b"x" * 20))

"""Guards against split models that open in part, from one shard only, or with riddles.

Also against names and paths that other programs choke on.
"""

from pathlib import Path, PureWindowsPath

import pytest

from stratadesk.engine.gguf_file import GgufFile
from stratadesk.engine.gguf_mapping import extended_path
from stratadesk.engine.gguf_shards import parse_shard_name
from stratadesk.errors import GgufError
from tests.gguf_builder import GgufBuilder, scalar, small_model, write_set


def failure(path: Path) -> GgufError:
    with pytest.raises(GgufError) as caught:
        GgufFile.open(path)
    return caught.value


@pytest.mark.parametrize("opened", [0, 1, 2, None])
def test_any_shard_or_the_folder_opens_the_set(tmp_path: Path, opened: int | None) -> None:
    paths = write_set(tmp_path, "Model.Q4", 3)
    with GgufFile.open(tmp_path if opened is None else paths[opened]) as gguf:
        assert gguf.shards == tuple(paths)
        assert gguf.path == paths[0]
        assert gguf.architecture == "qwen3moe"
        assert gguf.file_bytes == sum(path.stat().st_size for path in paths)
        for index in range(3):
            assert gguf.tensors[f"blk.{index}.attn_norm.weight"].shard == index
            assert bytes(gguf.data(f"blk.{index}.attn_norm.weight")) == bytes([index]) * 32


def test_missing_shards_are_listed_before_anything_else(tmp_path: Path) -> None:
    paths = write_set(tmp_path, "m", 4)
    paths[0].unlink()
    paths[2].unlink()
    paths[1].write_bytes(b"not even a GGUF file")
    error = failure(paths[3])
    assert error.sentence == (
        "2 of the 4 files of 'm' are missing: 'm-00001-of-00004.gguf', 'm-00003-of-00004.gguf'."
    )
    assert failure(paths[0]).sentence == error.sentence


def test_long_lists_of_missing_shards_are_cut(tmp_path: Path) -> None:
    (tmp_path / "m-00001-of-00100.gguf").touch()
    assert failure(tmp_path / "m-00001-of-00100.gguf").sentence.endswith("and 91 more.")


def test_set_of_which_nothing_is_there(tmp_path: Path) -> None:
    path = tmp_path / "m-00002-of-00004.gguf"
    assert failure(path).sentence == f"There is no file '{path}'."


def test_one_of_one_is_complete(tmp_path: Path) -> None:
    (path,) = write_set(tmp_path, "m", 1)
    with GgufFile.open(path) as gguf:
        assert gguf.shards == (path,)


def test_merged_file_says_zero_shards(tmp_path: Path) -> None:
    builder = small_model().add("split.no", scalar(2, 0)).add("split.count", scalar(2, 0))
    with GgufFile.open(builder.write(tmp_path / "merged.gguf")) as gguf:
        assert len(gguf.shards) == 1


def test_shards_under_each_others_names(tmp_path: Path) -> None:
    first, second = write_set(tmp_path, "m", 2)
    first.rename(tmp_path / "x")
    second.rename(first)
    (tmp_path / "x").rename(second)
    assert "says shard 2 of 2, its name says 1 of 2" in failure(first).sentence


def test_shard_under_a_name_of_its_own(tmp_path: Path) -> None:
    first, _ = write_set(tmp_path, "m", 2)
    renamed = first.rename(tmp_path / "renamed.gguf")
    assert "says shard 1 of 2, its name says 1 of 1" in failure(renamed).sentence


def test_tensor_in_two_shards(tmp_path: Path) -> None:
    _, second = write_set(tmp_path, "m", 2)
    builder = GgufBuilder().tensor("blk.0.attn_norm.weight", (8,))
    for key, value in {"split.no": 1, "split.count": 2}.items():
        builder.add(key, scalar(2, value))
    builder.write(second)
    assert "repeats the tensor 'blk.0.attn_norm.weight'" in failure(second).sentence


def test_raw_parts_say_how_to_join_them(tmp_path: Path) -> None:
    part = tmp_path / "big.gguf.part1of3"
    part.write_bytes(small_model().build()[:100])
    for path in (part, tmp_path):
        error = failure(path)
        assert error.sentence == (
            "'big.gguf.part1of3' is one of 3 pieces of a file that was cut by bytes."
        )
        assert "'big.gguf'" in error.remedy
        assert "cat" in error.remedy


def test_folder_with_one_model_ignores_side_files(tmp_path: Path) -> None:
    for name in ("model.gguf", "mmproj-F16.gguf", "model.imatrix.gguf"):
        small_model().write(tmp_path / name)
    (tmp_path / "README.md").touch()
    with GgufFile.open(tmp_path) as gguf:
        assert gguf.path.name == "model.gguf"


def test_folder_without_or_with_several_models(tmp_path: Path) -> None:
    assert "holds no GGUF model" in failure(tmp_path).sentence
    small_model().write(tmp_path / "a.gguf")
    write_set(tmp_path, "b", 2)
    error = failure(tmp_path)
    assert "holds 2 models: 'a.gguf', 'b-00001-of-00002.gguf'." in error.sentence


@pytest.mark.parametrize(
    "name", ["Модель", "模型", "全角\u3000空白", "🦙🦙", "it's", "x" * 240, "-n", "[x]", "a b%20c"]
)
def test_names_in_any_script(tmp_path: Path, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    paths = write_set(folder, "м模\u3000🦙", 2)
    with GgufFile.open(paths[1]) as gguf:
        assert len(gguf.tensors) == 2


def test_path_of_more_than_300_characters(tmp_path: Path) -> None:
    folder = tmp_path / ("a" * 150) / ("b" * 150)
    try:
        folder.mkdir(parents=True)
    except OSError:
        pytest.skip("this system is not set up for long paths")
    path = small_model().write(folder / "m.gguf")
    assert len(str(path)) > 300
    with GgufFile.open(path) as gguf:
        assert gguf.architecture == "qwen3moe"


def test_links_keep_their_own_neighbours(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    for path in write_set(blobs, "m", 2):
        blob = path.rename(blobs / f"blob{path.name[3]}{path.name[6]}")
        try:
            (snapshot / path.name).symlink_to(blob)
        except OSError:
            pytest.skip("this system does not let us make links")
    with GgufFile.open(snapshot / "m-00001-of-00002.gguf") as gguf:
        assert len(gguf.shards) == 2


def test_long_windows_paths_get_the_extended_form() -> None:
    long = "x" * 300
    assert extended_path("C:\\models\\m.gguf") == "C:\\models\\m.gguf"
    assert extended_path(f"C:\\{long}\\m.gguf") == f"\\\\?\\C:\\{long}\\m.gguf"
    share = f"\\\\server\\share\\{long}\\m.gguf"
    assert extended_path(share) == f"\\\\?\\UNC\\server\\share\\{long}\\m.gguf"
    assert extended_path(extended_path(share)) == extended_path(share)
    assert PureWindowsPath(extended_path(share)).name == "m.gguf"


@pytest.mark.parametrize(
    "name", ["m-00000-of-00002.gguf", "m-00003-of-00002.gguf", "m-1-of-2.gguf", "m.gguf"]
)
def test_other_names_are_single_files(name: str) -> None:
    assert parse_shard_name(name) is None

"""Guards against models that are not found, found twice, or silently passed over.

Also against a search that hangs in a circle of links or ends with an exception.
"""

import json
import os
import tomllib
from pathlib import Path

import pytest

from stratadesk.engine.gguf_cursor import Cursor
from stratadesk.models import Discovery, SkippedFile, find_models
from stratadesk.models.discovery import discover
from stratadesk.models.guide import VARIABLE, guide_path, is_guide
from stratadesk.models.stores import OLLAMA, Store, known_stores
from tests.gguf_builder import (
    U32,
    GgufBuilder,
    big_vocabulary,
    scalar,
    small_model,
    string,
    write_set,
)


@pytest.fixture(autouse=True)
def empty_working_folder(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("cwd"))


def search(folder: Path, name: str = "Here") -> Discovery:
    return discover([Store(name, folder)])


def reasons(found: Discovery) -> dict[str, str]:
    return {skipped.path.name: skipped.reason for skipped in found.skipped}


def write(folder: Path, name: str, builder: GgufBuilder | None = None) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return (builder or small_model(name=name)).write(folder / name)


def typed_model(kind: str) -> GgufBuilder:
    builder = small_model()
    builder.entries.insert(1, ("general.type", string(kind)))
    return builder


def link(path: Path, target: Path) -> Path:
    try:
        path.symlink_to(target, target_is_directory=target.is_dir())
    except OSError:
        pytest.skip("this system does not let us make links")
    return path


def test_facts_of_a_found_model(tmp_path: Path) -> None:
    path = write(tmp_path / "publisher" / "repo", "Qwen3-30B-A3B-Q4_K_M.gguf")
    (model,) = search(tmp_path, "LM Studio").models
    assert (model.path, model.store, model.name) == (path, "LM Studio", "Qwen3-30B-A3B-Q4_K_M")
    assert (model.architecture, model.shards) == ("qwen3moe", 1)
    assert model.total_bytes == path.stat().st_size
    assert (model.supported, model.why_not) == (True, None)


def test_unsupported_architecture_is_listed_and_marked(tmp_path: Path) -> None:
    write(tmp_path, "llama.gguf", small_model("llama"))
    (model,) = search(tmp_path).models
    assert not model.supported
    assert model.why_not
    assert "'llama'" in model.why_not
    assert "qwen3moe" in model.why_not


def test_a_file_cut_short_is_listed_and_marked(tmp_path: Path) -> None:
    whole = small_model().build()
    (tmp_path / "cut.gguf").write_bytes(whole[: len(whole) - 40])
    (model,) = search(tmp_path).models
    assert not model.supported
    assert "is truncated" in (model.why_not or "")
    assert "Download it again" in (model.why_not or "")


@pytest.mark.parametrize(("type_id", "name"), [(34, "TQ1_0"), (99, "unknown type 99")])
def test_a_tensor_type_that_is_not_computed_is_marked(
    tmp_path: Path, type_id: int, name: str
) -> None:
    write(tmp_path, "m.gguf", small_model().tensor("blk.0.x", (256,), type_id, bytes(54)))
    (model,) = search(tmp_path).models
    assert not model.supported
    assert name in (model.why_not or "")


def test_a_damaged_table_is_marked_and_ends_no_search(tmp_path: Path) -> None:
    write(tmp_path, "a.gguf", small_model().tensor("blk.0.x", (8,), offset=7))
    write(tmp_path, "b.gguf")
    found = {model.name: model.supported for model in search(tmp_path).models}
    assert found == {"a": False, "b": True}


def test_split_set_is_listed_once_with_its_total_size(tmp_path: Path) -> None:
    paths = write_set(tmp_path, "Big", 3)
    (model,) = search(tmp_path).models
    assert (model.path, model.name, model.shards) == (paths[0], "Big", 3)
    assert model.total_bytes == sum(path.stat().st_size for path in paths)


def test_first_shard_without_tensors_is_still_a_model(tmp_path: Path) -> None:
    first, _ = write_set(tmp_path, "m", 2)
    builder = GgufBuilder().add("general.architecture", string("qwen3moe"))
    builder.write(first)
    assert [model.shards for model in search(tmp_path).models] == [2]


def test_every_skipped_file_has_its_reason(tmp_path: Path) -> None:
    write(tmp_path, "mmproj-F16.gguf", small_model("clip"))
    write(tmp_path, "projector.gguf", typed_model("mmproj"))
    write(tmp_path, "x.imatrix.gguf")
    write(tmp_path, "lora.gguf", typed_model("adapter"))
    write(tmp_path, "vocab.gguf", big_vocabulary(10, 10))
    draft = small_model().add("qwen3moe.other", scalar(U32, 1))
    draft.entries[2] = ("qwen3moe.block_count", scalar(U32, 41))
    write(tmp_path, "Qwen-MTP.gguf", draft)
    write(tmp_path, "nameless.gguf", GgufBuilder().tensor("x", (1,)))
    (tmp_path / "text.gguf").write_bytes(b"<html>")
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "m.gguf.part").write_bytes(b"GGUF")
    (tmp_path / "big.gguf.part1of2").write_bytes(b"GGUF")
    (tmp_path / "abc.incomplete").write_bytes(b"GGUF and more")
    (tmp_path / "other.incomplete").write_bytes(b"safetensors")
    (tmp_path / "README.md").touch()
    write_set(tmp_path, "s", 3)[1].unlink()
    found = search(tmp_path)
    assert found.models == []
    assert reasons(found) == {
        "mmproj-F16.gguf": "a vision projector (mmproj), not a language model",
        "projector.gguf": "a vision projector (mmproj), not a language model",
        "x.imatrix.gguf": "an importance matrix, not a model",
        "lora.gguf": "a LoRA adapter, not a model",
        "vocab.gguf": "a vocabulary only, without weights",
        "Qwen-MTP.gguf": "a draft head (MTP) without its model",
        "nameless.gguf": "its header names no architecture",
        "text.gguf": "'text.gguf' is not a GGUF file (a web page: the download went wrong).",
        "empty.gguf": "'empty.gguf' is empty.",
        "m.gguf.part": "an unfinished download",
        "abc.incomplete": "an unfinished download",
        "big.gguf.part1of2": (
            "'big.gguf.part1of2' is one of 2 pieces of a file that was cut by bytes. Join them in "
            "order into 'big.gguf': 'cat' on Linux, 'copy /b' on Windows."
        ),
        "s-00001-of-00003.gguf": "1 of the 3 files of 's' are missing: 's-00002-of-00003.gguf'.",
    }


def test_whole_model_with_mtp_in_its_name_is_listed(tmp_path: Path) -> None:
    write(tmp_path, "Qwen3.5-35B-A3B-MTP-Q4_K_M.gguf")
    assert len(search(tmp_path).models) == 1


def test_circles_of_links_end(tmp_path: Path) -> None:
    write(tmp_path / "a", "m.gguf")
    link(tmp_path / "a" / "loop", tmp_path)
    link(tmp_path / "b", tmp_path / "a")
    link(tmp_path / "broken.gguf", tmp_path / "nowhere")
    found = search(tmp_path)
    assert [model.name for model in found.models] == ["m"]
    (skipped,) = found.skipped
    assert skipped.path.name == "broken.gguf"
    assert skipped.reason.startswith("cannot be read: ")


def test_same_file_by_links_is_listed_once(tmp_path: Path) -> None:
    blob = write(tmp_path / "blobs", "blob")
    for revision in ("r1", "r2"):
        (tmp_path / "snapshots" / revision).mkdir(parents=True)
        link(tmp_path / "snapshots" / revision / "m.gguf", blob)
    found = search(tmp_path)
    assert [model.path.parent.name for model in found.models] == ["r1"]
    listed = found.models[0].path
    assert [skipped.reason for skipped in found.skipped] == [f"the same file as {listed}"]


def test_copies_are_listed_once_but_not_files_of_equal_size(tmp_path: Path) -> None:
    first = write(tmp_path / "a", "m.gguf", small_model(name="same"))
    write(tmp_path / "b", "copy.gguf", small_model(name="same"))
    write(tmp_path / "c", "other.gguf", small_model(name="else"))
    found = search(tmp_path)
    assert [model.name for model in found.models] == ["m", "other"]
    assert reasons(found) == {"copy.gguf": f"a copy of {first}"}


def test_same_folder_in_two_stores_is_silent(tmp_path: Path) -> None:
    write(tmp_path, "m.gguf")
    (tmp_path / "bad.gguf").touch()
    found = discover([Store("One", tmp_path), Store("Two", tmp_path)])
    assert [model.store for model in found.models] == ["One"]
    assert len(found.skipped) == 1


def test_nameless_files_are_called_by_their_folder(tmp_path: Path) -> None:
    write(tmp_path / "Jan-v1", "model.gguf")
    assert [model.name for model in search(tmp_path).models] == ["Jan-v1"]


def test_names_in_any_script(tmp_path: Path) -> None:
    write(tmp_path / "Модели" / "模型\u3000🦙", "м\u3000模.GGUF")
    assert [model.name for model in search(tmp_path).models] == ["м\u3000模"]


def test_hidden_folders_and_very_deep_ones(tmp_path: Path) -> None:
    write(tmp_path / ".cache", "hidden.gguf")
    write(tmp_path.joinpath(*"abcdefghij"), "deep.gguf")
    found = search(tmp_path)
    assert found.models == []
    assert [skipped.reason for skipped in found.skipped] == [
        "not searched: too deep, or too many folders before it"
    ]


def test_unreadable_folder_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "open", "m.gguf")
    closed = tmp_path / "closed"
    closed.mkdir()
    scandir = os.scandir

    def refuse(path: str) -> object:
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    found = search(tmp_path)
    assert len(found.models) == 1
    assert found.skipped == [SkippedFile(closed, "cannot be read: Permission denied")]


def test_unreadable_store_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = os.stat
    service = tmp_path / "service"

    def refuse(path: object, *args: object, **kwargs: object) -> object:
        if str(path) == str(service):
            raise PermissionError(13, "Permission denied")
        return stat(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", refuse)
    found = search(service, OLLAMA)
    assert found.skipped == [SkippedFile(service, "cannot be read: Permission denied")]


def manifest(store: Path, name: str, content: object) -> None:
    path = store / "manifests" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def layers(digest: str) -> dict[str, object]:
    kinds = {"template": "sha256:0", "model": digest}
    prefix = "application/vnd.ollama.image."
    return {"layers": [{"mediaType": prefix + kind, "digest": d} for kind, d in kinds.items()]}


def test_ollama_manifests_lead_to_blobs(tmp_path: Path) -> None:
    blob = write(tmp_path / "blobs", "sha256-abc")
    manifest(tmp_path, "registry.ollama.ai/library/qwen3/30b", layers("sha256:abc"))
    (model,) = search(tmp_path, OLLAMA).models
    assert (model.path, model.name) == (blob, "qwen3:30b")


def test_ollama_names_and_troubles(tmp_path: Path) -> None:
    write(tmp_path / "blobs", "sha256-abc")
    manifest(tmp_path, "hf.co/unsloth/Qwen3/Q4", layers("sha256:abc"))
    manifest(tmp_path, "r/library/gone/1", layers("sha256:missing"))
    manifest(tmp_path, "r/library/images/1", {"layers": [{"mediaType": "x"}, 7]})
    manifest(tmp_path, "r/library/escape/1", layers("sha256:../../../etc/passwd"))
    manifest(tmp_path, "r/library/broken/1", "{not json")
    manifest(tmp_path, "r/library/list/1", "[1, 2]")
    found = search(tmp_path, OLLAMA)
    assert [model.name for model in found.models] == ["unsloth/Qwen3:Q4"]
    by_model = {skipped.path.parent.name: skipped.reason for skipped in found.skipped}
    assert by_model["gone"] == "an unfinished download: sha256-missing is missing"
    for model in ("images", "escape", "list"):
        assert by_model[model] == "a manifest without a GGUF model"
    assert by_model["broken"].startswith("a manifest that cannot be read")


def test_default_stores_on_linux(tmp_path: Path) -> None:
    home = tmp_path / "home"
    for folder in (
        ".lmstudio/models/p/lm-studio",
        ".cache/lm-studio/models/p/lm-studio-old",
        ".cache/huggingface/hub/models--o--n/snapshots/r/hugging-face",
        ".cache/llama.cpp/llama.cpp",
        ".local/share/Jan/data/llamacpp/models/jan",
    ):
        write(home / folder, f"{Path(folder).name}.gguf")
    found = discover(known_stores({}, home, windows=False))
    assert {(model.store, model.name) for model in found.models if home in model.path.parents} == {
        ("LM Studio", "lm-studio"),
        ("LM Studio", "lm-studio-old"),
        ("Hugging Face", "hugging-face"),
        ("llama.cpp", "llama.cpp"),
        ("Jan", "jan"),
    }


def folders(stores: list[Store], name: str) -> list[Path]:
    return [store.folder for store in stores if store.name == name]


def test_default_stores_on_windows(tmp_path: Path) -> None:
    env = {"LOCALAPPDATA": str(tmp_path / "Local"), "APPDATA": str(tmp_path / "Roaming")}
    stores = known_stores(env, tmp_path, windows=True)
    assert folders(stores, "llama.cpp") == [tmp_path / "Local" / "llama.cpp"]
    assert folders(stores, OLLAMA) == [tmp_path / ".ollama" / "models"]
    assert tmp_path / "Roaming" / "Jan" / "data" / "llamacpp" / "models" in folders(stores, "Jan")


def test_environment_moves_stores(tmp_path: Path) -> None:
    env = {
        "HF_HOME": "/hf",
        "OLLAMA_MODELS": "/ollama",
        "LLAMA_CACHE": "/llama",
        "STRATADESK_MODELS": os.pathsep.join(["/one", "", "/two"]),
    }
    stores = known_stores(env, tmp_path, windows=False)
    assert folders(stores, "Hugging Face") == [Path("/hf/hub")]
    assert folders(stores, OLLAMA)[0] == Path("/ollama")
    assert folders(stores, "llama.cpp")[0] == Path("/llama")
    assert folders(stores, "STRATADESK_MODELS") == [Path("/one"), Path("/two")]
    hub = known_stores({**env, "HF_HUB_CACHE": "/hub"}, tmp_path, windows=False)
    assert folders(hub, "Hugging Face") == [Path("/hub")]


@pytest.mark.parametrize("content", ['{"downloadsFolder": 7}', "[]", "not json", "[" * 99999])
def test_damaged_lm_studio_settings_do_no_harm(tmp_path: Path, content: str) -> None:
    (tmp_path / ".lmstudio").mkdir()
    (tmp_path / ".lmstudio" / "settings.json").write_text(content)
    stores = known_stores({}, tmp_path, windows=False)
    assert folders(stores, "LM Studio")[0] == tmp_path / ".lmstudio" / "models"


def test_lm_studio_folder_chosen_by_the_user(tmp_path: Path) -> None:
    (tmp_path / ".lmstudio-home-pointer").write_text(f"{tmp_path / 'elsewhere'}\n")
    (tmp_path / "elsewhere").mkdir()
    settings = {"downloadsFolder": str(tmp_path / "disk")}
    (tmp_path / "elsewhere" / "settings.json").write_text(json.dumps(settings))
    stores = known_stores({}, tmp_path, windows=False)
    assert folders(stores, "LM Studio")[:2] == [
        tmp_path / "disk",
        tmp_path / "elsewhere" / "models",
    ]


def test_find_models_takes_named_folders_and_files(tmp_path: Path) -> None:
    path = write(tmp_path / "one", "m.gguf")
    named = [path, tmp_path / "missing"]
    env = {"STRATADESK_MODELS": os.pathsep.join(map(str, named))}
    found = find_models(env, tmp_path / "home")
    assert [model.path for model in found.models if model.store == "STRATADESK_MODELS"] == [path]
    assert SkippedFile(tmp_path / "missing", "there is no such folder") in found.skipped


def test_models_folder_of_the_working_folder(tmp_path: Path) -> None:
    write(Path.cwd() / "models", "m.gguf")
    found = find_models({}, tmp_path)
    assert "m" in [model.name for model in found.models]


def test_working_folder_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr(os, "getcwd", refuse)
    assert folders(known_stores({}, tmp_path, windows=False), "Hugging Face")


def test_vocabularies_of_unknown_families_are_not_walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "m.gguf", small_model("llama"))

    def refuse(*_: object) -> None:
        raise AssertionError("the search walked through a vocabulary")

    monkeypatch.setattr(Cursor, "strings", refuse)
    assert len(search(tmp_path).models) == 1


def test_the_guide_is_found_in_a_package_and_beside_the_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / "stratadesk"
    monkeypatch.setattr("stratadesk.models.guide.__file__", str(package / "models" / "guide.py"))
    assert guide_path({}) is None
    beside = write(tmp_path / "site" / "assets", "guide.gguf")
    assert guide_path({}) == beside
    inside = write(package / "assets", "guide.gguf")
    assert guide_path({}) == inside


def test_the_wheel_takes_the_guide_to_where_the_package_looks_for_it() -> None:
    project = Path(__file__).parents[1] / "pyproject.toml"
    wheel = tomllib.loads(project.read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["only-include"] == ["stratadesk", "assets/guide.gguf"]
    assert wheel["sources"] == {"assets": "stratadesk/assets"}


def test_a_variable_puts_another_file_in_the_place_of_the_guide_or_none(tmp_path: Path) -> None:
    named = {VARIABLE: f" {tmp_path / 'other.gguf'} "}
    assert guide_path(named) == tmp_path / "other.gguf"
    assert guide_path({VARIABLE: ""}) is None
    assert guide_path({VARIABLE: " "}) is None


def test_a_home_of_a_user_that_is_not_known_stays_as_it_is_written() -> None:
    assert guide_path({VARIABLE: "~no-such-user/g.gguf"}) == Path("~no-such-user/g.gguf")


def test_the_guide_is_listed_first_under_its_name_whatever_its_file_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "x", "model-00007.gguf")
    env = {VARIABLE: str(path), "STRATADESK_MODELS": str(tmp_path / "x")}
    first, *others = find_models(env, tmp_path / "home").models
    assert (first.name, first.store, first.path) == ("guide", "bundled", path)
    assert others == []
    monkeypatch.setenv(VARIABLE, str(path))
    assert is_guide(path)
    assert is_guide(str(path))
    assert not is_guide(tmp_path / "guide.gguf")


def test_a_guide_that_is_named_but_gone_is_told(tmp_path: Path) -> None:
    found = find_models({VARIABLE: str(tmp_path / "gone.gguf")}, tmp_path / "home")
    assert SkippedFile(tmp_path / "gone.gguf", "there is no such file") in found.skipped

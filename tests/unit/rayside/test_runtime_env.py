"""Tests the fields of a runtime_env: what Ray takes is taken, and all else is refused by its name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bootstrap.kube.rayjob import document
from rayside.errors import InvalidYaml
from rayside.ray import jobs
from rayside.ray.debug import Debug
from rayside.ray.runtime_env import with_files_read
from tests.unit.scripted_rayjob import rayjob

# An integration test gives both tables to Ray itself. {folder} has a requirements.txt and an env.yaml.
TAKEN: list[dict[str, Any]] = [
    {},
    dict.fromkeys(
        (
            *("working_dir", "py_modules", "excludes", "pip", "uv", "conda", "env_vars", "config"),
            *("container", "new"),
        )
    ),
    {"working_dir": "{folder}", "py_modules": ["{folder}"], "excludes": []},
    {"excludes": ["*.bin"], "env_vars": {"A": "1"}, "py_executable": "python -s"},
    {"env_vars": {}},
    {"env_vars": []},
    *(
        {tool: packages}
        for tool in ("pip", "uv")
        for packages in (["a", "b"], [], "{folder}/requirements.txt", {"packages": ["a"]})
    ),
    {"pip": {"packages": "{folder}/requirements.txt"}},
    {"pip": {"packages": [], "pip_check": True, "pip_version": "==24", "pip_install_options": ["-q"]}},
    {"uv": {"packages": ["a"], "uv_check": False, "uv_version": "==1", "uv_pip_install_options": []}},
    {"conda": "name"},
    {"conda": ""},
    {"conda": "{folder}"},
    {"conda": "{folder}/env.yaml"},
    {"conda": {"dependencies": ["pip", {"pip": ["a"]}], 3: 4}},
    {"config": {"setup_timeout_seconds": -1, "eager_install": False, "log_files": None, "unknown": []}},
    {"config": {"setup_timeout_seconds": 60, "log_files": ["a"]}},
    {"container": {"image": "a", "run_options": ["-q"]}, "env_vars": {"A": "b"}, "config": {}},
    {"image_uri": "a", "env_vars": {"A": "b"}},
    {"worker_process_setup_hook": "a.b", "nsight": "default", "rocprof_sys": {"env": {}}},
    {"unknown": {"any": [1, None, {"thing": 1.5}]}, "pip": ["a"]},
]


def each(field: str, *values: Any, within: dict[str, Any] | None = None) -> list[tuple[str, dict[Any, Any]]]:
    """The field that a refusal names, and fields with each value of it."""
    outer, _, inner = field.partition(".")
    return [(field, {outer: {**(within or {}), inner: value} if inner else value}) for value in values]


SOME = {"packages": ["a"]}
FILE = "{folder}/requirements.txt"
NO_PACKAGES: list[Any] = [
    *(5, 0, True, [1], [None], "", "{folder}/none.txt", "{folder}", {"package": []}, {"packages": 5})
]
REFUSED: list[tuple[str, dict[Any, Any]]] = [
    *each("working_dir", 5, 0, False, [], {}, ["a"], {"a": 1}),
    *each("py_modules", "a", "", 5, {}, {"a": 1}, [1], [None], [["a"]]),
    *each("excludes", "a", "", 5, {}, [1], [None]),
    *each("pip", *NO_PACKAGES),
    *each("uv", *NO_PACKAGES),
    *each("pip.packages", [{}]),
    *each("pip.pip_check", "yes", 1, None, within=SOME),
    *each("pip.pip_version", 24, None, within=SOME),
    *each("pip.pip_install_options", "-q", [1], within=SOME),
    *each("uv.packages", FILE, [1], 5, None),
    *each("uv.uv_check", 1, within=SOME),
    *each("uv.uv_version", 1.5, within=SOME),
    *each("uv.uv_pip_install_options", "-q", [1], within=SOME),
    *each("conda", 7, True, ["a"], "{folder}/none.yaml", "/none/of/these"),
    *each("env_vars", 5, "A=b", ["A=b"], {1: "a"}),
    *each("env_vars.A", 1, True, None, ["b"], {}),
    *each("config", 5, "a", ["a"]),
    *each("config.setup_timeout_seconds", 0, -2, "9", 1.5, None),
    *each("config.eager_install", 1, "yes", None),
    *each("config.log_files", "a", [1]),
    *each("worker_process_setup_hook", 5),
    ("1", {1: "a"}),
    ("pip and uv", {"pip": ["a"], "uv": ["a"]}),
    ("pip and conda", {"pip": [], "conda": "a"}),
    ("container", {"container": {"image": "a"}, "pip": ["a"]}),
    ("working_dir", {"image_uri": "a", "working_dir": "{folder}"}),
    ("py_modules", {"container": {"image": "a"}, "py_modules": ["{folder}"]}),
]
# Ray looks at these only on the nodes, where they fail.
REFUSED_EARLIER: list[tuple[str, dict[Any, Any]]] = [
    *each("container", "a", 5, ["a"]),
    *each("image_uri", 5, ["a"]),
    *each("py_executable", 5, ["python"]),
    *each("pip.packages", [1]),
]


def filled(value: Any, folder: Path) -> Any:
    """The fields with the folder in them."""
    return (
        json.loads(json.dumps(value).replace("{folder}", str(folder))) if "{folder}" in str(value) else value
    )


def written(folder: Path) -> Path:
    """The folder with what the tables name in it."""
    (folder / "requirements.txt").write_text("a\n")
    (folder / "env.yaml").write_text("dependencies: []\n")
    (folder / "__init__.py").touch()
    return folder


@pytest.fixture
def folder(program: Path) -> Path:
    return written(program)


def prepare(folder: Path, text: str, **options: Any) -> jobs.Submission:
    file = folder / "runtime_env.yaml"
    file.write_text(text)
    given: dict[str, Any] = {"working_dir": None, "py_modules": [], "entrypoint": "python -m train"}
    return jobs.prepare(**{**given, "runtime_env": file, **options})


def in_yaml(fields: Any) -> str:
    return str(yaml.safe_dump(fields))


@pytest.mark.parametrize("fields", TAKEN, ids=str)
def test_what_ray_takes_is_taken_and_null_counts_as_absent(fields: dict[str, Any], folder: Path) -> None:
    fields = filled(fields, folder)
    taken = {
        name: value
        for name, value in fields.items()
        if value is not None and (name, value) != ("env_vars", [])
    }
    assert document.runtime_env(rayjob(runtimeEnvYAML=in_yaml(fields))) == taken
    job = prepare(folder, in_yaml(fields))
    folders = {"working_dir": job.working_dir, "py_modules": list(job.py_modules)}
    assert {**job.runtime_env, **{name: folders[name] for name in folders if name in taken}} == taken
    # A file of JSON is one of YAML.
    as_json = json.loads(json.dumps(job.runtime_env))
    assert prepare(folder, json.dumps(fields)).runtime_env == as_json


@pytest.mark.parametrize(("field", "fields"), [*REFUSED, *REFUSED_EARLIER], ids=str)
def test_what_ray_refuses_is_refused_by_its_name(field: str, fields: dict[Any, Any], folder: Path) -> None:
    text = in_yaml(filled(fields, folder))
    with pytest.raises(InvalidYaml) as caught:
        prepare(folder, text)
    assert field in caught.value.message
    if not {"image_uri", "container"} & fields.keys():
        with pytest.raises(InvalidYaml, match="runtimeEnvYAML of the RayJob"):
            document.runtime_env(rayjob(runtimeEnvYAML=text))


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("new: 2024-02-03", "new in .* JSON lacks"),
        ("working_dir: ~nosuchuser/x://y", "working_dir in .* is no path"),
        ('working_dir: "a\\0://b"', "working_dir in .* is no path"),
        ('py_modules: [""]', "py_modules in .* empty path"),
        ("new: .nan", "new in"),
        ("new: &a [*a]", "new in"),
        ("conda: &a {b: *a}", "conda in"),
        ("config: &a {b: *a}", "config in"),
        ("new: !!set {a, b}", "new in"),
        ("env_vars: {DAY: 2024-02-03}", r"env_vars\.DAY in .* is a date"),
        ("new: 2024-13-45", "can't be read"),
        ("new: !!int a", "can't be read"),
        ("new: !!bool a", "can't be read"),
        ("new: !!timestamp a", "can't be read"),
        ("[" * 5_000, "can't be read"),
        ('working_dir: "a\\0b"', "working_dir in .* is no path"),
        ("working_dir: ~nobody-of-that-name/a", "working_dir in .* is no path"),
        (f"py_modules: [{'a' * 5_000}]", "py_modules in .* is no path"),
        ("5", "not a mapping"),
    ],
    ids=range(19),
)
def test_what_no_json_or_path_can_be_is_no_traceback(text: str, part: str, folder: Path) -> None:
    with pytest.raises(InvalidYaml, match=part):
        prepare(folder, text)


def test_an_empty_file_has_no_fields_and_a_runtime_env_in_a_rayjob_is_a_text(folder: Path) -> None:
    assert prepare(folder, "# nothing\n").runtime_env == {}
    assert document.runtime_env(rayjob(runtimeEnvYAML=None)) == {}
    wrong: list[Any] = [{"pip": ["a"]}, [], 0]
    for value in wrong:
        with pytest.raises(InvalidYaml, match="is not a text"):
            document.runtime_env(rayjob(runtimeEnvYAML=value))


def test_options_win_over_the_file_and_a_wrong_one_is_no_traceback(folder: Path) -> None:
    wrong, own = "working_dir: 5\npy_modules: 5\n", str(folder)
    job = prepare(folder, wrong, working_dir=own, py_modules=[own])
    assert (job.working_dir, job.py_modules) == (str(folder), (str(folder),))
    with pytest.raises(InvalidYaml, match="working_dir"):
        prepare(folder, "{}", working_dir="~nobody-of-that-name/a")


def test_workers_in_an_image_get_no_folder_and_no_debugger(folder: Path) -> None:
    job = prepare(folder, "image_uri: mine\n")
    assert job.working_dir is None
    with pytest.raises(InvalidYaml, match="and there is --debug"):
        prepare(folder, "image_uri: mine\n", debug=Debug())
    with pytest.raises(InvalidYaml, match="and there is working_dir"):
        prepare(folder, "image_uri: mine\n", working_dir=str(folder))


def test_the_nodes_get_the_content_of_the_files_that_are_named(folder: Path) -> None:
    requirements, environment = folder / "requirements.txt", folder / "env.yaml"
    requirements.write_text("a==1\n\nb\n")
    environment.write_text("dependencies: [pip, {pip: [a]}]")
    given = {"uv": {"packages": ["u"]}, "conda": str(environment), "excludes": ["x"]}
    assert with_files_read(given | {"uv": None}) == {
        "conda": {"dependencies": ["pip", {"pip": ["a"]}]},
        "excludes": ["x"],
    }
    lines = ["a==1", "", "b"]
    assert with_files_read({"pip": str(requirements)}) == {"pip": lines}
    assert with_files_read({"uv": str(requirements)}) == {"uv": lines}
    pip = {"packages": str(requirements), "pip_check": True}
    assert with_files_read({"pip": pip}) == {"pip": {"packages": lines, "pip_check": True}}
    for fields in ({"pip": ["a"]}, {"uv": given["uv"]}, {"conda": "an-environment"}, {}):
        assert with_files_read(fields) == fields
    environment.write_text("- a")
    with pytest.raises(InvalidYaml, match="conda in the job is a list"):
        with_files_read({"conda": str(environment)})
    requirements.write_bytes(b"\xff")
    with pytest.raises(InvalidYaml, match=r"requirements\.txt can't be read"):
        with_files_read({"pip": str(requirements)})


def test_a_variables_value_is_in_no_message(folder: Path) -> None:
    with pytest.raises(InvalidYaml) as caught:
        prepare(folder, "env_vars: {PASSWORD: 123456}")
    assert "123456" not in f"{caught.value.message} {caught.value.hint}"

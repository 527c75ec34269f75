"""Runs the tests of *Ray Breakpoints* in Node, and tests that its manifest and its sources agree.

What needs an editor with a window is tested in tests/browser/.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from bootstrap import cache
from bootstrap.labs.lesson import FOLDER as LABS
from bootstrap.labs.lesson import Lesson, lessons
from bootstrap.settings import Settings

pytestmark = pytest.mark.gate

EXTENSION = Path(__file__).parents[3] / "vscode"
SOURCES = sorted((EXTENSION / "src").glob("*.js"))
# A link of a walkthrough to one of our commands, with its arguments as JSON.
COMMAND = re.compile(r"\[([^\]]+)\]\(command:(rayside\.\w+)\?([^)\s]+)\)")


@pytest.fixture(scope="module")
def manifest() -> dict[str, Any]:
    return dict(json.loads((EXTENSION / "package.json").read_text()))


@pytest.fixture(scope="module")
def walkthroughs(node: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provides the folder with what `pack` makes of the labs: package.json and its texts."""
    folder = tmp_path_factory.mktemp("walkthroughs")
    shutil.copy(EXTENSION / "package.json", folder)
    done = run(node / "node", EXTENSION / "walkthroughs.js", LABS, folder)
    assert done.returncode == 0, done.stderr
    return folder


def run(*command: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in command],
        **{"capture_output": True, "text": True, "timeout": 300, "check": False, **options},
    )


def test_its_own_tests_pass(node: Path) -> None:
    tests = sorted((EXTENSION / "test").glob("*.test.js"))
    assert tests
    done = run(node / "node", "--test", *tests)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_command_of_the_manifest_is_registered_and_every_registered_one_is_in_it(
    manifest: dict[str, Any],
) -> None:
    declared = [command["command"] for command in manifest["contributes"]["commands"]]
    registered = re.findall(
        r"\bcommand\(\"(rayside\.\w+)\"", (EXTENSION / "src" / "extension.js").read_text()
    )
    assert sorted(registered) == sorted(declared)


def test_what_menus_welcome_texts_and_sources_run_are_commands_with_titles(manifest: dict[str, Any]) -> None:
    contributes = manifest["contributes"]
    titles = {command["command"]: command["title"] for command in contributes["commands"]}
    assert all(title.strip() for title in titles.values())
    in_menus = {entry["command"] for menu in contributes["menus"].values() for entry in menu}
    in_texts = set(re.findall(r"command:(rayside\.\w+)", json.dumps(contributes["viewsWelcome"])))
    named = {
        name
        for source in SOURCES
        for name in re.findall(r"executeCommand\(\"(rayside\.\w+)\"", source.read_text())
    }
    assert named
    assert in_menus | in_texts | named <= set(titles)
    in_palette = {entry["command"] for entry in contributes["menus"]["commandPalette"]}
    assert in_palette <= set(titles)


def test_commands_that_draw_a_button_have_an_icon_of_vs_codes_own(manifest: dict[str, Any]) -> None:
    contributes = manifest["contributes"]
    icons = {command["command"]: command.get("icon", "") for command in contributes["commands"]}
    drawn = [
        entry["command"]
        for name, menu in contributes["menus"].items()
        for entry in menu
        if name == "editor/title/run" or entry.get("group", "").startswith(("inline", "navigation"))
    ]
    assert drawn
    assert all(re.fullmatch(r"\$\([a-z-]+\)", icons[command]) for command in drawn)


def test_nothing_of_a_walkthrough_is_a_page_in_a_frame(walkthroughs: Path) -> None:
    # VS Code draws every other medium in one.
    steps = [step for walkthrough in contributed(walkthroughs) for step in walkthrough["steps"]]
    assert {tuple(step["media"]) for step in steps} == {("image", "altText")}
    assert all((EXTENSION / step["media"]["image"]).is_file() for step in steps)


def test_each_lab_is_a_walkthrough_on_the_targets_where_it_can_be_done(walkthroughs: Path) -> None:
    when = {walkthrough["id"]: walkthrough["when"] for walkthrough in contributed(walkthroughs)}
    assert list(when) == [lab.name for lab in lessons()]
    for lab in lessons():
        assert re.findall(r"rayside\.labs == '(\w+)'", when[lab.name]) == list(lab.targets)


@pytest.mark.parametrize("lab", lessons(), ids=lambda lab: str(lab.name))
def test_a_walkthrough_says_what_the_readme_says_in_both_languages(walkthroughs: Path, lab: Lesson) -> None:
    (walkthrough,) = [entry for entry in contributed(walkthroughs) if entry["id"] == lab.name]
    ids = [f"{'run' if step.command else 'do'}-{number}" for number, step in enumerate(lab.steps, 1)]
    assert [step["id"] for step in walkthrough["steps"]] == [*ids, "check"]
    for language, readme in (("", "README.md"), (".zh-cn", "README.zh.md")):
        texts = json.loads((walkthroughs / f"package.nls{language}.json").read_text())
        title, goal, steps, seen = (lab.folder / readme).read_text().split("\n## ")[:4]
        assert texts[f"{lab.name}.title"].endswith(title.removeprefix("# ").strip())
        assert read(texts[f"{lab.name}.goal"]) == read(goal.partition("\n")[2])
        for id, step in zip(ids, steps.split("\n### ")[1:], strict=True):
            heading, _, text = step.partition("\n")
            assert read(texts[f"{lab.name}.{id}.title"]) == read(heading)
            assert read(texts[f"{lab.name}.{id}"]) == read(text), id
        assert read(texts[f"{lab.name}.check"]) == read(seen.partition("\n")[2])


def test_the_buttons_of_a_step_are_commands_that_know_the_lab_and_the_step(
    walkthroughs: Path, manifest: dict[str, Any]
) -> None:
    known = {command["command"] for command in manifest["contributes"]["commands"]}
    for language in ("", ".zh-cn"):
        texts = json.loads((walkthroughs / f"package.nls{language}.json").read_text())
        for lab in lessons():
            for number, step in enumerate(lab.steps, 1):
                id = f"{'run' if step.command else 'do'}-{number}"
                *_, check, reset = lines = texts[f"{lab.name}.{id}"].splitlines()
                runs = [line for line in lines if "rayside.runLabStep" in line]
                # A line that is one link is a button.
                assert [button(line)[1:] for line in runs] == (
                    [("rayside.runLabStep", [lab.name, number])] if step.command else []
                )
                assert button(check)[1:] == ("rayside.checkLab", [lab.name])
                assert button(reset)[1:] == ("rayside.resetLab", [lab.name])
            everything = "\n".join(text for key, text in texts.items() if key.startswith(f"{lab.name}."))
            links = COMMAND.findall(everything)
            assert everything.count("command:") == len(links)
            assert {command for _, command, _ in links} <= known
            files = [json.loads(unquote(words)) for _, name, words in links if name == "rayside.openLabFile"]
            assert all(named == lab.name and (lab.folder / file).is_file() for named, file in files)


def contributed(folder: Path) -> list[dict[str, Any]]:
    return list(json.loads((folder / "package.json").read_text())["contributes"]["walkthroughs"])


def button(line: str) -> tuple[str, str, Any]:
    """Returns a button's label, its command and that one's arguments."""
    match = COMMAND.fullmatch(line)
    assert match, line
    return match[1], match[2], json.loads(unquote(match[3]))


def read(text: str) -> str:
    """Returns the letters of a text as they are read, of a README as of a walkthrough without its buttons."""
    ours = r"^(\[[^]]+\]\(command:rayside\.(?!openLabFile)|.*rayside\.(?:solveLab|openLabText)\?).*\n?"
    text = re.sub(ours, "", text, flags=re.MULTILINE)
    text = re.sub(r"^```\w*$|^[-•] ", "", text, flags=re.MULTILINE)
    text = re.sub(r"\[([^\]]+)\]\([^)\s]+\)", r"\1", text)
    # Formats: `, ``, *, ** and __, which a README has in the names of modules only.
    return re.sub(r"[`*\\_\s\u2060\u00a0]", "", text)


def test_every_state_without_rows_has_a_text_with_one_thing_to_do(manifest: dict[str, Any]) -> None:
    texts = {
        re.findall(r"rayside\.state == '(\w+)'", text["when"])[0]: text["contents"]
        for text in manifest["contributes"]["viewsWelcome"]
        if text["view"] == "rayside.tasks"
    }
    states = set(re.findall(r"\"(\w+)\"", _states((EXTENSION / "src" / "look.js").read_text())))
    assert set(texts) == states - {"seen"}
    assert all("](command:rayside." in text for text in texts.values())
    # The status bar has one for each.
    shown = set(re.findall(r"^      (\w+): \[\"", (EXTENSION / "src" / "view.js").read_text(), re.MULTILINE))
    assert shown == states


def _states(source: str) -> str:
    documented = re.search(r"@property \{([^}]+)\} state", source)
    assert documented
    return documented[1]


def test_settings_that_say_where_the_token_goes_are_no_workspaces_to_set(manifest: dict[str, Any]) -> None:
    settings = manifest["contributes"]["configuration"]["properties"]
    for name in ("dashboard", "relay", "tokenFile"):
        assert settings[f"rayBreakpoints.{name}"]["scope"] == "machine"
    # The one that a folder may set is what is sent to the cluster: not while the folder is untrusted.
    folders = [
        name for name, setting in settings.items() if setting.get("scope") not in ("machine", "application")
    ]
    assert manifest["capabilities"]["untrustedWorkspaces"]["restrictedConfigurations"] == folders
    # Nor does a value of a workspace's count where an editor hands one out, nor one of its launch.json.
    access = (EXTENSION / "src" / "access.js").read_text()
    assert "settings.inspect(name)?.globalValue" in access
    assert "settings.get(" not in access
    (debugger,) = manifest["contributes"]["debuggers"]
    assert "tokenFile" not in debugger["configurationAttributes"]["attach"]["properties"]
    used = {
        name
        for source in SOURCES
        for name in re.findall(r"(?:text|\.get)\(\"(\w+)\"\)", source.read_text())
        if name != "path"
    }
    assert used <= {name.removeprefix("rayBreakpoints.") for name in settings}
    assert used == {"dashboard", "relay", "tokenFile", "pyModules"}


def test_the_lock_file_pins_the_packer_and_names_no_registry(manifest: dict[str, Any]) -> None:
    text = (EXTENSION / "package-lock.json").read_text()
    lock = json.loads(text)
    packer = manifest["devDependencies"]["@vscode/vsce"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", packer)
    assert lock["packages"][""]["devDependencies"] == manifest["devDependencies"]
    assert lock["packages"]["node_modules/@vscode/vsce"]["version"] == packer
    assert "resolved" not in text
    assert not manifest.get("dependencies")


def test_it_is_packed_the_same_twice_from_and_to_paths_with_spaces(node: Path, tmp_path: Path) -> None:
    sources = tmp_path / "a copy"
    shutil.copytree(EXTENSION, sources, ignore=shutil.ignore_patterns("node_modules"))
    shutil.copytree(LABS, sources / "labs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(EXTENSION.parent / "LICENSE", sources)
    tools = tmp_path / "node and npm"
    tools.mkdir()
    for name in ("node", "npm"):
        (tools / name).symlink_to((node / name).resolve())
    environment = cache.environment(Settings().cache_folder / "extension")
    packed = [tmp_path / "out put" / f"{name}.vsix" for name in ("one", "two")]
    packed[0].parent.mkdir()
    for output in packed:
        done = run(sources / "pack", tools, output, env=environment)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "WARNING" not in done.stdout + done.stderr
    assert packed[0].read_bytes() == packed[1].read_bytes()
    with zipfile.ZipFile(packed[0]) as archive:
        names = set(archive.namelist())
    inside = {f"extension/src/{source.name}" for source in SOURCES}
    assert names == inside | {
        "[Content_Types].xml",
        "extension.vsixmanifest",
        "extension/LICENSE.txt",
        "extension/media/lab.svg",
        "extension/media/ray.svg",
        "extension/package.json",
        "extension/package.nls.json",
        "extension/package.nls.zh-cn.json",
        "extension/readme.md",
    }

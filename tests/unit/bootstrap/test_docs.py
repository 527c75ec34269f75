"""The documentation says what is there: links lead somewhere, commands parse, tables are the code's."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from types import CodeType

import pytest
import yaml
from invoke.exceptions import ParseError
from invoke.parser.parser import Parser
from invoke.program import Program

import rayside.errors
import tasks
from bootstrap import errors
from bootstrap.settings import ROOT, Settings
from bootstrap.targets.target import with_example
from bootstrap.verbs.development import BENCHMARKS, suites
from rayside import submission
from rayside.client import commands
from rayside.errors import RaysideError
from rayside.steps.step import Step
from tests import docs_commands
from tests.docs_commands import NOT_RUN, ON_KIND, SHELLS, page
from tests.targets import kind_target, local_target

PAGES = [
    *docs_commands.DOCUMENTS,
    *sorted(f"docs/adr/{decision.name}" for decision in (ROOT / "docs" / "adr").glob("*.md")),
    *("tests/README.md", "CHANGELOG.md", "SECURITY.md"),
]
LABS = [str(page.relative_to(ROOT)) for page in sorted((ROOT / "example" / "labs").rglob("*.md"))]
ARCHITECTURE = (ROOT / "docs" / "internals" / "architecture.md").read_text()
STEPS = (ROOT / "docs" / "internals" / "steps.md").read_text()
CONTRACTS = (ROOT / "pyproject.toml").read_text()
TROUBLESHOOTING = (ROOT / "docs" / "troubleshooting.md").read_text()
# What stands for "any verb" where a page speaks of all of them.
ANY_VERB = "VERB"
# For those who change Rayside: docs/verbs.md only names them.
DEVELOPMENT = {"test", "check", "bench", "lock"}
# Each verb's options. Once: Invoke takes the help texts out of a task as it reads them.
VERBS = tasks.namespace.to_contexts()


# --- links -------------------------------------------------------------------------------


def links(document: str) -> Iterator[str]:
    """The targets of a page's links and pictures, without those into the net."""
    text = re.sub(r"`[^`]*`", "", page(document)[1].replace("\\`", ""))
    for target in re.findall(r"\]\(([^()\s]+)\)", text):
        if not re.match(r"https?://|mailto:", target):
            yield target


def anchors(file: Path) -> set[str]:
    """Of each heading, as GitHub makes them: lower case, punctuation dropped, blanks to hyphens."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+?) *$", page(str(file.relative_to(ROOT)))[1], re.MULTILINE):
        said = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        anchor = re.sub(r"[^\w\- ]", "", said).replace(" ", "-")
        twice = sum(re.fullmatch(rf"{re.escape(anchor)}(-\d+)?", other) is not None for other in found)
        found.add(f"{anchor}-{twice}" if twice else anchor)
    return found


@pytest.mark.parametrize("document", [*PAGES, *LABS])
def test_every_link_leads_somewhere(document: str) -> None:
    broken = []
    for target in links(document):
        name, _, anchor = target.partition("#")
        file = ((ROOT / document).parent / name if name else ROOT / document).resolve()
        known = file.exists() and file.is_relative_to(ROOT)
        if not known or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def test_the_index_of_decisions_has_each_in_order_and_says_which_are_superseded() -> None:
    rows = []
    for file in sorted((ROOT / "docs" / "adr").glob("[0-9]*.md")):
        # It is the line below the title, if any.
        title, _, below, *_ = file.read_text().splitlines()
        number, _, name = title.removeprefix("# ").partition(". ")
        assert file.name.startswith(f"{int(number):04}-")
        superseded = re.match(r"\*Superseded by (\[\d+\]\([^)]+\))", below)
        state = f"superseded by {superseded[1]}" if superseded else "in force"
        rows.append(f"| {number} | [{name}]({file.name}) | {state} |")
        assert "uperseded by" not in file.read_text().partition(below)[2], file.name
    index = (ROOT / "docs" / "adr" / "README.md").read_text()
    assert [line for line in index.splitlines() if re.match(r"\| \d", line)] == rows


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {target.partition("#")[0] for target in links("README.md")}
    assert {document for document in docs_commands.DOCUMENTS if document != "README.md"} <= linked


# --- commands ----------------------------------------------------------------------------


def in_backticks(document: str) -> Iterator[str]:
    """Every `./invokew …` in the text, also where a variable is set before it."""
    for code in re.findall(r"`([^`]+)`", page(document)[1].replace("\n", " ")):
        if re.match(r"(?:[A-Z_]+=\S+ )*\./invokew(?: |$)", code):
            yield code


def refusal(command: str) -> str:
    """What Invoke has against a command, by its own parser and the verbs of tasks.py; empty: nothing."""
    words = [word for word in shlex.split(command, comments=True) if word != ANY_VERB]
    arguments = words[words.index("./invokew") + 1 :]
    parser = Parser(contexts=VERBS, initial=Program().initial_context)
    try:
        parser.parse_argv(arguments)
    except ParseError as error:
        return f"{command}: {error}"
    return ""


def test_the_parser_refuses_what_is_not_there() -> None:
    assert "No idea what 'upp' is" in refusal("./invokew upp")
    assert "--traget" in refusal("INVOKE_RAYSIDE_RAY_CPUS=4 ./invokew up --traget kind")
    assert refusal("./invokew up --target kind   # a comment") == ""
    assert refusal("./invokew --complete -- invoke up --t") == ""


@pytest.mark.parametrize("document", PAGES)
def test_every_command_of_ours_parses(document: str) -> None:
    fenced = [
        command for block in page(document)[0] if block.language in SHELLS for command in block.commands
    ]
    found = [*in_backticks(document), *(command for command in fenced if "./invokew" in shlex.split(command))]
    assert [wrong for command in found if (wrong := refusal(command))] == []


@pytest.mark.parametrize("document", PAGES)
def test_commands_stand_in_blocks_that_say_their_shell(document: str) -> None:
    for block in page(document)[0]:
        if block.language not in SHELLS:
            assert not any(line.startswith(("./invokew", "$ ")) for line in block.lines), block.name


def test_every_command_is_run_or_said_not_to_be() -> None:
    run = {command for block in docs_commands.run_on_local() for command in docs_commands.runnable(block)}
    assert set(docs_commands.commands()) == run | set(NOT_RUN) | set(ON_KIND)
    assert run & {*NOT_RUN, *ON_KIND} == set()
    assert set(NOT_RUN) & set(ON_KIND) == set()


def test_every_condition_in_the_readme_can_be_evaluated_wherever_its_line_runs() -> None:
    """A generator expression is a frame of its own, which knows but the names that it uses."""
    options = [
        option
        for block in page("README.md")[0]
        for option in re.findall(r'--break "(.+?)"', "\n".join(block.lines))
    ]
    places = [place for option in options if (place := commands.option(option)) and place.condition]
    assert places
    for place in places:
        code = compile((ROOT / str(place.file)).read_text(), str(place.file), "exec")
        needed = set(compile(str(place.condition), "condition", "eval").co_names)
        frames = [frame for frame in all_code(code) if place.line in {line for *_, line in frame.co_lines()}]
        assert frames
        for frame in frames:
            assert needed <= {*frame.co_varnames, *frame.co_cellvars, *frame.co_freevars}, (place, frame)


def all_code(code: CodeType) -> Iterator[CodeType]:
    """Of a module or a function, and of all functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from all_code(constant)


# --- wording -----------------------------------------------------------------------------


def help_texts() -> dict[str, str]:
    """The help of every option of every verb, and of the submission from inside the workspace."""
    told = {
        f"{context.name} {argument.name}": argument.help or ""
        for context in VERBS
        for argument in context.args.values()
    }
    return {**told, "submit (workspace)": submission.parser().format_help()}


def test_every_option_has_a_help_text() -> None:
    assert [option for option, text in help_texts().items() if not text] == []


def test_a_default_is_told_as_a_default() -> None:
    pages = {document: (ROOT / document).read_text() for document in PAGES}
    unclear = re.compile(r"unless\s+(?:told|given)")
    assert [where for where, text in {**help_texts(), **pages}.items() if unclear.search(text)] == []


def test_the_suites_and_benchmarks_in_the_help_are_those_that_there_are() -> None:
    texts = help_texts()
    assert [one.name for one in suites() if one.name not in texts["test suite"]] == []
    assert [file.stem for file in BENCHMARKS.glob("[a-z]*.py") if file.stem not in texts["bench name"]] == []


def section(heading: str) -> str:
    """Returns a section of docs/verbs.md."""
    text = (ROOT / "docs" / "verbs.md").read_text()
    return text.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def test_the_table_of_verbs_names_every_verb_and_option() -> None:
    verbs: dict[str, set[str]] = {}
    # The other way to say a flag's default is not worth a word.
    needless: dict[str, set[str]] = {}
    for context in VERBS:
        name, inverse = str(context.name), context.inverse_flags
        # Invoke takes a positional argument by its name, too; nobody would type that.
        positional = {f"--{argument.name}" for argument in context.positional_args}
        verbs[name] = {flag for flag in {*context.flags, *inverse} if flag.startswith("--")} - positional
        needless[name] = set(inverse.values())
    first_column = re.findall(r"^\| ((?:`[^`]+`(?:, )?)+) \|", section("`./invokew`"), re.MULTILINE)
    shown: dict[str, set[str]] = {}
    for code in re.findall(r"`([^`]+)`", " ".join(first_column)):
        shown.setdefault(code.split()[0], set()).update(re.findall(r"--[a-z-]+", code))
    assert set(shown) == set(verbs)
    for verb, options in verbs.items():
        assert shown[verb] <= options, verb
        if verb not in DEVELOPMENT:
            assert options - needless[verb] - shown[verb] - {"--name", "--json"} == set(), verb
    nameless = {verb for verb, options in verbs.items() if "--name" not in options} - DEVELOPMENT
    assert nameless == {"list", "labs", "bundle", "mirror", "vsix"}
    documents = set(re.findall(r"^- `([a-z]+)", section("JSON"), re.MULTILINE))
    assert documents == {verb for verb, options in verbs.items() if "--json" in options}


def test_every_setting_is_shown_with_its_default() -> None:
    """An empty one is that of the code; of a folder, a path is shown as it mostly is."""
    [block] = [block for block in page("docs/verbs.md")[0] if block.language == "yaml"]
    shown = yaml.safe_load("\n".join(block.lines))["rayside"]
    defaults = {spec.name: getattr(Settings(), spec.name) for spec in fields(Settings)}
    assert {*shown} == {*defaults}
    told = {key: "" if shown[key] is None else shown[key] for key in shown}
    assert {key: told[key] for key, value in defaults.items() if told[key] != value} == {
        "state_folder": "~/.local/state/rayside-<host>",
        "cache_folder": "~/.cache/rayside",
    }


# --- errors ------------------------------------------------------------------------------


def catalogue() -> list[type[RaysideError]]:
    every = {**vars(rayside.errors), **vars(errors)}.values()
    return [error for error in every if isinstance(error, type) and hasattr(error, "id")]


def test_every_error_has_an_id_of_its_own() -> None:
    ids = [error.id for error in catalogue()]
    assert len(ids) > 20
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch("[a-z]+(-[a-z]+)*", identity) for identity in ids)


def test_troubleshooting_has_every_error_under_its_exit_code() -> None:
    there: dict[str, int] = {}
    code = -1
    for level, title in re.findall(r"^(##|###) (.+)$", page("docs/troubleshooting.md")[1], re.MULTILINE):
        numbered = re.match(r"(\d+): ", title)
        if level == "##":
            code = int(numbered[1]) if numbered else -1
        else:
            there[title] = code
    assert there == {error.id: error.exit_code for error in catalogue()}


def test_an_error_has_more_than_its_name() -> None:
    sections = re.split(r"^### ", TROUBLESHOOTING, flags=re.MULTILINE)[1:]
    assert [section.splitlines()[0] for section in sections if len(section.split()) < 5] == []


def test_exit_codes_are_told_as_the_catalogue_has_them() -> None:
    documented = re.findall(r"^(\d+)  +(.+)$", rayside.errors.__doc__ or "", re.MULTILINE)
    told = re.findall(r"^\| (\d+) \| (.+) \|$", (ROOT / "docs" / "verbs.md").read_text(), re.MULTILINE)
    assert told == documented
    headings = re.findall(r"^## (\d+): ", TROUBLESHOOTING, re.MULTILINE)
    assert headings == [code for code, _ in documented if code != "0"]


# --- architecture ------------------------------------------------------------------------


def test_the_layers_are_import_linters() -> None:
    told = re.findall(r"^`([\w |]+ > .+)`$", ARCHITECTURE, re.MULTILINE)
    for layers, house in zip(told, ("bootstrap", "rayside"), strict=True):
        whose = {"bootstrap": "the bootstrapper's", "rayside": "the debugger's"}[house]
        contract = CONTRACTS.partition(f"{whose} layers,")[2].partition("layers = [")[2].partition("]")[0]
        names = [layer.replace(f"{house}.", "") for layer in re.findall(r'"([^"]+)"', contract)]
        assert layers.split(" > ") == names


def test_the_tree_is_what_is_there() -> None:
    (tree, *_), _ = page("docs/internals/architecture.md")
    house, told = "", set()
    for line in tree.lines:
        if line.startswith("  "):
            told |= {f"{house}{name}" for name in re.split("  +", line.strip())[0].split(", ")}
        else:
            house = line
            assert (ROOT / house).is_dir()
    there = {
        f"{folder}/{entry.name}{'/' if entry.is_dir() else ''}"
        for folder in ("bootstrap", "rayside")
        for entry in (ROOT / folder).iterdir()
        if not entry.name.startswith("__")
    }
    assert told == there


def rows(heading: str) -> list[tuple[list[str], set[str]]]:
    """Returns a table of steps: the names in its first column, those in its last."""
    section = STEPS.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    cells = [re.split(r" *\| *", line.strip("| ")) for line in section.splitlines() if line.startswith("| `")]
    return [
        (re.findall(r"`([^`]+)`", row[0]), set(re.findall(r"`([^`]+)`", "".join(row[2:])))) for row in cells
    ]


def test_the_steps_of_local_are_the_plans() -> None:
    steps = with_example(local_target())
    told = rows("The steps of `local`")
    assert [names for names, _ in told] == [[step.name] for step in steps]
    assert {names[0]: needs for names, needs in told} == {step.name: set(step.needs) for step in steps}


@pytest.mark.parametrize("source", ["packages", "upstream"])
def test_the_steps_of_kind_are_the_plans(source: str) -> None:
    kind = kind_target(Settings(target="kind", source=source))
    every = names(with_example(kind))
    # What a source makes is told in its own page; here it has two rows that say "and more".
    made = names(kind.origin.steps)
    told = [name for row, _ in rows("The steps of `kind`") for name in row]
    assert len(told) == len(set(told))
    assert set(told) - set(every) == set()
    assert set(every) - set(made) - set(told) == set()


def names(steps: Sequence[Step]) -> list[str]:
    return [step.name for step in steps]

"""Tests what the supervisor of forwards is told, and what it asks of kubectl."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bootstrap.kube.api import Kube
from bootstrap.steps.forwards import Forwards
from rayside.connection.heads import to_pod
from rayside.errors import MissingProgram, NotRunning
from rayside.reach.programs import Program, Ssh
from rayside.reach.supervisor import Forward, document, parse
from rayside.steps.step import Condition
from rayside.system import marks
from rayside.system.shell import Shell

KUBE = Kube(Path("/x/kubeconfig"), "kind-x", "ns")
FORWARDS = (
    Forward("dashboard", 8265, 8265),
    Forward("workspace", 9443, 8443),
    Forward("relay", 5678, 5678, speaks="dap"),
)


POD, HOST = to_pod(KUBE, Path("/programs/kubectl"), "a=b"), Ssh("head")
WHERE = ["/programs/kubectl", "--kubeconfig", "/x/kubeconfig", "--context", "kind-x", "--namespace", "ns"]


def test_kubectl_is_asked_for_the_pods_and_leads_to_the_newest_that_stays() -> None:
    words = POD.search()
    assert words[: len(WHERE)] == WHERE
    assert words[words.index("get") :][:4] == ["get", "pods", "-l", "a=b"]
    days = [f"2026-01-0{day}T00:00:00Z" for day in range(1, 5)]
    pods = [f"{days[0]} one ", f"{days[2]} gone {days[3]}", f"{days[1]} two "]
    assert POD.found("\n".join(pods)) == "pod/two"
    assert POD.command("pod/two", 8265, Path("/x")) == [
        *WHERE,
        *("port-forward", "--address", "127.0.0.1", "pod/two", ":8265"),
    ]


@pytest.mark.parametrize("output", ["", "\n", "2026-01-01T00:00:00Z one 2026-01-01T00:00:00Z\n", "what?\n"])
def test_without_a_pod_that_stays_there_is_nothing_to_lead_to(output: str) -> None:
    with pytest.raises(NotRunning, match="no pod a=b runs"):
        POD.found(output)


@pytest.mark.parametrize(
    ("said", "port"),
    [
        ("Forwarding from 127.0.0.1:40123 -> 8265", 40123),
        ("Forwarding from [::1]:40123 -> 8265", None),
        ("Handling connection for 40123", None),
        ("Forwarding from 127.0.0.1:401234567 -> 8265", None),
        ("", None),
    ],
)
def test_kubectl_says_where_it_listens(said: str, port: int | None) -> None:
    assert POD.listens(said, Path("/x")) == port


@pytest.mark.parametrize("program", ["/programs/kubectl", "no-such-kubectl"])
def test_a_kubectl_that_is_not_there_is_said_with_how_to_get_it(program: str) -> None:
    with pytest.raises(MissingProgram, match=f"{program} is not on this machine") as caught:
        replace(POD, program=program).require()
    assert "https://kubernetes.io/docs/tasks/tools/#kubectl" in caught.value.hint


def test_why_kubectl_failed_is_said_with_what_to_try() -> None:
    error = POD.failed(["first", "error: unknown flag: --address"])
    assert error.message == "kubectl does not lead to a pod a=b: error: unknown flag: --address"
    assert error.hint == f"try it by hand: {' '.join(WHERE)} get pods -l a=b"


@pytest.mark.parametrize("program", [POD, HOST])
def test_the_document_is_read_back_as_it_was(program: Program) -> None:
    assert parse(document(program, FORWARDS)) == (program, list(FORWARDS))


def test_a_forward_says_where_it_is_in_what_it_speaks() -> None:
    urls = ["http://127.0.0.1:8265", "http://127.0.0.1:9443", "tcp://127.0.0.1:5678"]
    assert [forward.url for forward in FORWARDS] == urls


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"program": {"kubeconfig": "/x"}, "forwards": []}'])
def test_no_other_document_is_taken(text: str) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        parse(text)


def test_the_step_is_missing_without_a_record_and_with_one_of_a_process_that_ended(tmp_path: Path) -> None:
    step = Forwards(Shell(), KUBE, tmp_path, FORWARDS, "a=b", Path("kubectl"))
    assert step.check().condition is Condition.MISSING
    step.process.record.file.write_text("{")
    assert step.check().detail == "not running"
    step.process.record.file.write_text(json.dumps({"pid": 2**22 + 1, "created": 1.0}))
    step.log.write_text("first\nlast words\n")
    assert step.check().detail == f"its process {2**22 + 1} has ended; its log ends: last words"


def test_the_process_is_marked_and_takes_no_module_of_the_users_folder(tmp_path: Path) -> None:
    environment = Forwards(Shell(), KUBE, tmp_path, FORWARDS, "a=b", Path("kubectl")).process.environment()
    assert environment[marks.FORWARDS] == str(tmp_path)

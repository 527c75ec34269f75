"""Option `--rayside` of pytest: a test stops in the remote task that made it fail.

pytest then runs as a program of `rayside run`, and the debugger uses the terminal.
"""

from __future__ import annotations

import sys

import pytest

_OPTION = "--rayside"
# This package is imported before pytest can rewrite it; it has no assertions to rewrite.
_QUIETLY = "-Wignore:Module already imported:pytest.PytestAssertRewriteWarning"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("debugging").addoption(
        _OPTION,
        action="store_true",
        help="stop in the remote Ray task that made a test fail (terminal debugger)",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Runs pytest again under the debugger; does nothing without the option, or under the debugger."""
    if not config.getoption(_OPTION) or "rayside.worker.run_driver" in sys.modules:
        return None
    from rayside import run_program
    from rayside.console import Console
    from rayside.errors import RaysideError

    # pytest already captures input and output, which the debugger needs.
    if (capture := config.pluginmanager.getplugin("capturemanager")) is not None:
        capture.suspend_global_capture(in_=True)
    console = Console()
    arguments = [argument for argument in config.invocation_params.args if argument != _OPTION]
    try:
        return run_program.run(
            run_program.Program(
                "pytest", [_QUIETLY, *arguments], is_module=True, post_mortem=True, safe_path=True
            ),
            console,
        )
    except RaysideError as error:
        console.error(error)
        return error.exit_code

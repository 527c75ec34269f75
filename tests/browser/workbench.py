"""Drives VS Code in a browser as its user does: by what there is to click, and what there is to read."""

from __future__ import annotations

import contextlib
import logging
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import (
    Browser,
    ConsoleMessage,
    Error,
    Locator,
    Page,
    StorageState,
    TimeoutError,
    expect,
    sync_playwright,
)

from rayside.waiting import until
from tests.patience import PATIENCE

# What a machine with two busy cores may need for one click to show; a quiet one takes a tenth of it.
# Milliseconds in which the command palette offers a command.
_OFFERING = 20_000
# Seconds; the extension asks for its view three times within them.
_TO_THE_FRONT = 40.0
# Characters of a page's text that a failure logs.
_TEXT = 4000
# How our extension is named wherever the browser's console says whose an error is.
OURS = re.compile(r"ray-breakpoints|rayBreakpoints|rayside\.tasks")
_LOG = logging.getLogger(__name__)

# The number of the line with the cursor in the editor in front, where that line is marked as one in which
# a task has stopped (several may be); where lines are wanted, nothing while it is another.
_STOPPED_AT = """
wanted => {
    const top = element => Math.round(element.getBoundingClientRect().top);
    const editor = document.querySelector('.editor-group-container.active .editor-instance .monaco-editor');
    const marks = [...editor?.querySelectorAll('.debug-top-stack-frame-line') ?? []].map(top);
    const number = [...editor?.querySelectorAll('.margin-view-overlays .line-numbers') ?? []]
        .find(one => one.classList.contains('active-line-number') && marks.includes(top(one)));
    const line = Number(number?.textContent ?? 0);
    return wanted === null || wanted.includes(line) ? line : null;
}
"""

# A click as a mouse does it, which can't hit what has moved to that place meanwhile.
_CLICK = """
row => {
    for (const type of ['mousedown', 'mouseup', 'click']) {
        row.dispatchEvent(new MouseEvent(type, {bubbles: true, cancelable: true, view: window, detail: 1}));
    }
}
"""

# What VS Code keeps in the browser under a name: in its databases for the profile and for the folder.
_REMEMBERED = """
async name => {
    const done = request => new Promise((resolve, reject) => {
        request.onsuccess = () => resolve(request.result);
        request.onerror = () => reject(request.error);
    });
    const values = [];
    for (const database of await indexedDB.databases()) {
        if (!database.name.startsWith('vscode-web-state-db-')) continue;
        const opened = await done(indexedDB.open(database.name));
        if (opened.objectStoreNames.contains('ItemTable')) {
            values.push(await done(opened.transaction('ItemTable').objectStore('ItemTable').get(name)));
        }
        opened.close();
    }
    return values.filter(value => value !== undefined).map(String);
}
"""


def _rows(view: Locator, text: str) -> Locator:
    return view.locator(f'.monaco-list-row[aria-label*="{text}"]')


@dataclass(frozen=True)
class Workbench:
    """One tab with a workbench in it."""

    page: Page

    # --- views ---------------------------------------------------------------------------

    def icon(self, title: str) -> Locator:
        """Returns the icon of a view in the activity bar; `aria-expanded` says whether the view is open."""
        # Not the link in it, which a badge can cover.
        label = f'a.action-label[aria-label^="{title}"]'
        return self.page.locator(".activitybar .action-item", has=self.page.locator(label))

    def open_view(self, title: str) -> None:
        """Clicks the view's icon in the activity bar, unless the view is open already."""
        icon = self.icon(title)
        expect(icon).to_have_count(1)
        if icon.get_attribute("aria-expanded") != "true":
            icon.click()
        expect(icon).to_have_attribute("aria-expanded", "true")

    @property
    def view(self) -> Locator:
        """Returns Ray's view, which has to be open."""
        return self._pane("rayside-tasks")

    def row(self, text: str) -> Locator:
        """Returns the rows of Ray's view that contain `text`, as they are read out."""
        return _rows(self.view, text)

    def stack_row(self, text: str) -> Locator:
        """Returns the rows of the view of stacks that contain `text`, as they are read out."""
        return _rows(self._pane("rayside-stacks"), text)

    def _pane(self, view: str) -> Locator:
        return self.page.locator(".sidebar .pane", has=self.page.locator(f".view-{view}"))

    @property
    def badge(self) -> Locator:
        """Returns the count at the icon of Ray's view."""
        return self.icon("Ray").locator(".badge-content")

    @property
    def status_bar_item(self) -> Locator:
        """Returns our item in the status bar that says how many tasks are paused."""
        return self.page.locator('.statusbar .statusbar-item[id^="rayside.ray-breakpoints"][id$="status"]')

    @property
    def help_item(self) -> Locator:
        """Returns our item in the status bar by which an attendee of a workshop asks for help."""
        return self.page.locator('.statusbar .statusbar-item[id^="rayside.ray-breakpoints"][id$="help"]')

    def pick(self, text: str) -> None:
        """Chooses what begins so in the list that is asked from."""
        self.page.locator(f'.quick-input-list .monaco-list-row[aria-label^="{text}"]').click()

    def type_in_box(self, text: str) -> None:
        """Types into the box that is asked in, and Enter."""
        box = self.page.locator(".quick-input-widget input.input")
        expect(box).to_be_focused()
        box.fill(text)
        self.page.keyboard.press("Enter")
        expect(box).to_be_hidden()

    def menu(self, row: Locator, entry: str) -> None:
        """Chooses an entry of a row's context menu."""
        row.click(button="right")
        item = self.page.locator(".context-view .monaco-menu .action-item", has_text=entry)
        item.hover()
        expect(item).to_have_class(re.compile(r"\bfocused\b"))
        # No click: in a menu's first tenth of a second VS Code takes none.
        self.page.keyboard.press("Enter")
        expect(item).to_have_count(0)

    def press_in_row(self, row: Locator, button: str) -> None:
        """Presses a button that a row has while the pointer is over it."""
        row.hover()
        row.locator(f'.actions .action-label[aria-label^="{button}"]').click()

    def command(self, title: str) -> None:
        """Runs a command by its title, as the command palette shows it."""
        box = self.page.locator(".quick-input-widget input.input")
        row = self.page.locator(f'.quick-input-list .monaco-list-row.focused[aria-label^="{title}"]')

        def offers() -> bool:
            # There, because a terminal or an editor may have another use for it.
            self.page.locator('.activitybar .action-item[aria-selected="true"]').press("F1")
            try:
                expect(box).to_be_focused(timeout=_OFFERING)
                box.fill(f">{title}", timeout=_OFFERING)
                expect(row).to_be_visible(timeout=_OFFERING)
            except (AssertionError, TimeoutError):
                # It closes where a task stops in this moment, for VS Code then goes to the editor.
                return False
            return True

        assert until(offers, bool, PATIENCE), f"{title} is not offered"
        self.page.keyboard.press("Enter")
        expect(box).to_be_hidden()

    def trust_when_asked(self) -> None:
        """Trusts the folder where VS Code asks, as it does before a debugger starts in Restricted Mode."""
        question = self.page.locator(".monaco-dialog-box", has_text="Do you trust the authors")
        answer = question.get_by_role("button", name="Trust Folder & Continue")
        self.page.add_locator_handler(question, lambda: answer.click())

    def wait_until_remembered(self, name: str, text: str) -> None:
        """Waits until a value that VS Code keeps under that name contains `text`; it writes with a delay."""

        def remembered() -> bool:
            return any(text in value for value in self.page.evaluate(_REMEMBERED, name))

        assert until(remembered, bool, PATIENCE), self.page.evaluate(_REMEMBERED, name)

    @property
    def notifications(self) -> Locator:
        """Returns the notifications, message by message."""
        return self.page.locator(".notifications-toasts .notification-list-item-message")

    @property
    def first_steps(self) -> Locator:
        """Returns the view below the paused tasks that says what to click."""
        header = self.page.locator('.pane-header[aria-label^="First Steps"]')
        return self.page.locator(".sidebar .pane", has=header)

    @property
    def frames(self) -> Locator:
        """Returns pages in frames, which need VS Code's service worker and may be empty on a busy machine."""
        return self.page.locator("iframe.webview")

    # --- files and breakpoints -----------------------------------------------------------

    def open_file(self, name: str) -> None:
        """Opens a file of the folder that is open, in the explorer, and leaves it in front."""
        self.open_view("Explorer")
        self.page.locator(f'.explorer-folders-view .monaco-list-row[aria-label^="{name}"]').dblclick()
        expect(self.tab(name)).to_have_attribute("aria-selected", "true")
        expect(self._editor.locator(".line-numbers").first).to_be_visible()
        # In colours: while VS Code does not know the language yet, a breakpoint may go as it came.
        expect(self.text.locator("[class^=mtk]:not(.mtk1)").first).to_be_visible()

    def tab(self, name: str) -> Locator:
        """Returns the tab of an open editor."""
        return self.page.locator(f'.editor-group-container .tab[data-resource-name="{name}"]')

    @property
    def text(self) -> Locator:
        """Returns the lines that the editor in front shows."""
        return self._editor.locator(".view-lines")

    def replace_line(self, line: int, text: str) -> None:
        """Types over a line of the editor in front, and does not save it."""
        self._go_to(f"{line}:1")
        self.page.keyboard.press("Shift+End")
        # Not key by key: the editor would close brackets by itself.
        self.page.keyboard.insert_text(text)
        expect(self.text).to_contain_text(text.strip())

    def click_gutter(self, line: int) -> None:
        """Clicks left of a line's number, and waits until its file has one breakpoint more, or one less."""
        before = self.breakpoints.count()
        self._go_to(str(line))
        number = self._editor.locator(".margin-view-overlays .line-numbers", has_text=re.compile(f"^{line}$"))
        margin = self._editor.locator(".glyph-margin").first
        expect(number).to_be_visible()
        # The editor draws its lines anew when something comes to them: for a moment a number is nowhere.
        row, column = until(number.bounding_box, bool, PATIENCE), margin.bounding_box()
        assert row
        assert column
        self.page.mouse.click(column["x"] + column["width"] / 2, row["y"] + row["height"] / 2)
        # Elsewhere than on the mark that hovering shows.
        self.text.hover()
        expect(self.breakpoints).not_to_have_count(before)

    def _go_to(self, place: str) -> None:
        """Puts the cursor of the editor in front at `line` or `line:column`."""
        self._editor.locator(".native-edit-context").press("Control+g")
        box = self.page.locator(".quick-input-widget input.input")
        expect(box).to_be_focused()
        box.fill(f":{place}")
        self.page.keyboard.press("Enter")
        expect(box).to_be_hidden()

    @property
    def breakpoints(self) -> Locator:
        """Returns the marks left of the lines that have a breakpoint, verified or not."""
        return self._editor.locator(".glyph-margin-widgets [class*=codicon-debug-breakpoint]")

    @property
    def _editor(self) -> Locator:
        return self.page.locator(".editor-group-container.active .editor-instance .monaco-editor").first

    # --- debugging -----------------------------------------------------------------------

    def expect_stopped(self, name: str, *lines: int) -> int:
        """Waits until that file is in front, marked as stopped at one of the lines, and returns that line."""
        expect(self.tab(name)).to_have_attribute("aria-selected", "true")
        try:
            mark = self.page.wait_for_function(_STOPPED_AT, arg=list(lines))
        except TimeoutError as error:
            lines_shown = self.page.evaluate(_STOPPED_AT, None)
            raise AssertionError(f"{name} is stopped at line {lines_shown}, not {lines}") from error
        return int(mark.json_value())

    @property
    def call_stack(self) -> Locator:
        """Returns the rows of the call stack: threads, which are Ray's tasks, and below them their frames."""
        return self.page.locator(".debug-call-stack .monaco-list-row")

    def make_room_for_the_call_stack(self) -> None:
        """Closes the sections of the debug view that share its height: only rows in sight are there."""
        for section in ("Watch", "Breakpoints"):
            header = self.page.locator(f'.sidebar .pane-header[aria-label^="{section} Section"]')
            expect(header).to_be_visible()
            if header.get_attribute("aria-expanded") == "true":
                header.click()
            expect(header).to_have_attribute("aria-expanded", "false")

    def thread(self, name: str, state: str = "") -> Locator:
        """Returns the rows of threads with that name, in a state that begins so (`Paused`, `Running`)."""
        threads = self.call_stack.filter(has=self.page.locator(".thread .name", has_text=name))
        return threads.filter(has=self.page.locator(".state", has_text=state)) if state else threads

    def frame(self, function: str) -> Locator:
        """Returns the rows of the call stack that are frames of that function."""
        return self.call_stack.filter(has=self.page.locator(".stack-frame .label", has_text=function))

    def choose(self, row: Locator) -> None:
        """Clicks a row of a list whose other rows come and go, wherever the row is by then."""
        expect(row).to_have_count(1)
        row.evaluate(_CLICK)

    def variable(self, name: str) -> Locator:
        """Returns the row of a variable; it is read out as `name, value ...`."""
        return self.page.locator(f'.debug-variables .monaco-list-row[aria-label^="{name}, value "]')

    def press(self, action: str) -> None:
        """Presses a button of the debug toolbar: `Continue`, `Step Over`, `Disconnect`."""
        self.page.locator(f'.debug-toolbar .action-label[aria-label^="{action}"]').click()

    @property
    def debugging(self) -> Locator:
        """Returns the debug toolbar, which is there while there is a session."""
        return self.page.locator(".debug-toolbar")

    def evaluate(self, expression: str) -> str:
        """Returns what the debug console answers."""
        self.command("Debug Console: Focus on Debug Console View")
        answers = self.page.locator(".repl .evaluation-result")
        before = answers.count()
        self.page.locator(".repl-input-wrapper .view-lines").click()
        self.page.keyboard.type(expression)
        # Otherwise Enter may choose a completion that pops up.
        self.page.keyboard.press("Escape")
        self.page.keyboard.press("Enter")
        expect(answers).to_have_count(before + 1)
        return answers.last.inner_text()

    def clear_console(self) -> None:
        """Empties the debug console: of many rows, only those in sight are there."""
        self.page.get_by_role("button", name="Clear Console").click()
        expect(self.console).to_have_count(0)

    @property
    def console(self) -> Locator:
        """Returns what the debug console shows."""
        return self.page.locator(".repl .monaco-list-row")

    # --- terminal ------------------------------------------------------------------------

    def type_in_terminal(self, line: str) -> None:
        """Types a line in a new terminal, and Enter."""
        self.command("Terminal: Create New Terminal")
        expect(self.page.locator(".terminal-wrapper.active .xterm-screen")).to_be_visible()
        # The prompt of the shell: what is typed before it would be lost in some.
        self.page.locator(".terminal-wrapper.active .xterm-helper-textarea").focus()
        self.page.keyboard.type(line)
        self.page.keyboard.press("Enter")


@contextlib.contextmanager
def chromium(*more: str) -> Iterator[Browser]:
    """Starts Debian's Chromium without a window, with `more` options; as root without its own sandbox."""
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-dev-shm-usage", *more]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def tab(browser: Browser, url: str, evidence: Path, known: StorageState | None = None) -> Iterator[Page]:
    """Opens a tab at `url` with a fresh profile except for `known`.

    A failure leaves a screenshot and a trace.

    `evidence` is the folder for those. An error of our extension in the browser's console is a failure.
    """
    messages: list[ConsoleMessage] = []
    context = browser.new_context(
        viewport={"width": 1280, "height": 800},
        reduced_motion="reduce",
        storage_state=known,
        # A workshop's front door has a certificate that nobody has signed.
        ignore_https_errors=True,
    )
    context.set_default_timeout(1000 * PATIENCE)
    expect.set_options(timeout=1000 * PATIENCE)
    context.tracing.start(screenshots=True)
    page = context.new_page()
    page.on("console", lambda message: messages.append(message))
    try:
        page.goto(url)
        yield page
        errors = [f"{entry.text} ({entry.location['url']})" for entry in messages if entry.type == "error"]
        ours = [text for text in errors if OURS.search(text)]
        _LOG.info(
            "errors of others in the browser's console: %s", [entry for entry in errors if entry not in ours]
        )
        assert ours == []
        # As a user leaves: what the page has started in the server ends with it.
        page.goto("about:blank")
    except BaseException:
        evidence.mkdir(parents=True, exist_ok=True)
        number = len(list(evidence.glob("*.png"))) + 1
        page.screenshot(path=evidence / f"tab-{number}.png")
        context.tracing.stop(path=evidence / f"tab-{number}-trace.zip")
        _LOG.error("a screenshot and a trace (playwright show-trace) are in %s", evidence)
        # Where only what was printed is kept, as in CI. Of a page that has crashed there is none.
        with contextlib.suppress(Error):
            _LOG.error("the page read: %s", page.locator("body").inner_text()[:_TEXT])
        raise
    finally:
        context.close()


def log_in(page: Page, password: str) -> None:
    """Types the password into code-server's login page, and Enter."""
    page.locator("input[name=password]").fill(password)
    page.keyboard.press("Enter")


def logged_in(browser: Browser, url: str, password: str) -> StorageState:
    """Logs in, and returns what a browser is known by afterwards, and nothing else of its profile."""
    with contextlib.closing(browser.new_context()) as context:
        page = context.new_page()
        page.goto(url)
        log_in(page, password)
        page.wait_for_url(
            lambda address: "/login" not in address, timeout=1000 * PATIENCE, wait_until="commit"
        )
        return {"cookies": context.storage_state()["cookies"], "origins": []}


def ready(page: Page) -> Workbench:
    """Returns the workbench of a browser that is here for the first time, once Ray's view is open.

    That comes to the front by itself, which a test of the first screen waits for. In CI it did not once in
    some hundred openings, and none of the others is about that.
    """
    workbench = Workbench(page)
    started(workbench)
    icon = workbench.icon("Ray")
    if not until(lambda: icon.get_attribute("aria-expanded") == "true", bool, _TO_THE_FRONT):
        in_front = page.locator('.activitybar .action-item[aria-expanded="true"] a').all()
        _LOG.error("Ray's view was not in front: %s", [each.get_attribute("aria-label") for each in in_front])
        workbench.open_view("Ray")
    return workbench


def started(workbench: Workbench) -> None:
    """Waits until its extensions have started, and ours has looked at the cluster."""
    expect(workbench.page.locator(".monaco-workbench .activitybar")).to_be_visible()
    expect(workbench.status_bar_item).to_be_visible()

import json
import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tools import (
    Folder,
    NoSuchFileError,
    NotPermittedError,
    OutsideFolderError,
    ResultTooLargeError,
    ToolCall,
    ToolDefinitionError,
    execute,
    file_tools,
)
from tools.files import DEPTH_LIMIT, ENTRY_LIMIT, Entry

SECRET = "the secret outside"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "secret.txt").write_text(SECRET)
    root = tmp_path / "root"
    (root / "notes" / "old").mkdir(parents=True)
    (root / "notes" / "today.txt").write_text("Grüße", encoding="utf-8")
    (root / "empty.txt").write_text("")
    return root


@pytest.fixture
def folder(root: Path) -> Iterator[Folder]:
    with Folder(root, file_limit=100) as folder:
        yield folder


@pytest.mark.parametrize("path", ["notes/today.txt", "./notes/today.txt", "notes//today.txt", "notes/./today.txt"])
def test_a_file_is_read(folder: Folder, path: str) -> None:
    assert folder.read(path) == "Grüße"
    assert folder.read("empty.txt") == ""


@pytest.mark.parametrize("path", ["notes", "notes/", "./notes/."])
def test_a_folder_is_listed_by_name(folder: Folder, path: str) -> None:
    assert folder.entries(path) == ([Entry("old", "folder", None), Entry("today.txt", "file", 7)], False)
    assert [entry.name for entry in folder.entries()[0]] == ["empty.txt", "notes"]
    assert folder.entries("notes/old") == ([], False)


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt", "notes/../../secret.txt", "..", "notes/..", "notes/../empty.txt", "./../secret.txt",
        "/etc/passwd", "/", "//etc/passwd", "notes/today.txt\0.png", "\0",
    ],
)  # fmt: skip
def test_no_path_leads_out(folder: Folder, path: str) -> None:
    for use in (folder.read, folder.entries):
        with pytest.raises(OutsideFolderError) as caught:
            use(path)
        assert caught.value.kind == "not_permitted"


@pytest.mark.parametrize(
    "path",
    [
        "none.txt", "none/today.txt", "notes", ".", "notes/today.txt/x", "notes/today.txt/", "a" * 300, "a/" * 40 + "b",
        "", "x" * 1_001, "\ud800", "~", "C:\\secret.txt", "..\\secret.txt", "%2e%2e/secret.txt", "...", ".. ",
        "\uff0e\uff0e/secret.txt",
    ],
)  # fmt: skip
def test_what_is_not_there_is_an_error_the_model_can_correct(folder: Folder, path: str) -> None:
    if path == "notes/today.txt/":  # a final slash adds no name
        assert folder.read(path) == "Grüße"
        return
    with pytest.raises(NoSuchFileError) as caught:
        folder.read(path)
    assert caught.value.kind == "invalid_arguments"


def test_a_path_through_too_many_folders_is_not_walked(folder: Folder) -> None:
    with pytest.raises(NoSuchFileError, match=f"{DEPTH_LIMIT} are allowed"):
        folder.read("a/" * DEPTH_LIMIT + "b")


@pytest.mark.parametrize(
    ("link", "target"),
    [
        ("out.txt", "../secret.txt"),
        ("out.txt", "notes/today.txt"),  # one that stays within is refused too: it may be changed at any time
        ("loop", "loop"),
        ("gone", "none"),
        ("absolute", "/etc/passwd"),
    ],
)
def test_links_are_not_followed(root: Path, folder: Folder, link: str, target: str) -> None:
    (root / link).symlink_to(target)
    with pytest.raises(OutsideFolderError, match="link"):
        folder.read(link)
    assert Entry(link, "other", None) in folder.entries()[0]


@pytest.mark.parametrize("target", ["..", "notes", "/"])
def test_neither_are_links_to_folders(root: Path, folder: Folder, target: str) -> None:
    (root / "up").symlink_to(target, target_is_directory=True)
    for path in ("up/secret.txt", "up/today.txt", "up/etc/passwd"):
        with pytest.raises(OutsideFolderError, match="link"):
            folder.read(path)
    with pytest.raises(OutsideFolderError, match="link"):
        folder.entries("up")


def test_a_file_with_a_second_name_is_refused(root: Path, folder: Folder) -> None:
    os.link(root.parent / "secret.txt", root / "hard.txt")
    with pytest.raises(OutsideFolderError, match="2 names"):
        folder.read("hard.txt")


def test_pipes_sockets_and_devices_are_not_opened(root: Path, folder: Folder) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "socket"))
        for name in ("pipe", "socket"):
            with pytest.raises(OutsideFolderError, match="a device, a pipe or a socket"):
                folder.read(name)
    with Folder("/dev") as devices, pytest.raises(OutsideFolderError):
        devices.read("zero")


def test_a_file_without_a_stated_size_is_bounded_all_the_same() -> None:
    with Folder("/proc/self", file_limit=10) as process, pytest.raises(ResultTooLargeError):
        process.read("status")


def test_large_files_and_other_encodings(root: Path, folder: Folder) -> None:
    (root / "exact.txt").write_text("x" * 100)
    (root / "large.txt").write_text("x" * 101)
    (root / "image.png").write_bytes(b"\x89PNG\xff")
    assert folder.read("exact.txt") == "x" * 100
    with pytest.raises(ResultTooLargeError, match="more than 100 bytes"):
        folder.read("large.txt")
    with pytest.raises(NoSuchFileError, match="UTF-8"):
        folder.read("image.png")


def test_a_full_folder_is_cut_and_says_so(root: Path, folder: Folder) -> None:
    for number in range(ENTRY_LIMIT + 1):
        (root / "notes" / "old" / f"{number}").touch()
    entries, more = folder.entries("notes/old")
    assert (len(entries), more) == (ENTRY_LIMIT, True)
    (root / "notes" / "old" / "0").unlink()
    assert folder.entries("notes/old")[1] is False


def test_it_stays_the_same_folder_when_another_takes_its_name(root: Path, folder: Folder) -> None:
    root.rename(root.parent / "moved")
    root.symlink_to(root.parent)
    assert folder.read("notes/today.txt") == "Grüße"
    with pytest.raises(NoSuchFileError):
        folder.read("secret.txt")


def test_a_link_put_in_place_while_reading_is_never_followed(root: Path, folder: Folder) -> None:
    """Another thread swaps a folder and a file for links to the outside, over and over."""
    stop = threading.Event()
    (root / "swap").mkdir()
    (root / "swap" / "secret.txt").write_text("harmless")

    def swap() -> None:
        while not stop.is_set():
            (root / "swap").rename(root / "aside")
            (root / "swap").symlink_to("..")
            (root / "swap").unlink()
            (root / "aside").rename(root / "swap")

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for _ in range(1_500):
            try:
                seen.add(folder.read("swap/secret.txt"))
            except (OutsideFolderError, NoSuchFileError) as error:
                seen.add(type(error).__name__)
    finally:
        stop.set()
        thread.join()
    assert SECRET not in seen
    assert "harmless" in seen


def test_descriptors_are_closed_whatever_happens(root: Path, folder: Folder) -> None:
    (root / "link").symlink_to("..")
    before = len(os.listdir("/proc/self/fd"))
    for path in ("notes/today.txt", "none", "link", "link/x", "notes/old/none", "notes", "..", "notes/today.txt/x"):
        for use in (folder.read, folder.entries):
            try:
                use(path)
            except (NotPermittedError, NoSuchFileError):
                continue
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_closed_folder_reads_nothing(folder: Folder) -> None:
    folder.close()
    folder.close()
    with pytest.raises(NotPermittedError, match="closed"):
        folder.read("empty.txt")


def test_a_folder_has_to_be_there(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path / "none", tmp_path / "file"):
        with pytest.raises(ToolDefinitionError, match="cannot be opened"):
            Folder(path)


def test_a_file_that_may_not_be_read(root: Path, folder: Folder) -> None:
    (root / "empty.txt").chmod(0)
    if os.access(root / "empty.txt", os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(NotPermittedError, match="may not be read"):
        folder.read("empty.txt")


def test_the_tools_give_results(root: Path, folder: Folder) -> None:
    tools = file_tools(folder)
    assert [item.tier for item in tools] == ["safe", "safe"]

    def run(name: str, **arguments: object) -> tuple[str, str]:
        result = execute(ToolCall("c", name, arguments), tools)
        return result.kind, result.content

    assert run("read_file", path="notes/today.txt") == ("ok", "Grüße")
    assert json.loads(run("list_files")[1]) == {
        "entries": [
            {"name": "empty.txt", "kind": "file", "size": 0},
            {"name": "notes", "kind": "folder", "size": None},
        ],
        "more": False,
    }
    assert run("read_file", path="../secret.txt")[0] == "not_permitted"
    assert run("read_file", path="none")[0] == "invalid_arguments"
    assert run("read_file", path="x" * 5_000)[0] == "invalid_arguments"
    (root / "large.txt").write_text("x" * 101)
    assert run("read_file", path="large.txt")[0] == "too_large"
    os.makedirs(os.fsencode(root) + b"/odd\xff")
    assert "odd\\udcff" in run("list_files")[1]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.lists(
        st.sampled_from(["..", ".", "notes", "old", "today.txt", "/", "//", "\0", "secret.txt", "", "link"])
    ).map("/".join)
    | st.text(max_size=30)
)
def test_no_path_at_all_reads_what_lies_outside(root: Path, path: str) -> None:
    if not (root / "link").is_symlink():
        (root / "link").symlink_to("..")
    with Folder(root) as folder:
        try:
            assert folder.read(path) in ("Grüße", "")
        except (OutsideFolderError, NoSuchFileError):
            return

"""Images of tasks: from the configured server alone, from a folder alone, and bounded."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kmcl.errors import InputError
from kmcl.serving.service.label_studio_host import ImageError, LabelStudioHost
from kmcl.serving.service.task_images import TaskImages

from .studio_server import LEGACY, PERSONAL, StudioServer

UPLOAD = "/data/upload/1/1f2e3d4c-a.png"
LOCAL = "/data/local-files/?d=photos/b%20c.png"
LIMIT = 1000


@pytest.fixture
def studio() -> StudioServer:
    server = StudioServer()
    server.files = {UPLOAD: b"upload", LOCAL: b"local"}
    return server


@pytest.fixture
def url(studio: StudioServer) -> Iterator[str]:
    with studio.running() as address:
        yield address


def test_paths_and_addresses_of_the_server(studio: StudioServer, url: str) -> None:
    host = LabelStudioHost(url + "/", LEGACY)
    assert host.get(UPLOAD, LIMIT, 10) == b"upload"
    assert host.get(url + UPLOAD, LIMIT, 10) == b"upload"
    assert host.get("/data/local-files/?d=photos/b c.png", LIMIT, 10) == b"local"
    assert {header for _, header in studio.asked} == {f"Token {LEGACY}"}
    with pytest.raises(ImageError, match="404"):
        host.get("/data/upload/1/none.png", LIMIT, 10)


@pytest.mark.parametrize(
    "reference",
    [
        "http://169.254.169.254/data/latest",
        "//127.0.0.1:9/data/upload/1/a.png",
        "http://user@127.0.0.1/data/upload/1/a.png",
        "file:///data/upload/1/a.png",
        "ftp://127.0.0.1/data/a.png",
        "data:image/png;base64,AAAA",
        "/api/projects/",
        "/data",
        "/data/../api/projects/",
        "/data/%2e%2e/api/projects/",
        "/data/%252e%252e/api/projects/",
        "/data/..\\api/projects/",
        "data/upload/1/a.png",
        "http://[::1/data/a.png",
        "http://127.0.0.1:port/data/a.png",
        "",
    ],
)
def test_nothing_else_is_asked_for(studio: StudioServer, url: str, reference: str) -> None:
    images = TaskImages(LabelStudioHost(url, LEGACY))
    with pytest.raises(ImageError):
        images.read(reference, LIMIT, 10)
    assert studio.asked == []


def test_the_host_of_the_server_with_another_port_or_scheme_is_another_server(
    studio: StudioServer, url: str
) -> None:
    host = LabelStudioHost(url, LEGACY)
    for other in (url.replace("http:", "https:"), "http://127.0.0.1", url.replace("127.0.0.1", "localhost")):
        with pytest.raises(ImageError, match="another server"):
            host.get(other + UPLOAD, LIMIT, 10)
    assert studio.asked == []


@pytest.mark.parametrize(
    "reference", ["/data/a\nHost: x", "/data/a b\x00", "/data/\ud800.png", "/data/é?d=ü"]
)
def test_odd_characters_are_encoded_or_refused(studio: StudioServer, url: str, reference: str) -> None:
    with pytest.raises(ImageError):
        LabelStudioHost(url, LEGACY).get(reference, LIMIT, 10)
    assert all(path.isascii() and path.isprintable() for path, _ in studio.asked)


def test_redirects_are_not_followed(studio: StudioServer, url: str) -> None:
    with StudioServer().running() as elsewhere:
        studio.redirects = {"/data/upload/1/x.png": elsewhere + UPLOAD, "/data/upload/1/y.png": UPLOAD}
        for path in studio.redirects:
            with pytest.raises(ImageError, match="redirect"):
                LabelStudioHost(url, LEGACY).get(path, LIMIT, 10)
    assert [path for path, _ in studio.asked] == list(studio.redirects)


def test_a_personal_access_token_is_exchanged_and_renewed(studio: StudioServer, url: str) -> None:
    host = LabelStudioHost(url, PERSONAL)
    assert host.get(UPLOAD, LIMIT, 10) == host.get(UPLOAD, LIMIT, 10) == b"upload"
    assert studio.num_refreshed == 1
    studio.accesses = ["expired"]
    assert host.get(UPLOAD, LIMIT, 10) == b"upload"
    assert studio.num_refreshed == 2
    assert PERSONAL not in str(studio.asked)
    with pytest.raises(ImageError, match="does not accept the token"):
        LabelStudioHost(url, "not.the.one").get(UPLOAD, LIMIT, 10)


@pytest.mark.parametrize("token", [None, "wrong"])
def test_without_a_right_token(url: str, token: str | None) -> None:
    with pytest.raises(ImageError, match="401: give a token"):
        LabelStudioHost(url, token).get(UPLOAD, LIMIT, 10)


def test_bytes_and_time_are_bounded(studio: StudioServer, url: str) -> None:
    host = LabelStudioHost(url, LEGACY)
    studio.files[UPLOAD] = b"x" * (LIMIT + 1)
    with pytest.raises(ImageError, match="more than 1,000 bytes"):
        host.get(UPLOAD, LIMIT, 10)
    studio.slow = lambda: time.sleep(0.5)
    with pytest.raises(ImageError, match="did not answer"):
        host.get(UPLOAD, 2 * LIMIT, 0.1)
    with pytest.raises(ImageError, match="in time"):
        host.get(UPLOAD, 2 * LIMIT, -1)


def test_no_server_at_all() -> None:
    with pytest.raises(ImageError, match="did not answer"):
        LabelStudioHost("http://127.0.0.1:9").get(UPLOAD, LIMIT, 10)


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://host", "http://", "http://a:b@host", "http://h:x"])
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(InputError, match="address of Label Studio"):
        LabelStudioHost(url)


def test_tokens_that_are_none() -> None:
    with pytest.raises(InputError, match="visible ASCII"):
        LabelStudioHost("http://localhost", "a\nb")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "secret.png").write_bytes(b"secret")
    root = tmp_path / "root"
    (root / "photos").mkdir(parents=True)
    (root / "upload" / "1").mkdir(parents=True)
    (root / "photos" / "b c.png").write_bytes(b"local")
    (root / "upload" / "1" / "1f2e3d4c-a.png").write_bytes(b"upload")
    (root / "link.png").symlink_to(tmp_path / "secret.png")
    (root / "loop").symlink_to(root / "loop")
    return root


def test_files_of_a_folder(folder: Path) -> None:
    images = TaskImages(None, folder)
    assert images.read(UPLOAD, LIMIT, 10) == images.read("http://any.host" + UPLOAD, LIMIT, 10) == b"upload"
    assert images.read(LOCAL, LIMIT, 10) == images.read("photos/b c.png", LIMIT, 10) == b"local"


@pytest.mark.parametrize(
    "reference",
    [
        "/data/local-files/?d=../secret.png",
        "/data/local-files/?d=photos/../../secret.png",
        "../secret.png",
        "link.png",
        "loop/a.png",
        "photos",
        "a\x00b",
        "a" * 5000,
        "",
        None,
        7,
        ["photos/b c.png"],
    ],
)
def test_nothing_outside_of_the_folder(folder: Path, reference: object) -> None:
    with pytest.raises(ImageError):
        TaskImages(None, folder).read(reference, LIMIT, 10)
    absolute = f"/data/local-files/?d={folder.parent / 'secret.png'}"
    with pytest.raises(ImageError):
        TaskImages(None, folder).read(absolute, LIMIT, 10)


def test_what_the_folder_lacks_is_asked_for(folder: Path, studio: StudioServer, url: str) -> None:
    images = TaskImages(LabelStudioHost(url, LEGACY), folder)
    studio.files["/data/upload/2/z.png"] = b"remote"
    assert images.read("/data/upload/2/z.png", LIMIT, 10) == b"remote"
    assert images.read(UPLOAD, LIMIT, 10) == b"upload"
    assert [path for path, _ in studio.asked] == ["/data/upload/2/z.png"]
    with pytest.raises(ImageError, match="more than 3 bytes"):
        images.read(UPLOAD, 3, 10)
    with pytest.raises(InputError, match="does not exist"):
        TaskImages(None, folder / "none")

"""The store as handlers see it: off the event loop, in one thread, with failures that become a request's."""

import asyncio
import threading
from pathlib import Path

import pytest

from frontend.errors import HttpErrorCode, RequestError
from frontend.response_shelf import ResponseShelf
from frontend.response_store import Limits, ResponseStore, StoredResponse, StoreUnavailableError


def shelf_of(folder: Path, most_bytes: int = 10_000) -> ResponseShelf:
    return ResponseShelf(ResponseStore(folder / "s", Limits(most_bytes, 100.0)), most_bytes)


async def test_calls_run_in_one_thread_that_is_not_the_loops(tmp_path: Path) -> None:
    """In the order in which they came, and the loop goes on meanwhile."""
    shelf = shelf_of(tmp_path)
    may_go = threading.Event()
    names: list[str] = []

    def waiting(store: ResponseStore) -> str:
        del store
        assert may_go.wait(10)
        names.append(threading.current_thread().name)
        return "first"

    def noting(store: ResponseStore) -> str:
        del store
        names.append(threading.current_thread().name)
        return "second"

    async with asyncio.TaskGroup() as group:
        first, second = (group.create_task(shelf.call(work)) for work in (waiting, noting))
        await asyncio.sleep(0)
        assert names == []
        may_go.set()
    assert (first.result(), second.result()) == ("first", "second")
    assert len(set(names)) == 1
    assert names[0] != threading.current_thread().name
    await shelf.close()


async def test_a_store_that_cannot_be_used_is_a_503(tmp_path: Path) -> None:
    """With the store's words."""
    shelf = shelf_of(tmp_path)

    def failing(store: ResponseStore) -> None:
        raise StoreUnavailableError("no room")

    with pytest.raises(RequestError) as caught:
        await shelf.call(failing)
    assert (caught.value.code, caught.value.status, caught.value.message) == (
        HttpErrorCode.RESPONSE_STORE_UNAVAILABLE,
        503,
        "no room",
    )
    await shelf.close()


async def test_a_disk_that_hangs_costs_the_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a time its caller is told, and nobody waits for ever."""
    monkeypatch.setattr("frontend.response_shelf._CALL_LIMIT_S", 0.05)
    shelf = shelf_of(tmp_path)
    may_go = threading.Event()
    with pytest.raises(RequestError) as caught:
        await shelf.call(lambda store: may_go.wait(10))
    may_go.set()
    assert caught.value.code == HttpErrorCode.RESPONSE_STORE_UNAVAILABLE
    monkeypatch.undo()
    stored = StoredResponse("a", None, b"{}", b"[]")
    await shelf.call(lambda store: store.save(stored, []))
    assert await shelf.call(lambda store: store.find("a")) == stored
    await shelf.close()


def test_without_bytes_it_is_not_open(tmp_path: Path) -> None:
    """Nothing is stored then, and no thread is started."""
    before = threading.active_count()
    assert [shelf_of(tmp_path, most_bytes).is_open for most_bytes in (0, 1)] == [False, True]
    assert threading.active_count() == before

"""The store of responses: bounds in bytes and in time, chains, and what a bad file costs."""

import logging
import os
import sqlite3
import stat
from pathlib import Path

import pytest

from frontend.response_store import (
    ConversationTooLongError,
    Limits,
    ResponseMissingError,
    ResponseStore,
    StoredResponse,
    StoreUnavailableError,
)

LIMITS = Limits(bytes=100_000, ttl_s=100.0)


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def stored(id_: str, previous: str | None = None, size: int = 10) -> StoredResponse:
    return StoredResponse(id_, previous, f'{{"id":"{id_}"}}'.encode().ljust(size), b"[]")


def kept(store: ResponseStore, ids: list[str]) -> list[str]:
    return [id_ for id_ in ids if store.find(id_) is not None]


def test_what_is_saved_is_found(tmp_path: Path) -> None:
    """Whole, by its id and by an item's, and by another process's connection."""
    store, other = ResponseStore(tmp_path / "s", LIMITS), ResponseStore(tmp_path / "s", LIMITS)
    store.save(stored("a"), ["msg_1", "msg_2"])
    assert other.find("a") == stored("a")
    assert other.find_item("msg_2") == stored("a")
    assert (other.find("b"), other.find_item("msg_3")) == (None, None)


def test_nobody_else_can_read_it(tmp_path: Path) -> None:
    """The folder is 0700, and all files in it 0600."""
    store = ResponseStore(tmp_path / "s", LIMITS)
    store.save(stored("a"), [])
    assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o700
    assert {path.name: stat.S_IMODE(path.stat().st_mode) for path in (tmp_path / "s").iterdir()} == {
        "1.db": 0o600,
        "1.db-wal": 0o600,
        "1.db-shm": 0o600,
    }


def test_nothing_is_made_before_it_is_needed(tmp_path: Path) -> None:
    """A server that nobody asks for responses has no store."""
    ResponseStore(tmp_path / "s", LIMITS).close()
    assert list(tmp_path.iterdir()) == []


def test_chain_is_oldest_first(tmp_path: Path) -> None:
    """A response and all that it goes on from; siblings are not among them."""
    store = ResponseStore(tmp_path / "s", LIMITS)
    for id_, previous in (("a", None), ("b", "a"), ("other", "a"), ("c", "b")):
        store.save(stored(id_, previous), [])
    assert [response.id for response in store.chain("c", 1_000)] == ["a", "b", "c"]


def test_a_gap_in_a_chain_is_named(tmp_path: Path) -> None:
    """The first that is missing, seen from the end."""
    store = ResponseStore(tmp_path / "s", LIMITS)
    for id_, previous in (("a", None), ("b", "a"), ("c", "b")):
        store.save(stored(id_, previous), [])
    assert store.delete("a") is True
    assert store.delete("a") is False
    with pytest.raises(ResponseMissingError) as caught:
        store.chain("c", 1_000)
    assert caught.value.id == "a"


def test_a_chain_is_bounded_in_bytes(tmp_path: Path) -> None:
    """A conversation as long as that is not read into memory."""
    store = ResponseStore(tmp_path / "s", LIMITS)
    store.save(stored("a", size=600), [])
    store.save(stored("b", "a", size=600), [])
    assert len(store.chain("b", 1_204)) == 2
    with pytest.raises(ConversationTooLongError):
        store.chain("b", 1_203)


def test_the_least_used_goes_first(tmp_path: Path) -> None:
    """Bytes are bounded; going on from a response keeps all of its line."""
    clock = Clock()
    store = ResponseStore(tmp_path / "s", Limits(bytes=5_000, ttl_s=100), clock)
    for id_, previous in (("root", None), ("idle", None), ("next", "root")):
        clock.now_s += 1
        store.save(stored(id_, previous, size=1_200), [])
    clock.now_s += 1
    store.save(stored("new", size=1_200), [])
    assert kept(store, ["root", "idle", "next", "new"]) == ["root", "next", "new"]
    assert sum(path.stat().st_size for path in (tmp_path / "s").glob("*.db")) < 100_000


def test_many_responses_stay_within_the_bytes(tmp_path: Path) -> None:
    """The file stops growing: room that is given up is used again."""
    store = ResponseStore(tmp_path / "s", Limits(bytes=300_000, ttl_s=100))
    sizes: list[int] = []
    for index in range(600):
        store.save(stored(f"r{index}", size=3_000), [f"msg_{index}"])
        sizes.append(sum(path.stat().st_size for path in (tmp_path / "s").iterdir()))
    assert max(sizes) < 2 * 300_000 + 1_500_000
    assert max(sizes[300:]) <= max(sizes[:300]) * 1.1
    assert len(kept(store, [f"r{index}" for index in range(600)])) == 300_000 // (3_000 + 2 + 400)


def test_one_that_is_larger_than_all_is_refused(tmp_path: Path) -> None:
    """And nothing leaves for it."""
    store = ResponseStore(tmp_path / "s", Limits(bytes=3_000, ttl_s=100))
    store.save(stored("a"), [])
    with pytest.raises(StoreUnavailableError, match=r"4202 bytes.*3000"):
        store.save(stored("b", size=4_000), [])
    assert kept(store, ["a", "b"]) == ["a"]


def test_old_ones_are_gone(tmp_path: Path) -> None:
    """Not found after the time, and then removed from the file with the next save, text and all."""
    clock = Clock()
    store = ResponseStore(tmp_path / "s", LIMITS, clock)
    store.save(StoredResponse("a", None, b'{"text":"my secret"}', b"[]"), ["msg_1"])
    clock.now_s += 100.5
    assert (store.find("a"), store.find_item("msg_1"), store.delete("a")) == (None, None, False)
    store.save(stored("b"), [])
    store.close()
    assert b"my secret" not in (tmp_path / "s" / "1.db").read_bytes()


@pytest.mark.parametrize("where", [0, 4_096 * 2])
def test_a_corrupt_file_is_set_aside(tmp_path: Path, where: int, caplog: pytest.LogCaptureFixture) -> None:
    """The store begins anew beside it, the log says so, and a connection that was open follows."""
    store, other = ResponseStore(tmp_path / "s", LIMITS), ResponseStore(tmp_path / "s", LIMITS)
    store.save(stored("a", size=40_000), [])
    assert other.find("a") is not None
    store.close()
    other.close()
    path = tmp_path / "s" / "1.db"
    with path.open("r+b") as file:
        file.seek(where)
        file.write(b"\xff" * 8_000)
    with caplog.at_level(logging.ERROR):
        store.save(stored("b"), [])
    assert [record.message for record in caplog.records] == ["responses.corrupt"]
    assert other.find("b") == stored("b")
    assert (other.find("a"), store.find("a")) == (None, None)
    assert {"1.corrupt", "2.db"} <= {path.name for path in (tmp_path / "s").iterdir()}


def test_an_open_connection_follows_to_the_new_file(tmp_path: Path) -> None:
    """One process finds the file corrupt while another has it open: both go on in the same new one."""
    store, other = ResponseStore(tmp_path / "s", LIMITS), ResponseStore(tmp_path / "s", LIMITS)
    store.save(stored("a"), [])
    assert other.find("a") is not None
    store._opened()
    error = sqlite3.DatabaseError("scripted")
    store._set_aside(error)
    store.save(stored("b"), [])
    assert other.find("b") == stored("b")
    other.save(stored("c"), [])
    store.close()
    assert other.find("b") == stored("b")
    assert ResponseStore(tmp_path / "s", LIMITS).find("c") == stored("c")
    assert sorted(path.name for path in (tmp_path / "s").glob("*.db")) == ["2.db"]


def test_only_the_last_corrupt_file_is_kept(tmp_path: Path) -> None:
    """A disk that goes on failing does not fill up with them."""
    store = ResponseStore(tmp_path / "s", LIMITS)
    for number in (1, 2, 3):
        store.save(stored("a"), [])
        store.close()
        (tmp_path / "s" / f"{number}.db").write_bytes(b"no database at all" * 1_000)
    store.save(stored("a"), [])
    assert sorted(path.name for path in (tmp_path / "s").glob("*.corrupt")) == ["3.corrupt"]


def test_a_locked_file_costs_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Saving fails with the reason, reading goes on, and after the lock all is well."""
    monkeypatch.setattr("frontend.response_store._BUSY_S", 0.05)
    store = ResponseStore(tmp_path / "s", LIMITS)
    store.save(stored("a"), [])
    blocker = sqlite3.connect(tmp_path / "s" / "1.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnavailableError, match="locked"):
        store.save(stored("b"), [])
    assert store.find("a") == stored("a")
    blocker.close()
    store.save(stored("b"), [])
    assert kept(store, ["a", "b"]) == ["a", "b"]


def test_a_full_disk_costs_the_call(tmp_path: Path) -> None:
    """What was there stays readable."""
    store = ResponseStore(tmp_path / "s", LIMITS)
    store.save(stored("a"), [])
    store._opened().execute("PRAGMA max_page_count = 1")
    with pytest.raises(StoreUnavailableError, match="full"):
        store.save(stored("b", size=50_000), [])
    assert kept(store, ["a", "b"]) == ["a"]
    store.save(stored("b", size=50_000), [])


def test_a_folder_that_cannot_be_made_costs_the_call(tmp_path: Path) -> None:
    """The words say why."""
    (tmp_path / "s").write_text("a file")
    with pytest.raises(StoreUnavailableError, match="exists"):
        ResponseStore(tmp_path / "s", LIMITS).find("a")


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    """Nobody makes the store write into a file of their choice."""
    (tmp_path / "s").mkdir(mode=0o700)
    target = tmp_path / "elsewhere"
    os.symlink(target, tmp_path / "s" / "1.db")
    with pytest.raises(StoreUnavailableError):
        ResponseStore(tmp_path / "s", LIMITS).save(stored("a"), [])
    assert not target.exists()


def test_a_newer_layout_is_left_alone(tmp_path: Path) -> None:
    """A file of another version is neither read nor set aside."""
    store = ResponseStore(tmp_path / "s", LIMITS)
    store.save(stored("a"), [])
    store._opened().execute("PRAGMA user_version = 9")
    store.close()
    with pytest.raises(StoreUnavailableError, match="version 9"):
        store.find("a")
    assert (tmp_path / "s" / "1.db").exists()

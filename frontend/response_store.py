"""Responses that are kept, in an SQLite file that all frontends of a runtime folder share.

Owns the file, its bounds in bytes and in time, and what happens when it is locked, full or corrupt; knows no dialect.
Blocking: one thread calls it, never the event loop's.
"""

import contextlib
import fcntl
import logging
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

log = logging.getLogger(__name__)

# Of the schema below.
_VERSION: Final = 1
_BUSY_S: Final = 2.0
# Beyond the payload: what SQLite's pages and indexes take, seen under 10 % with small responses.
_ROOM_FOR_PAGES: Final = 2.0
_PAGE_BYTES: Final = 4_096
_JOURNAL_PAGES: Final = 256
_LEAST_FILE_BYTES: Final = 256 * 1_024
# Each row and each of its items, beside their text.
_ROW_BYTES: Final = 200

_SCHEMA: Final = """
CREATE TABLE responses (
    id TEXT PRIMARY KEY,
    previous TEXT,
    used_s REAL NOT NULL,
    bytes INTEGER NOT NULL,
    body BLOB NOT NULL,
    items BLOB NOT NULL
);
CREATE INDEX by_use ON responses (used_s, bytes);
CREATE TABLE items (
    id TEXT NOT NULL,
    response TEXT NOT NULL REFERENCES responses (id) ON DELETE CASCADE,
    PRIMARY KEY (id, response)
) WITHOUT ROWID;
CREATE INDEX by_response ON items (response);
"""

Answer = TypeVar("Answer")


class StoreUnavailableError(Exception):
    """The store cannot do it now; the words are for the client."""


class ResponseMissingError(Exception):
    """A response is not, or no longer, stored."""

    def __init__(self, id_: str) -> None:
        super().__init__(id_)
        self.id = id_


class ConversationTooLongError(Exception):
    """What a response goes on from has more bytes than may be read at once."""


class StoredResponse(NamedTuple):
    """body: the response as JSON. items: its own input items, a JSON array. previous: what it goes on from."""

    id: str
    previous: str | None
    body: bytes
    items: bytes


class Limits(NamedTuple):
    """bytes: of all that is kept; 0 keeps nothing. ttl_s: since it was made, or last gone on from."""

    bytes: int
    ttl_s: float


class ResponseStore:
    """One process's connection to the newest of the folder's numbered files, opened when it is first needed.

    A file that cannot be read makes way for one of the next number: SQLite tells a file's journal by its name alone,
    so that two files must never have had the same.
    """

    def __init__(self, folder: Path, limits: Limits, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._limits = limits
        self._clock = clock
        self._connection: sqlite3.Connection | None = None
        self._number = 0
        self._inode = 0

    def save(self, response: StoredResponse, item_ids: Sequence[str]) -> None:
        """Keeps a response, and makes room for it: what was used least lately goes first.

        Raises StoreUnavailableError, also for one that is larger than the whole store.
        """
        size = len(response.body) + len(response.items) + _ROW_BYTES * (1 + len(item_ids))
        if size > self._limits.bytes:
            raise StoreUnavailableError(
                f"the response takes {size} bytes, and all that are kept may take {self._limits.bytes} "
                "(--response-store-bytes)"
            )

        def saved(connection: sqlite3.Connection) -> None:
            now_s = self._clock()
            connection.execute("DELETE FROM responses WHERE used_s < ?", (now_s - self._limits.ttl_s,))
            # Whoever goes on from a response keeps all that it goes on from in use.
            connection.executemany(
                "UPDATE responses SET used_s = ? WHERE id = ?",
                [(now_s, row[0]) for row in _ancestry(connection, response.previous)],
            )
            self._make_room(connection, size)
            connection.execute(
                "INSERT INTO responses VALUES (?, ?, ?, ?, ?, ?)",
                (response.id, response.previous, now_s, size, response.body, response.items),
            )
            rows = [(id_, response.id) for id_ in item_ids]
            connection.executemany("INSERT OR IGNORE INTO items VALUES (?, ?)", rows)

        self._run(saved, is_write=True)

    def find(self, id_: str) -> StoredResponse | None:
        """One response. Raises StoreUnavailableError."""
        return self._run(lambda connection: self._found(connection, id_))

    def find_item(self, item_id: str) -> StoredResponse | None:
        """A response that has the item, in its input or its output. Raises StoreUnavailableError."""

        def found(connection: sqlite3.Connection) -> StoredResponse | None:
            row = connection.execute("SELECT response FROM items WHERE id = ? LIMIT 1", (item_id,)).fetchone()
            return None if row is None else self._found(connection, row[0])

        return self._run(found)

    def chain(self, id_: str, most_bytes: int) -> list[StoredResponse]:
        """A response and all that it goes on from, oldest first.

        Raises ResponseMissingError for the first that is not there, ConversationTooLongError for more bytes than
        that, and StoreUnavailableError.
        """

        def found(connection: sqlite3.Connection) -> list[StoredResponse]:
            responses: list[StoredResponse] = []
            next_id: str | None = id_
            total = 0
            while next_id is not None:
                response = self._found(connection, next_id)
                if response is None:
                    raise ResponseMissingError(next_id)
                responses.append(response)
                total += len(response.body) + len(response.items)
                if total > most_bytes:
                    raise ConversationTooLongError
                next_id = response.previous
            return responses[::-1]

        return self._run(found)

    def delete(self, id_: str) -> bool:
        """Removes a response; False when there is none. Raises StoreUnavailableError."""

        def deleted(connection: sqlite3.Connection) -> bool:
            oldest_s = self._clock() - self._limits.ttl_s
            cursor = connection.execute("DELETE FROM responses WHERE id = ? AND used_s >= ?", (id_, oldest_s))
            return cursor.rowcount > 0

        return self._run(deleted, is_write=True)

    def close(self) -> None:
        """Ends the connection; the next call would open another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _found(self, connection: sqlite3.Connection, id_: str) -> StoredResponse | None:
        oldest_s = self._clock() - self._limits.ttl_s
        row = connection.execute(
            "SELECT id, previous, body, items FROM responses WHERE id = ? AND used_s >= ?", (id_, oldest_s)
        ).fetchone()
        return None if row is None else StoredResponse(*row)

    def _make_room(self, connection: sqlite3.Connection, wanted_bytes: int) -> None:
        kept_bytes: int = connection.execute("SELECT coalesce(sum(bytes), 0) FROM responses").fetchone()[0]
        excess = kept_bytes + wanted_bytes - self._limits.bytes
        if excess <= 0:
            return
        leaving: list[tuple[str]] = []
        for id_, size in connection.execute("SELECT id, bytes FROM responses ORDER BY used_s, rowid"):
            leaving.append((id_,))
            excess -= size
            if excess <= 0:
                break
        connection.executemany("DELETE FROM responses WHERE id = ?", leaving)

    def _run(self, work: Callable[[sqlite3.Connection], Answer], *, is_write: bool = False) -> Answer:
        """One transaction; over a corrupt file once more, in a new one."""
        try:
            return self._transacted(work, is_write)
        except sqlite3.DatabaseError as error:
            if not _is_corrupt(error):
                raise self._unavailable(error) from error
            self._set_aside(error)
        try:
            return self._transacted(work, is_write)
        except sqlite3.DatabaseError as error:
            raise self._unavailable(error) from error

    def _transacted(self, work: Callable[[sqlite3.Connection], Answer], is_write: bool) -> Answer:
        connection = self._opened()
        # Its block ends in a commit, or in a rollback where an error leaves it.
        with connection:
            connection.execute("BEGIN IMMEDIATE" if is_write else "BEGIN")
            return work(connection)

    def _unavailable(self, error: sqlite3.Error) -> StoreUnavailableError:
        self.close()
        log.warning("responses.unavailable", extra={"reason": str(error)})
        return StoreUnavailableError(f"the store of responses cannot be used now ({error})")

    def _opened(self) -> sqlite3.Connection:
        """The connection to the newest file: another process may have set the former one aside."""
        if self._connection is not None and _inode_of(self._path) == self._inode:
            return self._connection
        self.close()
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._number = max((int(path.stem) for path in self._folder.glob("*.db")), default=self._number + 1)
            # SQLite gives its -wal and -shm files the mode of this one.
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
        except OSError as error:
            raise sqlite3.OperationalError(error.strerror) from error
        connection = sqlite3.connect(self._path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        self._connection, self._inode = connection, _inode_of(self._path)
        self._prepare(connection)
        return connection

    @property
    def _path(self) -> Path:
        return self._folder / f"{self._number}.db"

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Raises sqlite3.DatabaseError for a file that is none of ours."""
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")
        # What is deleted, by a client or by age, is not to be found in the file.
        connection.execute("PRAGMA secure_delete = ON")
        file_bytes = _LEAST_FILE_BYTES + self._limits.bytes * _ROOM_FOR_PAGES
        connection.execute(f"PRAGMA max_page_count = {int(file_bytes // _PAGE_BYTES)}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {_JOURNAL_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {_LEAST_FILE_BYTES}")
        if _version_of(connection) == 0:
            connection.execute("BEGIN IMMEDIATE")
            # Another process may have been faster.
            if _version_of(connection) == 0:
                for statement in _SCHEMA.split(";"):
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_VERSION}")
            connection.execute("COMMIT")
        version = _version_of(connection)
        if version != _VERSION:
            raise sqlite3.OperationalError(f"{self._path} has version {version}, not {_VERSION}: remove it")

    def _set_aside(self, error: sqlite3.DatabaseError) -> None:
        """Renames a file that cannot be read, unless another process has done so already; only the last one is kept."""
        self.close()
        try:
            with _locked(self._folder / "lock"):
                if _inode_of(self._path) != self._inode:
                    return
                aside = self._path.with_suffix(".corrupt")
                log.error("responses.corrupt", extra={"reason": str(error), "kept_as": str(aside)})
                for former in self._folder.glob("*.corrupt"):
                    former.unlink()
                self._path.with_name(f"{self._number + 1}.db").touch(mode=0o600)
                self._path.replace(aside)
                for suffix in ("-wal", "-shm"):
                    self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        except OSError as failure:
            raise StoreUnavailableError(
                f"the store of responses is corrupt and cannot be renamed ({failure.strerror})"
            ) from failure


def _version_of(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]


def _is_corrupt(error: sqlite3.Error) -> bool:
    # The low byte of an extended code; errors that Python itself raises have none.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def _ancestry(connection: sqlite3.Connection, id_: str | None) -> list[tuple[str]]:
    """The ids of a response and of all that it goes on from."""
    return connection.execute(
        "WITH RECURSIVE line (id, previous) AS ("
        " SELECT id, previous FROM responses WHERE id = ?"
        " UNION SELECT responses.id, responses.previous FROM responses JOIN line ON responses.id = line.previous"
        ") SELECT id FROM line",
        (id_,),
    ).fetchall()


def _inode_of(path: Path) -> int:
    """0 when there is none."""
    try:
        return path.stat().st_ino
    except OSError:
        return 0


@contextlib.contextmanager
def _locked(path: Path) -> Generator[None]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)

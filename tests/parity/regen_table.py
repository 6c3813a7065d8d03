"""Writes tests/parity/README.md anew: `python -m tests.parity.regen_table`."""

from tests.parity.table import README, table

if __name__ == "__main__":
    README.write_text(table(), encoding="utf-8")

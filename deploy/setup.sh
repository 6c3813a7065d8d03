#!/bin/sh
# Makes .venv with engine-ctl in it, from requirements.lock. Run by `make setup` in the repository's folder.
# $1: the stamp that says it is done.
set -eu
stamp=$1

say() { echo "setup: $*"; }

# A Mac's own python3 is 3.9, and Debian's may lack venv: each candidate shows that it can do the job.
find_python() {
    for candidate in python3.13 python3.12 python3.11 python3; do
        if "$candidate" -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
            echo "$candidate"
            return 0
        fi
    done
    return 1
}

explain_no_python() {
    echo "setup: no Python 3.11 or newer with venv was found, and no uv. To get one:" >&2
    case "$(uname -s)" in
        Darwin) echo "  brew install python@3.13        (or install uv: brew install uv)" >&2 ;;
        *) echo "  apt-get install python3 python3-venv   (Debian, Ubuntu), or install uv" >&2 ;;
    esac
}

make_venv() {
    if python=$(find_python); then
        say "$("$python" --version) ($python)"
        "$python" -m venv --clear .venv
    elif command -v uv >/dev/null 2>&1; then
        say "Python 3.12 by uv"
        uv venv --quiet --clear --seed --python 3.12 .venv
    else
        explain_no_python
        exit 1
    fi
}

is_usable() {
    [ -e "$stamp" ] && .venv/bin/python -m pip --version >/dev/null 2>&1
}

tell_openblas() {
    [ "$(uname -s)" = Linux ] || return 0
    if ! .venv/bin/python -c 'import sys, engine.openblas as o; sys.exit(o.LOADED_PATH is None)'; then
        say "no OpenBLAS: float32 on this CPU runs 50 to 80 times slower; apt-get install libopenblas0-pthread"
    fi
}

is_usable || make_venv
say "installing (the first time takes a minute or two)"
.venv/bin/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
tell_openblas
touch "$stamp"
say "done: .venv/bin/engine-ctl"

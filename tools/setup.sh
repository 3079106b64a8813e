#!/bin/sh
# Make .venv from requirements/lock.txt; does nothing when it is up to date.
set -eu
cd "$(dirname "$0")/.."

python=${PYTHON:-}
if [ -z "$python" ]; then
    for name in python3.11 python3.12 python3; do
        if "$name" -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' \
            2>/dev/null; then
            python=$name
            break
        fi
    done
fi
if [ -z "$python" ]; then
    echo "setup: no Python 3.11 or 3.12 found; install one or set PYTHON=/path/to/python" >&2
    exit 2
fi

stamp=.venv/.stamp
key=$({ cat requirements/lock.txt pyproject.toml; "$python" -V; pwd; } | sha256sum | cut -d' ' -f1)
if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$key" ]; then
    exit 0
fi

[ -x .venv/bin/python ] || "$python" -m venv .venv
pip() { .venv/bin/python -m pip --disable-pip-version-check "$@"; }

# One look before gigabytes of CUDA are fetched.
if [ "${ALLOW_CUDA_TORCH:-0}" != 1 ] && [ "$(uname -s)" = Linux ]; then
    torch=$(grep '^torch==' requirements/lock.txt)
    url=$(pip install --quiet --dry-run --ignore-installed --no-deps --report - "$torch" \
        2>/dev/null | .venv/bin/python -c \
        'import json, sys; print(json.load(sys.stdin)["install"][0]["download_info"]["url"])') \
        || { echo "setup: pip finds no $torch; is a package index reachable?" >&2; exit 2; }
    case $url in
    *cpu*) ;;
    *)
        echo "setup: pip would fetch a CUDA build of $torch; set PIP_EXTRA_INDEX_URL to" \
            "PyTorch's CPU wheel index (pytorch.org, Get Started, pip, CPU)," \
            "or ALLOW_CUDA_TORCH=1" >&2
        exit 2
        ;;
    esac
fi

echo "setup: installing requirements/lock.txt into .venv (about 2 GB, some minutes)"
pip install --quiet --no-deps -r requirements/lock.txt
pip install --quiet --no-deps --no-build-isolation -e .
echo "$key" >"$stamp"

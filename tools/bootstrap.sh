#!/usr/bin/env bash
# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# Finds a Python that can run the tools of this checkout (3.11 or newer, able to make virtual environments) and runs it
# with the arguments given: tools/bootstrap.sh tools/plan.py. What needs pinned packages is set up by tools/workspace.py.
set -u

usable() { # a Python >= 3.11 with venv and pip's bootstrap; pyenv's shims answer only for versions that are switched on
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    local candidate
    for candidate in python3.13 python3.12 python3.14 python3.11 python3 "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[1-9]*/bin/python3; do
        usable "$candidate" && echo "$candidate" && return
    done
    return 1
}

python=$(find_python)
# Debian and Ubuntu ship Python without its venv module.
if [ -z "$python" ] && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "No Python with venv found; installing python3-venv." >&2
    { apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y install python3-venv; } >&2 </dev/null
    python=$(find_python)
fi
if [ -z "$python" ]; then
    echo "No Python 3.11 or newer that can make virtual environments was found: install one (on Debian and Ubuntu:" \
        "apt-get install python3-venv) and run this again." >&2
    exit 1
fi
exec "$python" "$@"

# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who called the API server: ``callers.py AUDIT_LOG`` with a JSON list of the nodes' addresses on standard input counts the calls.

Prints {"controller", "witness", "others"}: calls of this machine, those of a node's address with the user agent ``lab-witness``, which show
that such calls are seen, and all others of a node's address. Those of kubelets are not in the log.
"""

from __future__ import annotations

import json
import sys

if __name__ == "__main__":
    nodes = set(json.load(sys.stdin))
    found = {"controller": 0, "witness": 0, "others": []}
    with open(sys.argv[1], encoding="utf-8") as log:
        for line in log:
            call = json.loads(line)
            if not nodes.intersection(call["sourceIPs"]):
                found["controller"] += 1
            elif call["userAgent"] == "lab-witness":
                found["witness"] += 1
            else:
                found["others"].append([call["user"].get("username"), call["userAgent"], call["requestURI"]])
    print(json.dumps(found))

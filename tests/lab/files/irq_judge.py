# Copyright: (c) 2026, the lo0.rke2_hostprep authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs on a machine and says where the vectors of PCI functions may fire, from the kernel's files alone: nothing here is the collection's.

    irq_judge.py ISOLATED ADDRESS... [--wait SECONDS] [--vectors N]

Prints JSON: ``masks`` {interrupt: hexadecimal mask}, ``exposed`` [interrupts whose mask holds a CPU of ISOLATED (a hexadecimal mask)],
``seconds`` until nothing was exposed at two looks in a row, and (with --vectors) so many vectors were requested. A function's virtual
functions are looked at too.
"""

import argparse
import glob
import json
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("isolated", type=lambda text: int(text, 16))
parser.add_argument("addresses", nargs="*")
parser.add_argument("--wait", type=float, default=0)
parser.add_argument("--vectors", type=int)
options = parser.parse_args()


def look():
    masks = {}
    for address in options.addresses:
        function = "/sys/bus/pci/devices/" + address
        for place in [function, *glob.glob(function + "/virtfn*")]:
            for number in os.listdir(place + "/msi_irqs") if os.path.isdir(place + "/msi_irqs") else ():
                try:
                    with open("/proc/irq/%s/smp_affinity" % number) as mask:
                        masks[number] = mask.read().strip().replace(",", "")
                except OSError:  # no driver has requested it, or it has just gone
                    continue
    return masks, sorted(int(number) for number, mask in masks.items() if int(mask, 16) & options.isolated)


start = time.monotonic()
right = 0
while True:
    masks, exposed = look()
    right = right + 1 if not exposed and options.vectors in (None, len(masks)) else 0
    seconds = time.monotonic() - start
    if right == 2 or seconds >= options.wait:
        break
    time.sleep(0.2)
print(json.dumps({"masks": masks, "exposed": exposed, "seconds": round(seconds, 1), "right": right == 2}))

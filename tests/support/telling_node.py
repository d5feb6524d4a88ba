"""A node that tells in its last line which modules it has loaded; else as ``tidelog server`` is.

python telling_node.py --config FILE
"""

from __future__ import annotations

import sys

from tidelog.broker.process import main

LOADED = "loaded: "

if __name__ == "__main__":
    code = main(sys.argv[1:])
    loaded = sorted(name for name, module in sys.modules.items() if module is not None)
    print(f"{LOADED}{' '.join(loaded)}", flush=True)
    sys.exit(code)

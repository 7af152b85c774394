"""Another program that sets one thing to its own value, a moment after anybody has changed it for the first time.

``python setting_back.py FILE VALUE SECONDS`` writes a kernel file; ``python setting_back.py mount:FOLDER FILE VALUE
SECONDS`` remounts FOLDER with the option VALUE while FILE does not list it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path


def main() -> None:
    *mount, file, value, after_s = sys.argv[1:]
    before = Path(file).read_text()
    while Path(file).read_text() == before:
        time.sleep(0.002)
    while True:
        if value not in Path(file).read_text().split():
            time.sleep(float(after_s))
            if mount:
                folder = mount[0].removeprefix("mount:")
                subprocess.run(["mount", "-o", f"remount,{value}", folder], check=False)
            else:
                Path(file).write_text(value)
        time.sleep(0.002)


if __name__ == "__main__":
    main()

#!/usr/bin/env bash
# The top of the page of scripts/compare.sh as the README shows it: docs/compare.png. Needs chromium.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

[[ -f build/report/index.html ]] || { echo "picture.sh: first run scripts/compare.sh" >&2; exit 2; }
sandbox=()
((EUID == 0)) && sandbox=(--no-sandbox)  # Chromium has none for root
chromium --headless "${sandbox[@]}" --disable-gpu --hide-scrollbars --window-size=1200,1420 \
  --screenshot=docs/compare.png "file://$PWD/build/report/index.html" 2>/dev/null
# 64 colors are enough for it, and a third of the bytes.
/usr/bin/python3 - docs/compare.png <<'END'
import sys
from PIL import Image
Image.open(sys.argv[1]).convert("RGB").quantize(64).save(sys.argv[1], optimize=True)
END

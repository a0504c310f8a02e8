#!/usr/bin/env bash
# The top of the page of scripts/compare.sh as the README shows it: docs/compare.png. Needs chromium.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

[[ -f build/report/index.html ]] || { echo "picture.sh: first run scripts/compare.sh" >&2; exit 2; }
sandbox=()
((EUID == 0)) && sandbox=(--no-sandbox)  # Chromium has none for root
# Facts and the first table alone; what is empty below them is cut off.
top=build/report/top.html
sed 's|</head>|<style>.card ~ .card, footer { display: none }</style></head>|' build/report/index.html >"$top"
chromium --headless "${sandbox[@]}" --disable-gpu --hide-scrollbars --window-size=1280,3000 \
  --screenshot=docs/compare.png "file://$PWD/$top" 2>/dev/null
# 64 colors are enough for it, and a third of the bytes.
/usr/bin/python3 - docs/compare.png <<'END'
import sys
from PIL import Image, ImageChops
page = Image.open(sys.argv[1]).convert("RGB")
below = Image.new("RGB", page.size, page.getpixel((0, page.height - 1)))
end = ImageChops.difference(page, below).getbbox()[3]
page.crop((0, 0, page.width, min(page.height, end + 30))).quantize(64).save(sys.argv[1], optimize=True)
END

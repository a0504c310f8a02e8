#!/usr/bin/env bash
# What a chapter's main.cpp changes in its parent's: scripts/chapter_diff.py says how to call it.
exec python3 -B "$(dirname "${BASH_SOURCE[0]}")/chapter_diff.py" "$@"

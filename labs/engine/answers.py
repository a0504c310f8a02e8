"""Exercises whose answer is a number: answers.toml has a hash of each, so that it does not tell it.

`labs/engine/answers.py 08.2 12.5 3` prints the entry for 12.5 to three digits.
"""

import hashlib
import sys
import tomllib
from decimal import Decimal, InvalidOperation

if __package__:
    from .labs import ROOT, Refused


def number(value):
    """@throws InvalidOperation"""
    found = Decimal(value.replace(",", "").replace("_", ""))
    if not found.is_finite():
        raise InvalidOperation
    return found


def rounded(value, digits):
    """A number to so many digits, in one way of writing. @throws InvalidOperation"""
    return f"{number(value):.{digits - 1}E}"


def hashed(exercise, value, digits):
    return hashlib.sha256(f"{exercise} {rounded(value, digits)}".encode()).hexdigest()


def judge(exercise, value):
    """(whether it is right, what to say)"""
    with (ROOT / "labs/answers.toml").open("rb") as file:
        known = tomllib.load(file)
    if exercise not in known:
        raise Refused(f"no exercise {exercise} with a number; there are {', '.join(sorted(known))}")
    entry = known[exercise]
    try:
        right = hashed(exercise, value, entry["digits"]) == entry["sha256"]
    except InvalidOperation:
        raise Refused(f"{value} is no number") from None
    return right, f"{exercise}: right" if right else f"{exercise}: not {value}; wanted is {entry['what']}, to {entry['digits']} digits"


if __name__ == "__main__":
    exercise, value, digits = sys.argv[1:]
    print(f'["{exercise}"]\nwhat = ""\ndigits = {digits}\nsha256 = "{hashed(exercise, value, int(digits))}"')

#!/usr/bin/env python3
"""The check of elementary functions passes a healthy tree and catches planted calls."""

import unittest

import check_math
from test_house import Tree


class Math(Tree):
    def caught(self, name, text, words):
        self.plant(name, text)
        self.assert_caught(check_math.check, words)
        (self.root / name).unlink()

    def test_healthy(self):
        fine = "RunLog log(o); x = math::exp(y); z = std::sqrt(y); n = log2e(3);  // std::exp(y)\n"
        self.plant("common/b.cpp", fine)
        self.plant("kernels/cpu/k.cpp", "v = exp(v);\n")
        self.plant("kernels/cuda/k.cu", "x = expf(y);\n")
        self.assertEqual(check_math.check(self.root), [])

    def test_calls(self):
        for call in ["std::exp(x)", "::tanh(x)", "powf(x, y)", "-cos(x)", "std::log2 (x)"]:
            with self.subTest(call):
                for where in ["kernels/cpu/k.cpp", "common/b.cpp", "chapters/02_adamw/k.h"]:
                    name = call.split("(")[0].strip(" -")
                    self.caught(where, f"// A.\nreturn {call};\n", f":2: {name} has other bits")


if __name__ == "__main__":
    unittest.main()

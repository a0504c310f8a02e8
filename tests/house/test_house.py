#!/usr/bin/env python3
"""The checks of the house are checked: each passes a healthy tree and catches planted faults."""

import unittest

import check_format
import check_includes
import check_text
from planted import HEALTHY, Tree


class Includes(Tree):
    def caught(self, name, text, words):
        self.plant(name, text)
        self.assert_caught(check_includes.check, words)

    def test_healthy(self):
        self.assertEqual(check_includes.check(self.root), [])

    def test_kernels_know_nobody(self):
        self.caught("kernels/bad.h", '#include "common/b.h"\n', "kernels may not know common/b.h")

    def test_common_knows_no_chapter(self):
        text = '#include "chapters/02_adamw/adamw.h"\n'
        self.caught("common/bad.h", text, "common may not know chapters/")

    def test_chapter_knows_no_descendant(self):
        text = '#include "chapters/02_adamw/adamw.h"\n'
        self.caught("chapters/01_sgd/bad.h", text, "01_sgd may not know")

    def test_chapter_knows_nothing_of_another_line(self):
        self.plant("chapters/07_ddp/ddp.h", "")
        text = '#include "chapters/07_ddp/ddp.h"\n'
        self.caught("chapters/11_tensor_parallel/bad.h", text, "does not descend from 07_ddp")

    def test_chapter_may_know_what_it_descends_from(self):
        for name in ["03_schedules", "18_offload"]:
            self.plant(f"chapters/{name}/good.h", '#include "chapters/02_adamw/adamw.h"\n')
        self.assertEqual(check_includes.check(self.root), [])

    def test_nobody_knows_tests(self):
        self.plant("tests/t.h", "")
        self.caught("common/bad.h", '#include "tests/t.h"\n', "common may not know tests/t.h")

    def test_path_from_the_root(self):
        self.caught("common/bad.h", '#include "b.h"\n', "seen from the root")

    def test_chosen_header_is_in_both_folders(self):
        self.plant("kernels/cuda/native/launch.h", "// L.\n#pragma once\n")
        self.plant("kernels/cuda/k.cu", '// K.\n#include "launch.h"\n')
        self.assert_caught(check_includes.check, '"launch.h" is no file')
        self.plant("kernels/cuda/on_cpu/launch.h", "// L.\n#pragma once\n")
        self.assertEqual(check_includes.check(self.root), [])
        self.caught("kernels/k.cpp", '#include "launch.h"\n', '"launch.h" is no file')

    def test_path_goes_only_down(self):
        text = '#include "kernels/../common/b.h"\n'
        self.caught("kernels/bad.h", text, "seen from the root")

    def test_no_file_of_ours_in_angles(self):
        self.caught("common/bad.h", "#  include <kernels/a.h>\n", "quotes")

    def test_circle_of_files(self):
        self.plant("kernels/c.h", '#include "kernels/d.h"\n')
        self.caught("kernels/d.h", '#include "kernels/c.h"\n', "circle: kernels/c.h -> kernels/d.h")

    def test_circle_of_folders(self):
        self.plant("common/data/d.h", '#include "common/b.h"\n')
        self.plant("common/data/e.h", "")
        self.caught("common/b.h", '#include "common/data/e.h"\n', "circle: common -> common/data")

    def test_target_of_a_higher_floor(self):
        text = "add_library(floor0 a.cpp)\ntarget_link_libraries(floor0 floor1)\n"
        self.caught("kernels/CMakeLists.txt", text, "may not know the target floor1 of common")

    def test_targets_that_functions_make(self):
        self.plant("tests/CMakeLists.txt", "ladder_test(some_tests LABEL unit)\n# ch07_ddp\n")
        self.assertEqual(check_includes.check(self.root), [])
        for target, home in [("ch07_ddp", "chapters"), ("some_tests", "tests")]:
            with self.subTest(target):
                text = HEALTHY["common/CMakeLists.txt"] + f"add_dependencies(floor1 {target})\n"
                self.caught("common/CMakeLists.txt", text, f"the target {target} of {home}")


class Text(Tree):
    def caught(self, name, text, words):
        self.plant(name, text)
        self.assert_caught(check_text.check, words)

    def test_healthy(self):
        self.assertEqual(check_text.check(self.root), [])

    def test_tab(self):
        self.caught("common/b.cpp", "int\tx;\n", "b.cpp:1: tab")

    def test_blanks_at_the_end_of_a_line(self):
        self.caught("docs/x.md", "word \n", "x.md:1: blanks")

    def test_last_line_without_end(self):
        self.caught("docs/x.md", "word", "one line end")

    def test_header_without_a_comment(self):
        self.caught("kernels/x.h", "#pragma once\n", "no comment")

    def test_long_files(self):
        for name, limit in [
            ("kernels/x.h", 200),
            ("chapters/02_adamw/x.h", 250),
            ("common/x.cpp", 400),
            ("tests/x.cpp", 300),
        ]:
            with self.subTest(name):
                self.plant(name, "//\n" * limit)
                self.assertEqual(check_text.check(self.root), [])
                self.caught(name, "//\n" * (limit + 1), f"{limit + 1} lines, limit {limit}")
                (self.root / name).unlink()

    def test_script_that_does_not_parse(self):
        self.plant(".ci/run", "#!/usr/bin/env bash\nif true; then\n")
        self.assertTrue(any("syntax error" in fault for fault in check_text.check(self.root)))

    def test_script_that_cannot_be_called(self):
        self.plant("tests/t.sh", "#!/usr/bin/env bash\n")  # given to bash
        self.assertEqual(check_text.check(self.root), [])
        self.caught("scripts/s.sh", "#!/usr/bin/env bash\n", "s.sh: not executable")


@unittest.skipIf(check_format.other_version(), check_format.other_version())
class Format(Tree):
    def test_healthy(self):
        self.assertEqual(check_format.check(self.root), [])

    def test_unformatted(self):
        self.plant("common/b.cpp", "int   x  ;\n")
        self.assert_caught(check_format.check, "common/b.cpp: clang-format would change it")


if __name__ == "__main__":
    unittest.main()

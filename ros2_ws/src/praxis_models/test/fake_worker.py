# SPDX-License-Identifier: Apache-2.0
"""A worker without a model that takes a worker's options and misbehaves as told."""

import argparse
import http.server
import json
import os
import pathlib
import signal
import subprocess
import sys
import threading

SLEEPER = 'import signal; signal.pause()'


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument('backend')
    parser.add_argument('--host')
    parser.add_argument('--port', type=int)
    parser.add_argument('--port-file', type=pathlib.Path)
    parser.add_argument('--exit-on-stdin-eof', action='store_true')
    parser.add_argument('--ignore-eof', action='store_true')
    parser.add_argument('--ignore-term', action='store_true')
    parser.add_argument('--no-port', action='store_true')
    parser.add_argument('--die', type=int, help='exit with this while loading')
    parser.add_argument('--die-unless', type=pathlib.Path, help='die unless this file is there')
    parser.add_argument('--loading', type=int, default=0, help='answers of 503 before 200')
    parser.add_argument('--children', action='store_true')
    parser.add_argument('--facts', type=pathlib.Path, help='takes one JSON object of this run')
    parser.add_argument('--api-token')
    parser.add_argument('--token-file')
    parser.add_argument('--chatter', type=int, default=0, help='bytes to print at start')
    return parser.parse_args()


def follow_stdin(on_end):
    def read():
        while os.read(0, 1):
            pass
        on_end()

    threading.Thread(target=read, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    left = 0
    hung = threading.Event()

    def do_GET(self):
        if self.path == '/die':
            print('the model has lost its mind', flush=True)
            os._exit(7)
        if self.path == '/hang':
            self.hung.set()
        elif self.hung.is_set():
            threading.Event().wait()
        code = 200
        if self.path == '/healthz' and Handler.left > 0:
            Handler.left -= 1
            code = 503
        self.send_response(code)
        self.end_headers()
        self.wfile.write(b'OK\n' if code == 200 else b'{"status": "loading"}')

    def log_message(self, *_):
        pass


def main():
    chosen = options()
    print('fake worker', chosen.backend, 'begins')
    if chosen.chatter:
        line = 'x' * 99 + '\n'
        sys.stdout.write(line * (chosen.chatter // len(line)))
    children = []
    if chosen.children:
        children = [
            subprocess.Popen([sys.executable, '-c', SLEEPER]),
            subprocess.Popen([sys.executable, '-c', SLEEPER], start_new_session=True),
        ]
    if chosen.facts:
        facts = {
            'pid': os.getpid(),
            'group': os.getpgrp(),
            'children': [child.pid for child in children],
            'directory': os.getcwd(),
            'path': sys.path[:4],
            'environment': dict(os.environ),
            'port': chosen.port,
        }
        part = chosen.facts.with_suffix('.part')
        part.write_text(json.dumps(facts))
        part.rename(chosen.facts)
    if chosen.ignore_term:
        signal.signal(signal.SIGTERM, lambda *_: print('no', flush=True))
    if chosen.exit_on_stdin_eof and not chosen.ignore_eof:
        follow_stdin(lambda: os._exit(0))
    if chosen.die is not None:
        print('no such checkpoint', file=sys.stderr)
        sys.exit(chosen.die)
    if chosen.die_unless and not chosen.die_unless.exists():
        sys.exit(5)
    if chosen.no_port:
        signal.pause()
    Handler.left = chosen.loading
    server = http.server.ThreadingHTTPServer((chosen.host, chosen.port), Handler)
    part = chosen.port_file.with_suffix('.part')
    part.write_text(f'{server.server_port}\n')
    part.rename(chosen.port_file)
    server.serve_forever()


if __name__ == '__main__':
    main()

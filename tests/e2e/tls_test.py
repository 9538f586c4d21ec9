#!/usr/bin/env python3
"""The way in from other hosts: tandemd with a config file and certificates, the CLI and a client of
another make. All of it runs in a network of its own with an address off loopback, where the kernel
lets it have one; else the cases that need the address are skipped in words."""
import concurrent.futures
import contextlib
import os
import pathlib
import resource
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import unittest
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).parent))
FAR = "10.77.0.1"
INSIDE = "TANDEM_TEST_NETWORK"


def enter_network():
    """Starts this program anew where FAR is an address of this host; returns if that can't be."""
    if os.environ.get(INSIDE):
        return
    setup = f"ip link set lo up && ip addr add {FAR}/32 dev lo && {INSIDE}=yes exec \"$@\""
    probe = subprocess.run(["unshare", "-rn", "sh", "-c", setup, "sh", "true"],
                           capture_output=True, text=True) if shutil.which("unshare") else None
    if probe and probe.returncode == 0:
        os.execvp("unshare", ["unshare", "-rn", "sh", "-c", setup, "sh", sys.executable, *sys.argv])
    print(f"no network of its own: {probe.stderr.strip() if probe else 'no unshare'}",
          file=sys.stderr)
    os.environ[INSIDE] = "no"


if __name__ == "__main__":
    enter_network()

from bench_of_programs import (BIN, DEADLINE, ROOT, TINY, end_processes, free_port, grpc,
                               link_programs, make_stubs, new_folder, skip, wait_for)

has_far = os.environ.get(INSIDE) == "yes"
needs_far = unittest.skipUnless(has_far, "needs a network namespace with an address off loopback")
LATE = "didn't go on with the TLS handshake within 5 s"
HERE = FAR if has_far else "127.0.0.1"


def setUpModule():
    global folder, m, programs, certs
    folder = new_folder()
    m = make_stubs(folder)
    programs = link_programs(folder / "bin", "fake_rank")
    certs = folder / "certs"
    certs.mkdir()
    make_cert("ca", "ca", -1, 100)
    make_cert("other", "ca", -1, 100)
    make_cert("good", "server", -1, 100, "localhost", "127.0.0.1", FAR)
    make_cert("elsewhere", "server", -1, 100, "elsewhere.example", "10.9.9.9")
    make_cert("past", "server", -9, -2, "127.0.0.1", FAR)
    make_cert("friend", "client", -1, 100)
    make_cert("stranger", "client", -1, 100, by="other")


def tearDownModule():
    shutil.rmtree(folder, ignore_errors=True)


def make_cert(name, kind, start, end, *hosts, by="ca"):
    if not (BIN / "make_cert").exists():
        skip(f"{BIN / 'make_cert'} isn't built")
    subprocess.run([BIN / "make_cert", certs, name, kind, str(start), str(end), *hosts], check=True,
                   env={**os.environ, "TANDEM_TEST_CA": by})


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = folder / self.id().rsplit(".", 1)[1][5:49]
        self.folder.mkdir()
        self.process = None

    def tearDown(self):
        code = self.stop() if self.process else 0
        end_processes(programs)
        self.assertEqual(code, 0, self.log())

    def log(self):
        path = self.folder / "tandemd.log"
        return path.read_text() if path.exists() else ""

    def write(self, text):
        path = self.folder / "tandemd.yaml"
        path.write_text(text)
        return path

    def config(self, cert="good", listen=None, more="", tls=""):
        return self.write(f"data_dir: {self.folder}/data\nlisten: ['{listen or HERE + ':0'}']\n"
                          f"tls:\n  cert_file: {certs}/{cert}.pem\n  key_file: {certs}/{cert}.key\n"
                          f"{tls}{more}")

    def start(self, config):
        with open(self.folder / "tandemd.log", "ab") as log:
            self.process = subprocess.Popen([programs / "tandemd", "--config", config],
                                            stdout=subprocess.DEVNULL, stderr=log)
        wait_for("the server", lambda: "tandemd 0" in self.log() or self.process.poll() is not None)
        self.assertIsNone(self.process.poll(), self.log())
        line = next(t for t in self.log().splitlines() if "listening on" in t)
        self.address = line.rsplit(" ", 1)[1]
        self.port = int(self.address.rsplit(":", 1)[1])

    def stop(self):
        process, self.process = self.process, None
        process.send_signal(signal.SIGTERM)
        return process.wait(DEADLINE)

    def refused(self, text):
        """What tandemd says of a config file that it doesn't take."""
        done = subprocess.run([programs / "tandemd", "--config", self.write(text), "--check"],
                              capture_output=True, text=True, timeout=DEADLINE)
        self.assertEqual(done.returncode, 2, done.stdout)
        return done.stderr.strip()

    def cli(self, *words, ca="ca", cert=None, server=None, env=None):
        more = {"TANDEM_CA_FILE": str(certs / f"{ca}.pem")} if ca else {}
        if cert:
            more |= {"TANDEM_CERT_FILE": str(certs / f"{cert}.pem"),
                     "TANDEM_KEY_FILE": str(certs / f"{cert}.key")}
        return subprocess.run([programs / "tandem", *words, "--server", server or self.address],
                              capture_output=True, text=True, timeout=DEADLINE,
                              env={**os.environ, "XDG_CONFIG_HOME": str(self.folder / "config"),
                                   **more, **(env or {})})

    def reaches(self, **options):
        """The server's own word: it asks for a token."""
        self.says("token", 1, **options)

    def fails(self, words, **options):
        return self.says(words, 4, **options)

    def says(self, words, code, **options):
        for _ in range(5):  # on a slow machine it may say that it has waited long enough
            done = self.cli("ls", **options)
            if words in done.stderr or LATE not in done.stderr:
                break
        self.assertIn(words, done.stderr)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stderr

    def channel(self, ca="ca", cert=None):
        pair = [(certs / f"{cert}.{end}").read_bytes() for end in ("key", "pem")] if cert else ()
        creds = grpc.ssl_channel_credentials((certs / f"{ca}.pem").read_bytes(), *pair)
        return grpc.secure_channel(self.address, creds, [("grpc.use_local_subchannel_pool", 1)])

    def operator(self):
        return grpc.insecure_channel(f"unix:{self.folder}/data/tandemd.sock",
                                     [("grpc.use_local_subchannel_pool", 1)])

    def health(self, channel):
        """1 = serving, 2 = not. The messages are two bytes, so no stub is needed."""
        return channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=DEADLINE)[1]

    def tls(self, alpn=("h2",), most=None, server_name=None):
        """A connection of Python's own; raises what goes wrong."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(certs / "ca.pem")
        context.check_hostname = False
        if alpn:
            context.set_alpn_protocols(alpn)
        if most:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it is old is the point
                context.minimum_version = ssl.TLSVersion.TLSv1
                context.maximum_version = most
            context.set_ciphers("ALL:@SECLEVEL=0")
        return context.wrap_socket(self.connect(), server_hostname=server_name)

    def connect(self):
        return socket.create_connection(self.address.rsplit(":", 1), timeout=DEADLINE)


class Certificates(Case):
    # Whoever isn't in the possession of a certificate for the name that the user wrote is no server.
    def test_a_server_is_believed_by_its_certificate_only(self):
        self.start(self.config())
        self.reaches()
        self.fails(f"is not signed by the CA in {certs}/other.pem", ca="other")
        if has_far:
            self.fails("is not signed by a CA that this system trusts", ca=None)
        self.assertIn("TLSv1.3", self.cli("doctor").stdout)
        self.assertIn("days left", self.cli("doctor").stdout)

    def test_a_certificate_for_another_name_is_refused(self):
        self.start(self.config("elsewhere"))
        said = self.fails(f"is not for {HERE} but for elsewhere.example, 10.9.9.9")
        self.assertIn(self.address, said)
        self.assertIn("elsewhere.example", self.cli("doctor").stdout)

    def test_an_expired_certificate_is_refused_by_the_server_and_by_clients(self):
        make_cert("aging", "server", -9, 1, HERE)
        self.start(self.config("aging"))
        self.reaches()
        self.stop()
        self.assertIn("past.pem: the certificate has expired",
                      self.refused(self.config("past").read_text()))

    # The client's own check, against a server that doesn't mind: Python's.
    def test_an_expired_certificate_is_refused_by_the_client(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certs / "past.pem", certs / "past.key")
        context.set_alpn_protocols(["h2"])
        with socket.create_server((HERE, 0)) as listener:
            def serve():
                while True:
                    try:
                        end, _ = listener.accept()
                    except OSError:
                        return
                    with contextlib.suppress(OSError), end:  # it won't shake hands, or has gone
                        context.wrap_socket(end, server_side=True).close()
            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            self.fails("certificate expired at 20", server=f"{HERE}:{listener.getsockname()[1]}")
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(DEADLINE)

    # Who is slow hasn't hung up.
    def test_a_server_that_says_nothing_is_told_from_one_that_hangs_up(self):
        with socket.create_server((HERE, 0)) as listener:
            address = f"{HERE}:{listener.getsockname()[1]}"
            self.fails(LATE, server=address if has_far else f"tls://{address}")

    def test_client_certificates_are_wanted_where_the_config_says_so(self):
        self.start(self.config(tls=f"  client_ca_file: {certs}/ca.pem\n"
                                   "  require_client_cert: true\n"))
        self.fails("the server wants a client's certificate")
        # That is no fault of the server's own certificate.
        said = self.cli("doctor").stdout
        self.assertRegex(said, "(?m)^ok    certificate ")
        self.assertRegex(said, "(?m)^FAIL  TLS .*the server wants a client's certificate")
        self.assertNotIn("tandemd --dev", said)
        self.fails(f"does not accept this client's certificate {certs}/stranger.pem",
                   cert="stranger")
        # A certificate proves a machine; the user still needs a token.
        self.reaches(cert="friend")
        self.assertEqual(self.health(self.channel(cert="friend")), 1)
        # The thread that checks the listeners has no certificate: it takes an answer for enough.
        time_of_three_checks = 3 * 2 + 1
        end = time.monotonic() + time_of_three_checks
        wait_for("checks", lambda: time.monotonic() > end)
        self.assertNotIn("doesn't answer", self.log())
        self.assertEqual(self.health(self.operator()), 1)

    def test_client_certificates_may_be_left_out_where_they_are_optional(self):
        self.start(self.config(tls=f"  client_ca_file: {certs}/ca.pem\n"))
        self.reaches()
        self.reaches(cert="friend")
        self.fails("does not accept this client's certificate", cert="stranger")


class Protocol(Case):
    # Neither what is readable on the way nor what is known to be broken.
    def test_plain_text_and_old_tls_are_refused(self):
        self.start(self.config())
        with self.connect() as s:
            s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
            try:
                got = s.recv(100)
            except ConnectionResetError:
                got = b""
            self.assertTrue(got == b"" or got[0] == 21, got)  # nothing, or an alert of TLS
        with grpc.insecure_channel(self.address) as channel:
            with self.assertRaises(grpc.RpcError) as caught:
                self.health(channel)
            self.assertEqual(caught.exception.code(), grpc.StatusCode.UNAVAILABLE)
        for old in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
            with self.assertRaises(ssl.SSLError) as caught:
                self.tls(most=old)
            self.assertIn("PROTOCOL_VERSION", str(caught.exception))
        with self.tls(most=ssl.TLSVersion.TLSv1_2) as s:
            self.assertEqual((s.version(), s.selected_alpn_protocol()), ("TLSv1.2", "h2"))
            self.assertIn("ECDHE", s.cipher()[0])
        with self.tls() as s:
            self.assertEqual((s.version(), s.selected_alpn_protocol()), ("TLSv1.3", "h2"))

    def test_nothing_but_http2_is_spoken(self):
        self.start(self.config())
        with self.assertRaises(ssl.SSLError):
            self.tls(alpn=["http/1.1"])
        with self.tls(alpn=None) as s:
            self.assertEqual(s.recv(1), b"")

    # A token travels through TLS or within this host, never otherwise.
    @needs_far
    def test_a_token_is_never_sent_in_plain_text_to_another_host(self):
        token = self.folder / "token"
        token.write_text("0123456789abcdef" * 4 + "\n")
        got = []
        with socket.create_server((FAR, 0)) as listener:
            def serve():
                while True:
                    try:
                        s, _ = listener.accept()
                    except OSError:
                        return
                    with s:
                        s.sendall(b"\0\0\0\4\0\0\0\0\0")  # as a plain server greets
                        s.settimeout(DEADLINE)
                        try:
                            while data := s.recv(4096):
                                got.append(data)
                        except OSError:
                            pass
            thread = threading.Thread(target=serve, daemon=True)
            thread.start()
            said = self.fails("speaks plain text there, not TLS",
                              server=f"{FAR}:{listener.getsockname()[1]}",
                              env={"TANDEM_TOKEN_FILE": str(token)})
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(DEADLINE)
        data = b"".join(got)
        self.assertTrue(data.startswith(b"\x16\x03"), data[:20])
        self.assertNotIn(b"0123456789abcdef", data)
        self.assertNotIn(b"HTTP/2", data)
        self.assertNotIn("0123456789abcdef", said)
        self.assertIn("plain text is not spoken",
                      self.cli("ls", server=f"http://{FAR}:1").stderr)

    def test_on_loopback_a_client_is_told_that_the_server_speaks_tls(self):
        self.start(self.config(listen="127.0.0.1:0"))
        self.fails("speaks TLS: write tls://127.0.0.1:", ca=None)
        self.reaches()
        # There is one: nobody is told to start another.
        said = self.cli("doctor", ca="other").stdout
        self.assertRegex(said, "(?m)^FAIL  certificate ")
        self.assertNotIn("tandemd --dev", said)
        (self.folder / "config/tandem").mkdir(parents=True)
        shutil.copy(certs / "ca.pem", self.folder / "config/tandem")
        self.reaches(ca=None, server="tls://" + self.address)
        self.reaches(ca=None, server=f"tls://localhost:{self.port}")


class Crowds(Case):
    # Who connects and says nothing, or half of it, is dropped by a deadline; others notice nothing,
    # not even when there are more of them than handshakes that may be under way (512).
    def test_half_open_connections_are_dropped_and_hold_nobody_up(self):
        self.start(self.config())
        quiet = [self.connect() for _ in range(599)]
        start = time.monotonic()  # before the last one, which the others make no room for
        quiet.append(self.connect())
        for s in quiet[1::2]:
            try:
                s.sendall(b"\x16\x03\x01\x02\x00\x01")  # the first bytes of a greeting
            except OSError:
                pass  # one of the oldest, which made room for the newest
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            done = list(pool.map(lambda _: self.health(self.channel()), range(16)))
        self.assertEqual(done, [1] * 16)
        for s in quiet:
            with s:
                s.settimeout(DEADLINE)
                try:
                    self.assertEqual(s.recv(1), b"")
                except ConnectionResetError:
                    pass
        self.assertGreater(time.monotonic() - start, 5)  # not at once: a far client may be slow
        self.assertIn("no TLS with", self.log())
        self.assertEqual(self.health(self.channel()), 1)

    @needs_far
    def test_an_address_has_so_many_connections_and_no_more(self):
        self.start(self.config(more="limits: {connections_per_address: 4, connections: 8}\n"))
        held = [self.tls() for _ in range(4)]
        with self.assertRaises(OSError):
            self.tls()
        wait_for("words", lambda: "limits.connections_per_address is reached" in self.log())
        # Another address still gets in, until all are too many; the server itself does, too, and is
        # well. It finds itself ill after three looks in vain, one every two seconds.
        with socket.create_connection((FAR, self.port), source_address=("127.0.0.1", 0)):
            end = time.monotonic() + 3 * 2 + 1
            wait_for("looks", lambda: time.monotonic() > end)
        self.assertEqual(self.health(self.operator()), 1)
        self.assertNotIn("turns connections away", self.log())
        held.pop().close()
        wait_for("room", self.can_connect)
        for s in held:
            s.close()

    def can_connect(self):
        try:
            with self.tls():
                return True
        except OSError:
            return False


class Reload(Case):
    def shown(self):
        """The certificate that a new connection is shown."""
        with self.tls() as s:
            return s.getpeercert(binary_form=True)

    # A certificate is replaced while people work.
    def test_a_new_certificate_is_shown_while_open_streams_go_on(self):
        mine = self.folder / "mine"
        mine.mkdir()
        for end in ("pem", "key"):
            shutil.copy(certs / f"good.{end}", mine / f"s.{end}")
        text = self.config().read_text().replace(f"{certs}/good", f"{mine}/s")
        self.start(self.write(text))
        first = self.shown()
        channel = self.channel()
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"", timeout=DEADLINE)
        self.assertEqual(next(watch)[1], 1)

        make_cert("next", "server", -1, 50, "127.0.0.1", FAR)
        for end in ("key", "pem"):
            shutil.copy(certs / f"next.{end}", mine / f"s.{end}.new")
            os.rename(mine / f"s.{end}.new", mine / f"s.{end}")
        self.process.send_signal(signal.SIGHUP)
        second = wait_for("the next certificate", lambda: (c := self.shown()) != first and c)
        self.reaches()

        # What can't be used is said, and what was there stays. (It may have been said already of the
        # new key with the old certificate.)
        said = self.log().count("the new certificate is not used")
        (mine / "s.pem").write_text("not a certificate\n")
        wait_for("words", lambda: self.log().count("the new certificate is not used") > said)
        self.assertEqual(self.shown(), second)

        # Without a signal, too.
        shutil.copy(certs / "good.pem", mine / "s.pem")
        shutil.copy(certs / "good.key", mine / "s.key")
        wait_for("the first certificate again", lambda: self.shown() == first)
        self.assertEqual(self.health(channel), 1)
        self.assertFalse(watch.done())
        self.assertEqual(self.stop(), 0)
        with self.assertRaises(grpc.RpcError) as caught:
            while True:
                next(watch)
        self.assertIn("shutting down", caught.exception.details())


class SelfCheck(Case):
    # A listener that lies dead is found by the server itself.
    def test_a_removed_socket_file_is_made_again(self):
        self.start(self.config())
        path = self.folder / "data/tandemd.sock"
        path.unlink()
        wait_for("a new socket", path.exists)
        wait_for("health", lambda: self.answers(self.operator()))
        self.assertIn("opened again", self.log())

    def answers(self, channel):
        try:
            return self.health(channel) == 1
        except grpc.RpcError as e:
            # Between its making and its use nobody listens there yet.
            self.assertEqual(e.code(), grpc.StatusCode.UNAVAILABLE)
            return False

    # [36] Without descriptors nobody gets in; with them again everybody does.
    def test_want_of_descriptors_is_told_and_passes(self):
        self.start(self.config())
        channel = self.channel()
        self.assertEqual(self.health(channel), 1)
        pid = self.process.pid
        open_files = f"/proc/{pid}/fd"
        if not os.access(open_files, os.R_OK):
            self.skipTest("SKIPPED: may not see what the server has open")
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)

        def is_ill():
            # None below the lowest that is free now. What a look at itself had open comes free again,
            # so once more.
            used = {int(fd) for fd in os.listdir(open_files)}
            lowest = next(n for n in range(len(used) + 1) if n not in used)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (lowest, before[1]))
            return self.health(channel) == 2
        wait_for("ill health", is_ill)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
        wait_for("health", lambda: self.health(channel) == 1)
        self.assertEqual(self.health(self.channel()), 1)


class Init(Case):
    def init(self, *words):
        return self.cli("admin", "init", "--data-dir", self.folder / "data", *words, server="none",
                        ca=None)

    # From nothing to a user of another host who trains, by the commands that are printed.
    def test_admin_init_makes_all_that_users_of_other_hosts_need(self):
        port = free_port(HERE)
        done = self.init("--host", HERE, "--listen", f"{HERE}:{port}")
        self.assertEqual(done.returncode, 0, done.stderr)
        etc = self.folder / "data/etc"
        for name in ("ca.key", "server.key"):
            self.assertEqual((etc / name).stat().st_mode & 0o777, 0o600)
            secret = (etc / name).read_text().splitlines()[1]
            self.assertNotIn(secret, done.stdout + done.stderr)
        self.start(etc / "tandemd.yaml")
        self.assertEqual(self.address, f"{HERE}:{port}")
        operator = f"unix:{self.folder}/data/tandemd.sock"
        for words in (["user", "add", "ann", "--tenant", "default"],
                      ["token", "create", "--user", "ann", "--tenant", "default", "--out",
                       str(self.folder / "ann.token")]):
            done = self.cli("admin", *words, ca=None, server=operator)
            self.assertEqual(done.returncode, 0, done.stderr)

        home = self.folder / "config/tandem"
        home.mkdir(parents=True)
        shutil.copy(etc / "ca.pem", home)
        shutil.copy(self.folder / "ann.token", home / "token")
        server = self.address if has_far else "tls://" + self.address
        spec = self.folder / "job.yaml"
        spec.write_text(f"name: far\nmodel: {{path: {TINY}}}\n"
                        f"data: {{order: sequential, train: [{{path: {TINY}/train.bin, format: u16,"
                        " window: T+1}]}\n"
                        "training: {steps: 20, seq_len: 32, global_batch_size: 4}\n"
                        "resources: {backend: ref}\ncheckpoint: {interval: 0}\n")
        done = self.cli("submit", spec, "--follow", ca=None, server=server)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        done = self.cli("metrics", "far", "-o", "csv", ca=None, server=server)
        self.assertEqual(len(done.stdout.splitlines()), 21, done.stdout + done.stderr)
        # Who did it, and from where.
        done = self.cli("admin", "audit", "-o", "csv", ca=None, server=operator)
        submitted = [t for t in done.stdout.splitlines() if "Jobs/Submit" in t]
        self.assertEqual(len(submitted), 1, done.stdout)
        self.assertIn("ann", submitted[0])
        self.assertIn(HERE, submitted[0])

        # A new certificate under the same CA: nobody has to be told.
        before = (etc / "server.pem").read_text()
        self.assertEqual(self.init("--renew").returncode, 0)
        self.assertNotEqual((etc / "server.pem").read_text(), before)
        wait_for("the new certificate", lambda: "read again" in self.log())
        self.assertEqual(self.cli("ls", ca=None, server=server).returncode, 0)
        self.assertIn("FAIL", self.cli("doctor", server=server).stdout)  # the CA of the other tests
        self.assertNotIn("FAIL", self.cli("doctor", ca=None, server=server).stdout)

    def test_admin_init_overwrites_nothing(self):
        self.assertEqual(self.init("--client", "laptop").returncode, 0)
        etc = self.folder / "data/etc"
        files = {p.name: p.read_bytes() for p in etc.iterdir()}
        self.assertIn("client-laptop.key", files)
        self.assertIn(b"client_ca_file", files["tandemd.yaml"])
        again = self.init()
        self.assertEqual(again.returncode, 1)
        self.assertIn("ca.pem is there already", again.stderr)
        self.assertEqual(self.init("--client", "laptop").returncode, 1)
        self.assertEqual({p.name: p.read_bytes() for p in etc.iterdir()}, files)
        self.assertEqual(self.init("--client", "desk").returncode, 0)
        self.assertEqual(self.init("--renew", "--host", "x y").returncode, 1)
        now = {p.name: p.read_bytes() for p in etc.iterdir()}
        self.assertEqual({k: v for k, v in now.items() if "desk" not in k}, files)


class ConfigFile(Case):
    # What is wrong is said at the start, by file, line and field, and nothing is started.
    def test_mistakes_are_named_by_file_line_and_field(self):
        base = f"data_dir: {self.folder}/data\n"
        tls = f"tls:\n  cert_file: {certs}/good.pem\n  key_file: {certs}/good.key\n"
        loose = certs / "loose.key"
        shutil.copy(certs / "good.key", loose)
        loose.chmod(0o640)
        for text, place, words in [
            ("data_dir: here\n", ":1: data_dir", "absolute"),
            ("devices: 1\n", "data_dir", "is needed"),
            (base + "listn: []\n", ":2:1", "listen"),
            (base + "listen: ['10.77.0.1:1']\n", ":2: listen.0", "admin init"),
            (base + "listen:\n  - unix:/a/b\n  - 127.0.0.1\n", ":4: listen.1", "host:port"),
            (base + tls + "listen: ['train.example:1']\n", ":5: listen.0", "not a name"),
            (base + f"tls: {{cert_file: {certs}/good.pem}}\n", ":2: tls", "key_file"),
            (base + tls.replace("good.key", "none.key"), ":4: tls.key_file", "No such file"),
            (base + tls.replace("good.key", "friend.key"), "tls", "not the key of"),
            (base + tls.replace("good.key", "loose.key"), "tls", "chmod 600"),
            (base + tls + "  require_client_cert: true\n", ":5: tls.require_client_cert",
             "client_ca_file"),
            (base + "limits: {connections: -1}\n", ":2: limits.connections", "0 to"),
            (base + "roots:\n  - read: [/nowhere/at/all]\n", ":3: roots.0.read.0", "No such"),
            (base + "roots:\n  - read: [data]\n", ":3: roots.0.read.0", "absolute"),
            (base + "roots: [{tenant: a}, {tenant: a}]\n", "roots.1", "already"),
            (base + "run_as: [{tenant: a, user: no-such-user}]\n", "run_as.0.user", "no user"),
            (base + "run_as: [{tenant: a, user: root}]\n", "run_as.0.user", "never"),
            (base + "retention: {audit_days: 40000}\n", ":2: retention.audit_days", "0 to"),
            (base + "scheduler: {grace_s: 0}\n", ":2: scheduler.grace_s", "wants 1 to 604800"),
            (base + "scheduler:\n  aging_per_h: -1\n", ":3: scheduler.aging_per_h", "wants 0 to"),
            (base + "record_dir: here\n", ":2: record_dir", "absolute"),
            (base + "devices: 5000\n", ":2: devices", "1024"),
        ]:
            with self.subTest(text):
                said = self.refused(text)
                self.assertIn(f"{self.folder}/tandemd.yaml", said)
                self.assertIn(place, said)
                self.assertIn(words, said)
        self.assertFalse((self.folder / "data").exists())

    def test_the_reference_is_what_explain_prints(self):
        done = self.cli("explain", "server", "--markdown", ca=None, server="none")
        self.assertEqual(done.stdout, (ROOT / "docs/config.md").read_text())
        done = self.cli("explain", "server.limits.connections", ca=None, server="none")
        self.assertIn("default 12000", done.stdout)
        done = self.cli("explain", "server.limit", ca=None, server="none")
        self.assertIn("server.limits", done.stderr)

    def test_check_says_what_a_start_would_do(self):
        config = self.config(more="roots: [{read: [/usr], write: [/tmp]}]\n")
        done = subprocess.run([programs / "tandemd", "--config", config, "--check"], text=True,
                              capture_output=True, timeout=DEADLINE)
        self.assertEqual(done.returncode, 0, done.stderr)
        for words in (f"{self.folder}/data", f"{HERE}:0, TLS", "good.pem", "/tmp (writes)"):
            self.assertIn(words, done.stdout)
        self.assertNotIn("roots      none", done.stdout)
        done = subprocess.run([programs / "tandemd", "--config", self.config(), "--check"], text=True,
                              capture_output=True, timeout=DEADLINE)
        self.assertIn("roots      none: jobs of every tenant may read all", done.stdout)
        self.assertFalse((self.folder / "data").exists())


if __name__ == "__main__":
    unittest.main()

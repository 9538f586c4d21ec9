"""A tandemd without --dev, with tenants red and blue, a user of every role, and a token of every
kind; and calls of any method by any of them. Shared by access_test.py and tokens_test.py."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
from bench_of_programs import DEADLINE, TINY, Server, grpc, link_programs, wait_for  # noqa: E402,F401

Code = grpc.StatusCode
# tandem-node, but for a copy of its ticket: a test needs a worker's token.
NODE = """#!/bin/sh
cat <&3 > "$0.tickets/$$"
exec "$0.real" "$@" 3< "$0.tickets/$$"
"""
# name -> tenant, role
USERS = {"vera": ("red", "viewer"), "mia": ("red", "member"), "max": ("red", "member"),
         "tara": ("red", "tenant-admin"), "bob": ("blue", "member"), "ada": ("default", "admin")}


def programs_with_tickets(folder):
    folder = link_programs(folder, "fake_rank")
    (folder / "tandem-node").rename(folder / "tandem-node.real")
    (folder / "tandem-node").write_text(NODE)
    (folder / "tandem-node").chmod(0o755)
    (folder / "tandem-node.tickets").mkdir()
    return folder


class AccessServer(Server):
    def __init__(self, m, folder, programs, devices=2, limits="auth_failures_per_min: 100000",
                 args=()):
        self.limits = limits
        self.secrets, self.ids = {}, {}
        super().__init__(m, folder, programs, devices, args)

    def start(self):
        log = self.folder / "tandemd.log"
        seen = log.stat().st_size if log.exists() else 0
        config = self.folder / "tandemd.yaml"
        config.write_text(f"data_dir: {self.data}\ndevices: {self.devices}\n"
                          f"listen: ['127.0.0.1:0', 'unix:{self.folder}/shared.sock']\n"
                          f"limits: {{{self.limits}}}\nroots: [{{read: [{TINY}]}}]\n")
        self.log = open(log, "ab")
        self.process = subprocess.Popen([self.programs / "tandemd", "--config", config, *self.args],
                                        stdout=self.log, stderr=subprocess.STDOUT)
        self.connect()
        self.admin = self.m.admin_rpc.AdminStub(self.channel)
        found = wait_for("its address", lambda: re.search(
            rb"listening on (127\.0\.0\.1:[0-9]+)", log.read_bytes()[seen:]))
        self.tcp = self.dial(found.group(1).decode())

    def dial(self, target):
        channel = grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)])
        grpc.channel_ready_future(channel).result(timeout=DEADLINE)
        return channel

    def kill(self):
        self.tcp.close()
        super().kill()

    def stop(self):
        self.tcp.close()
        return super().stop()

    def make_users(self):
        a = self.m.admin
        for tenant in ("red", "blue"):
            self.admin.CreateTenant(a.CreateTenantRequest(name=tenant))
        for name, (tenant, role) in USERS.items():
            self.admin.CreateUser(a.CreateUserRequest(name=name, tenant=tenant, role=role))
            self.make_token(name)

    def make_token(self, user, **fields):
        """The secret; kept under the user's name, or as=NAME."""
        name = fields.pop("as_", user)
        fields.setdefault("tenant", USERS[user][0] if user in USERS else None)
        new = self.admin.CreateToken(self.m.admin.CreateTokenRequest(user=user, **fields),
                                     timeout=DEADLINE)
        self.secrets[name], self.ids[name] = new.secret, new.token.id
        return new.secret

    def call(self, who, path, request, reply_type, kind="unary_unary", channel=None, timeout=DEADLINE):
        """The reply, or the list of them; raises RpcError. who: a user, None = no token."""
        metadata = [("authorization", f"Bearer {self.secrets[who]}")] if who else None
        method = getattr(channel or self.tcp, kind)(
            path, request_serializer=lambda r: r.SerializeToString(),
            response_deserializer=reply_type.FromString)
        if kind.startswith("stream"):
            request = iter(request)
        return method(request, metadata=metadata, timeout=timeout)

    def as_user(self, who, service):
        """A stub whose calls carry the user's token."""
        return getattr(getattr(self.m, service.lower() + "_rpc"), service + "Stub")(
            grpc.intercept_channel(self.tcp, Bearer(self.secrets, who)))

    def workers_token(self, job):
        def find():
            for path in (self.programs / "tandem-node.tickets").iterdir():
                try:
                    ticket = self.m.worker.LaunchTicket.FromString(path.read_bytes())
                except Exception:  # not written to its end yet
                    continue
                if ticket.job_id == job and ticket.token:
                    return ticket.token
            return None
        return wait_for(f"the ticket of job {job}", find)


class Details(grpc.ClientCallDetails):
    def __init__(self, of, metadata):
        self.method, self.timeout = of.method, of.timeout or DEADLINE
        self.credentials, self.metadata = of.credentials, metadata
        self.wait_for_ready, self.compression = of.wait_for_ready, of.compression


class Bearer(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor):
    def __init__(self, secrets, who):
        self.secrets, self.who = secrets, who

    def intercept_unary_unary(self, go_on, details, request):
        return go_on(Details(details, [("authorization", f"Bearer {self.secrets[self.who]}")]), request)

    intercept_unary_stream = intercept_unary_unary


def outcome(call):
    """(code, words) of a call or of a stream read to its end or first message."""
    try:
        reply = call()
        if hasattr(reply, "__next__"):
            next(reply)
            reply.cancel()
        return Code.OK, ""
    except StopIteration:
        return Code.OK, ""
    except grpc.RpcError as e:
        return e.code(), e.details()

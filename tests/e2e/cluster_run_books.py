"""What cluster_run_test.py finds on record at the end: who held which devices when, from the rows of
the database themselves."""
import re
import sqlite3


def rows(data, sql, *args):
    with sqlite3.connect(f"file:{data}/tandem.db?mode=ro", uri=True, timeout=60) as db:
        db.row_factory = sqlite3.Row
        return db.execute(sql, args).fetchall()


def micros(seconds):
    """Exact for as long as tests take: a double has 53 bits."""
    return round(seconds * 1e6)


def device_names(text):
    """ "east0:0-1,3,west1:2" -> [("east0", 0), ...]"""
    found, node = [], None
    for piece in text.split(","):
        if ":" in piece:
            node, piece = piece.rsplit(":", 1)
        first, last = re.fullmatch(r"(\d+)(?:-(\d+))?", piece).groups()
        found += [(node, i) for i in range(int(first), int(last or first) + 1)]
    return found


def attempts(data):
    return rows(data, "SELECT * FROM attempts ORDER BY created_us, job, number")


def overlaps(attempts):
    """Pairs of attempts that had a device at once, as sentences. An attempt has its devices from
    created_us until gone_us, the latter excluded."""
    by_device, found = {}, []
    for a in attempts:
        for device in device_names(a["devices"]):
            by_device.setdefault(device, []).append(a)
    for device, users in by_device.items():
        users.sort(key=lambda a: a["created_us"])
        for a, b in zip(users, users[1:]):
            if b["created_us"] < a["gone_us"]:
                found.append(f"{device}: attempt {a['number']} of job {a['job']} until "
                             f"{a['gone_us']}, attempt {b['number']} of job {b['job']} from "
                             f"{b['created_us']}")
    return found


def most_held(attempts, tenant=None):
    """The most devices that were held at once, by a tenant or by all."""
    changes = []
    for a in attempts:
        if tenant in (None, a["tenant"]):
            changes += [(a["created_us"], a["num_devices"]), (a["gone_us"], -a["num_devices"])]
    most = now = 0
    for _, change in sorted(changes):  # of one moment: what is given back first
        now += change
        most = max(most, now)
    return most


def utilisation(attempts, num_devices):
    """Share of the devices x time from the first start to the last end that was held."""
    span = max(a["gone_us"] for a in attempts) - min(a["created_us"] for a in attempts)
    return sum(a["device_us"] for a in attempts) / (span * num_devices)

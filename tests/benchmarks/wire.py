"""`ledger serve` and its peers under one load: `python -m tests.benchmarks.wire [--help]`.

Each server in turn, in one run on one machine: clients send, receive and delete in batches of ten. The report says
messages a second, the server's processor time a message, and latencies; for `ledger serve` also what an idle queue's
verbs take, alone and beside a busy queue, and latency against offered load, to saturation and beyond. What was found
is in results/wire.json and, as a page, in results/wire.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.machine import describe
from tests.benchmarks.wire_clients import VERBS, Done, Load, PlainClient, run_load
from tests.benchmarks.wire_servers import SERVERS, Running, Unavailable, ledger_server

RESULTS = Path(__file__).resolve().parent / "results"

#: Each client kind's processes: a boto3 client takes so much time that few share one interpreter.
PROCESSES = {"plain": 2, "boto3": 4}
#: Shares of the saturated throughput that are offered.
OFFERED = (0.25, 0.5, 0.75, 0.9, 1.1)
IDLE_ROUNDS, CROWD, POLLS = 60, 400, 500
#: How long a load runs before it is measured. A peer on a JVM compiles itself for much longer: see --warm-up.
WARM_UP_SECONDS = 2.0
RATE = "messages a second"
SERVER_CPU, CLIENTS_CPU = "server CPU ms a message", "clients CPU ms a message"


def measure(
    server: Running,
    kind: str,
    clients: int,
    seconds: float,
    queues: int = 1,
    warm_up: float = WARM_UP_SECONDS,
    **more: Any,
) -> dict[str, Any]:
    """Return what a load does to a server: one row of the report."""
    client = PlainClient(server.url)
    urls = tuple(_queue(client, f"load-{kind}-{n}") for n in range(queues))
    if not more:
        # What a first request sets up is not measured.
        run_load(Load(kind, server.url, urls, clients, warm_up), PROCESSES[kind])
    used, began = server.processor_seconds(), time.monotonic()
    done = run_load(Load(kind, server.url, urls, clients, seconds, **more), PROCESSES[kind])
    used = server.processor_seconds() - used
    return {
        "server": server.name,
        "keeps": server.keeps,
        "client": kind,
        "clients": clients,
        RATE: round(done.messages / max(seconds, done.wall_seconds)),
        SERVER_CPU: round(1_000 * used / max(1, done.messages), 3),
        CLIENTS_CPU: round(1_000 * done.processor_seconds / max(1, done.messages), 3),
        **{f"{verb} ms": _quantiles(done, verb) for verb in (*VERBS, "cycle")},
        "refused": dict(done.refused),
        "wall seconds": round(time.monotonic() - began, 1),
    }


def idle(server: Running, name: str, rounds: int = IDLE_ROUNDS) -> dict[str, float]:
    """Return the median milliseconds of each verb of one client, alone on its queue."""
    client, found = PlainClient(server.url), dict[str, list[float]]()
    queue_url = _queue(client, name)

    def timed(verb: str, action: str, **parameters: Any) -> dict[str, Any]:
        began = time.perf_counter()
        result = client.call(action, {"QueueUrl": queue_url, **parameters})
        found.setdefault(verb, []).append(1_000 * (time.perf_counter() - began))
        return result

    for _ in range(rounds):
        timed("send", "SendMessage", MessageBody="body")
        (message,) = timed("receive", "ReceiveMessage")["Messages"]
        handle = message["ReceiptHandle"]
        timed("change", "ChangeMessageVisibility", ReceiptHandle=handle, VisibilityTimeout=60)
        timed("delete", "DeleteMessage", ReceiptHandle=handle)
    client.close()
    return {verb: round(statistics.median(some[5:]), 1) for verb, some in found.items()}


def beside_a_busy_queue(server: Running, clients: int, seconds: float) -> dict[str, float]:
    """Return `idle` of one queue while clients saturate another one."""
    busy = threading.Thread(target=measure, args=(server, "plain", clients, seconds))
    busy.start()
    # Behind the start of the load's processes, and its first seconds.
    time.sleep(6.0)
    found = idle(server, "idle-beside", rounds=30)
    busy.join()
    return found


def beside_long_polls(server: Running, count: int) -> dict[str, float]:
    """Return `idle` of one queue while so many long polls wait at another one."""
    polls = [PlainClient(server.url) for _ in range(count)]
    quiet = _queue(polls[0], "quiet")
    for number, poll in enumerate(polls):
        poll.begin("ReceiveMessage", {"QueueUrl": quiet, "WaitTimeSeconds": 20, "VisibilityTimeout": number})
    found = idle(server, "idle-beside-polls", rounds=30)
    for poll in polls:
        poll.close()
    return found


def offered(server: Running, clients: int, seconds: float, saturated: float) -> list[dict[str, Any]]:
    """Return a row for each offered load, and one of a crowd of clients that is more than the server takes at once."""
    rows = []
    for share in OFFERED:
        each = share * saturated / (10 * clients)
        row = measure(server, "plain", clients, seconds, cycles_a_second=each)
        rows.append({"offered": round(share * saturated), **row})
    rows.append({"offered": f"{CROWD} clients at once", **measure(server, "plain", CROWD, seconds)})
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a table for each part; with --results write all figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--servers", default="ledger,elasticmq,moto", help="which, in this order")
    parser.add_argument("--kinds", default="plain,boto3", help="kinds of clients")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--queues", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=1, help="how often all servers have their turn")
    parser.add_argument("--serve", default="", help="more options of `ledger serve`, such as '--threads 16'")
    parser.add_argument("--work", help="where the tables lie; a temporary folder by default")
    parser.add_argument("--quick", action="store_true", help="without idle latencies and offered loads")
    parser.add_argument("--warm-up", type=float, default=20.0, help="seconds of load before a server is measured")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for the report")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(dir=options.work) as folder:
        work = Path(folder)
        report: dict[str, Any] = {"machine": describe(work), "rows": [], "idle": {}, "offered": [], "left out": []}
        print(json.dumps(report["machine"]), flush=True)
        for turn in range(options.rounds):
            for name in options.servers.split(","):
                more = (options.serve.split(),) if name == "ledger" else ()
                try:
                    with SERVERS[name](work / f"{name}-{turn}", *more) as server:
                        for kind in options.kinds.split(","):
                            load = kind, options.clients, options.seconds, options.queues, options.warm_up
                            report["rows"].append(measure(server, *load))
                            print(_line(report["rows"][-1]), flush=True)
                except Unavailable as why:
                    report["left out"].append(str(why))
                    print(f"left out: {why}", flush=True)
        if not options.quick:
            with ledger_server(work / "alone", options.serve.split()) as server:
                report["idle"]["alone"] = idle(server, "idle")
                print("idle queue, ms:", report["idle"]["alone"], flush=True)
                report["idle"]["beside a busy queue"] = beside_a_busy_queue(server, options.clients, options.seconds)
                print("beside a busy queue, ms:", report["idle"]["beside a busy queue"], flush=True)
                report["idle"][f"beside {POLLS} long polls"] = beside_long_polls(server, POLLS)
                print(f"beside {POLLS} long polls, ms:", report["idle"][f"beside {POLLS} long polls"], flush=True)
                saturated = measure(server, "plain", options.clients, options.seconds)[RATE]
                report["offered"] = offered(server, options.clients, options.seconds, saturated)
                for row in report["offered"]:
                    print(f"offered {row['offered']}: {_line(row)}", flush=True)
    options.results.mkdir(parents=True, exist_ok=True)
    (options.results / "wire.json").write_text(json.dumps(report, indent=1) + "\n")
    (options.results / "wire.md").write_text(page(report))


def page(report: dict[str, Any]) -> str:
    """Return what was found as a page: the machine, and a table for each part."""
    lines = ["# `ledger serve` beside its peers", ""]
    lines += [f"- {name}: {value}" for name, value in report["machine"].items()]
    lines += [f"- left out: {why}" for why in report["left out"]]
    if report["rows"]:
        lines += ["", *_table(report["rows"], [name for name in report["rows"][0] if name != "wall seconds"])]
    if report["idle"]:
        rows = [{"a queue's verbs, ms": where, **medians} for where, medians in report["idle"].items()]
        lines += ["", *_table(rows, list(rows[0]))]
    if report["offered"]:
        lines += ["", *_table(report["offered"], ["offered", RATE, SERVER_CPU, "cycle ms", "refused"])]
    lines += ["", "CPU: processor time of the server's processes, and of the clients'. Latencies: p50 / p99.", ""]
    return "\n".join(lines)


def _table(rows: Sequence[dict[str, Any]], names: Sequence[str]) -> list[str]:
    cells = [[str(row.get(name) or "-") for name in names] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (names, ["---"] * len(names), *cells)]


def _queue(client: PlainClient, name: str) -> str:
    return str(client.call("CreateQueue", {"QueueName": name})["QueueUrl"])


def _quantiles(done: Done, verb: str) -> str:
    some = done.latencies[verb]
    if len(some) < 2:
        return "-"
    cut = statistics.quantiles(some, n=100)
    return f"{1_000 * cut[49]:.0f} / {1_000 * cut[98]:.0f}"


def _line(row: dict[str, Any]) -> str:
    latencies = ", ".join(f"{verb} {row[f'{verb} ms']}" for verb in (*VERBS, "cycle"))
    refused = f", refused {row['refused']}" if row["refused"] else ""
    return (
        f"{row['server']} ({row['keeps']}), {row['clients']} {row['client']} clients: "
        f"{row[RATE]} {RATE}, CPU ms a message: server "
        f"{row[SERVER_CPU]}, clients {row[CLIENTS_CPU]}; "
        f"p50 / p99 ms: {latencies}{refused}"
    )


if __name__ == "__main__":
    main()

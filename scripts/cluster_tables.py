"""The tables of scripts/bench-cluster.py, from what it measured."""

import statistics


def share(values, of):
    """A quantile: the least value that is not below this share of all."""
    values = sorted(values)
    return values[min(len(values) - 1, int(of * len(values)))]


def render(figures):
    """The tables of what was measured."""
    lines = [f"{figures['machine']['cores']} cores, load averages before: "
             + ", ".join(f"{load:.1f}" for load in figures["machine"]["load"]), ""]

    def table(name, *heads):
        if rows := figures.get(name):
            lines.extend([f"{name}: " + rows["failed"] if "failed" in rows else "| " + " | ".join(heads) + " |"])
            if "failed" not in rows:
                lines.append("|---" * len(heads) + "|")
                return rows
            lines.append("")
        return None

    def row(*cells):
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")

    if (rows := table("latency", "streams", "edges", "parts", "later at an edge, median", "99 %", "most")):
        later = rows["milliseconds"]
        row(rows["streams"], rows["edges"], rows["parts"], *(f"{of:.2f} ms" for of in (
            statistics.median(later), share(later, 0.99), max(later))))
        lines.append("")
    if (rows := table("first", "first playlist from", "questions", "median", "99 %", "most")):
        for kind, taken in rows.items():
            row(kind, len(taken), *(f"{of:.1f} ms" for of in (statistics.median(taken), share(taken, 0.99), max(taken))))
        lines.append("")
    if (runs := table("viewers", "delivery", "node", "viewers", "processor by viewer and second", "memory a viewer",
                      "satisfied", "generator late", "node beside viewers")):
        for delivery in dict.fromkeys(run["delivery"] for run in runs):
            for node in ("origin", "edge-1"):
                of = [run for run in runs if (run["delivery"], run["node"]) == (delivery, node)]
                lean = min(run["lean_kib"] for run in runs if run["node"] == node)
                cost = [(run["cpu_seconds"] - run["idle_share"] * run["elapsed"]) / run["played_seconds"] for run in of]
                row(delivery, node, of[0]["viewers"], f"{1e6 * statistics.median(cost):.0f} µs",
                    f"{statistics.median((run['most_kib'] - lean) / run['viewers'] for run in of):.1f} KiB",
                    min(run["satisfied"] for run in of), f"{sum(run['saturated'] for run in of)} of {len(of)}",
                    f"{100 * statistics.median(run['idle_share'] for run in of):.1f} % of a core")
        lines.append("")
    if (runs := table("memory", "delivery", "node", "viewers", "before", "most", "memory a viewer")):
        for run in runs:
            row(run["delivery"], run["node"], run["viewers"], *(f"{run[of] / 1024:.1f} MiB" for of in ("lean_kib", "most_kib")),
                f"{(run['most_kib'] - run['lean_kib']) / run['viewers']:.1f} KiB")
        lines.append("")
    if (runs := table("unwatched", "streams elsewhere", "processor of the edge", "it receives from NATS", "it sends", "the origin sends")):
        for count in sorted({run["streams"] for run in runs}):
            of = [run for run in runs if run["streams"] == count]
            row(count, f"{100 * statistics.median(run['cpu_share'] for run in of):.2f} % of a core",
                *(f"{statistics.median(run[way] for run in of):,.0f} bytes/s" for way in ("received", "sent", "origin_sent")))
        lines.append("")
    if (runs := table("failover", "viewers of", "times", "lost their connection", "longest time without a part, median",
                      "most", "encoder refused, most")):
        for node in dict.fromkeys(run["viewer_of"] for run in runs):
            of = [run for run in runs if run["viewer_of"] == node]
            gaps = [run["longest_gap"] for run in of if run["longest_gap"] is not None]
            if not gaps:
                row(node, len(of), "all", "", "", "")
                continue
            row(node, len(of), sum(run["connection_lost"] for run in of), f"{statistics.median(gaps):.1f} s",
                f"{max(gaps):.1f} s", max(run["refused"] for run in of))
        lines.append("")
    if (runs := table("many", "streams", "publishers that stayed", "live", "copies", "of them up to date", "a node",
                      "a NATS server",
                      "into NATS servers, also from each other")):
        for run in runs:
            row(run["kind"], run["publishers"], run["live"], run["copies"], run["up_to_date"],
                *(f"{100 * run[f'{of}_share']:.0f} % of a core, {run[f'{of}_mib']:.0f} MiB" for of in ("node", "nats")),
                f"{8e-6 * run['nats_in']:.0f} Mbit/s")
        lines.append("")
    return "\n".join(lines)

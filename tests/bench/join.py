"""The table and the plot of a join round in the server's core, by number of ranks. usage: join.py BUILD OUT.svg

Runs bench_join three times and takes the fastest of each size: processor time of the core's steps alone. Prints the table."""
import json
import subprocess
import sys

SIZES = [1024, 2048, 4096, 8192, 16384, 32768, 65536, 98304, 131072]
RUNS = 3
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM, GAP = 760, 300, 56, 16, 40, 34, 72
STYLE = ("text{font:13px sans-serif;fill:#222}.grid{stroke:#ccc}.line{stroke:#2e8b57;fill:none}.dot{fill:#2e8b57}"
         "@media(prefers-color-scheme:dark){text{fill:#ddd}.grid{stroke:#555}.line{stroke:#5fbf8a}.dot{fill:#5fbf8a}}")


def measure(build):
    runs = []
    for _ in range(RUNS):
        done = subprocess.run([f"{build}/tests/bench/bench_join", *map(str, SIZES)], check=True, capture_output=True, text=True)
        runs.append([json.loads(line) for line in done.stdout.splitlines()])
    return [{**sizes[0], "join_ms": min(one["join_ms"] for one in sizes), "end_ms": min(one["end_ms"] for one in sizes)}
            for sizes in zip(*runs)]


def table(rows):
    print("| ranks | nodes | jobs | messages to the server | from it | for each node | join, ms | us a rank | end, ms |\n"
          "|---:|---:|---:|---:|---:|---:|---:|---:|---:|")
    for row in rows:
        messages = row["join_in"] + row["join_out"]
        print(f"| {row['ranks']:,} | {row['nodes']:,} | {row['jobs']} | {row['join_in']:,} | {row['join_out']:,} | {messages / row['nodes']:.2f} | "
              f"{row['join_ms']:.2f} | {row['join_ms'] * 1000 / row['ranks']:.3f} | {row['end_ms']:.2f} |")


def panel(left, width, title, points):
    last, high = points[-1][0], max(y for _, y in points)

    def at(x, y):
        return f"{left + x / last * width:.1f},{TOP + (1 - y / high) * (HEIGHT - TOP - BOTTOM):.1f}"
    yield f'<text x="{left}" y="22">{title}</text>'
    for part in (0, 0.5, 1):
        y = float(at(0, part * high).split(",")[1])
        yield (f'<path class="grid" d="M{left} {y}h{width}"/>'
               f'<text x="{left - 6}" y="{y + 4}" text-anchor="end">{part * high:,.4g}</text>')
    yield f'<polyline class="line" stroke-width="2" points="{" ".join(at(*point) for point in points)}"/>'
    for x, y in (at(*point).split(",") for point in points):
        yield f'<circle class="dot" cx="{x}" cy="{y}" r="3.5"/>'
    yield f'<text x="{left + width}" y="{HEIGHT - 10}" text-anchor="end">{last:,} ranks</text>'


def main():
    build, out = sys.argv[1:]
    rows = measure(build)
    table(rows)
    width = (WIDTH - LEFT - RIGHT - GAP) / 2
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="messages and time of a join round">',
             f"<style>{STYLE}</style>",
             *panel(LEFT, width, "messages of a join round", [(row["ranks"], row["join_in"] + row["join_out"]) for row in rows]),
             *panel(LEFT + width + GAP, width, "its processor time, ms", [(row["ranks"], row["join_ms"]) for row in rows]), "</svg>", ""]
    with open(out, "w", encoding="utf-8") as file:
        file.write("\n".join(parts))


if __name__ == "__main__":
    main()

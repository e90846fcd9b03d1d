"""How many recorded API answers a second one owner of a StableToolBench cache gives.

    python perf/stb_cache.py [--apis 200] [--answers 50] [--seconds 3] [--floor 2000]

The owner is asked as an actor would ask it, by names and the JSON text of arguments, half of the
answers being imported and half our own; its client's part is there too (`CacheClient`, in the same
process). In the same run, in turns: a plain dict lookup with ``json.loads`` of the answer.
Exit code 1 below the floor.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from ace_ray.benchmarks.stabletoolbench.apis.cache import AnswerCache, CacheClient, api_key
from ace_ray.benchmarks.stabletoolbench.apis.json_files import import_answers
from ace_ray.benchmarks.stabletoolbench.tools import Api
from ace_ray.records import canonical_json

IN_FLIGHT = 256
ROUNDS = 5
Asked = tuple[Api, dict[str, Any]]


def api(number: int) -> Api:
    return Api(
        category="Data",
        tool="Bench",
        api=f"api {number}",
        std_category="Data",
        std_tool="bench",
        std_api=f"api_{number}",
        name=f"api_{number}_for_bench",
        description="",
        parameters={},
        api_description="",
        tool_description="",
        required=[],
        optional=[],
        template=None,
    )


def fill(folder: Path, apis: int, answers: int) -> tuple[list[Asked], dict[tuple[str, str], str]]:
    """A cache on disk, what to ask of it in random order, and the same answers in a dict."""
    draw = random.Random(0)
    asked: list[Asked] = []
    plain: dict[tuple[str, str], str] = {}
    ours = AnswerCache(str(folder), "readwrite")
    for number in range(apis):
        one = api(number)
        theirs: dict[str, Any] = {}
        for index in range(answers):
            arguments = {"query": f"text {index}", "page": index, "exact": None}
            rows = [{"id": draw.randrange(10**6), "name": "x" * draw.randrange(60)}] * 12
            answer = {"error": "", "response": {"page": index, "rows": rows}}
            text = json.dumps(answer, separators=(",", ":"))
            plain[one.std_api, canonical_json(arguments)] = text
            asked.append((one, arguments))
            if index % 2:
                theirs[str(arguments)] = answer
            else:
                ours.call("put", api_key(one), json.dumps(arguments), "", text, 0)
        place = folder / "json" / "Data" / "bench" / f"{one.std_api}.json"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(theirs))
    ours.close()
    import_answers(folder / "json", folder)
    draw.shuffle(asked)
    return asked, plain


def rate(ask: Callable[[Asked], object], asked: Sequence[Asked], seconds: float) -> float:
    """Answers a second of CPU time: what other programs on this machine take does not count."""
    done, started = 0, time.process_time()
    while (spent := time.process_time() - started) < seconds:
        for item in asked:
            ask(item)
        done += len(asked)
    return done / spent


async def client_rate(client: CacheClient, asked: Sequence[Asked], seconds: float) -> float:
    done, started = 0, time.process_time()
    while (spent := time.process_time() - started) < seconds:
        for item in asked:
            await client.get(*item)
        done += len(asked)
    return done / spent


async def actor_rate(place: str, asked: Sequence[Asked], seconds: float) -> float:
    """Answers a second of wall time through one Ray actor, as in a run: it is one more process."""
    import ray

    from ace_ray.run.actors.service import RunningService, ServiceActor

    ray.init("local", num_cpus=2, include_dashboard=False)
    try:
        owner = ray.remote(ServiceActor).remote(partial(AnswerCache, place, "read"))
        client = CacheClient(RunningService(owner), writes=False)
        await asyncio.gather(*(client.get(*item) for item in asked[:IN_FLIGHT]))
        done, started = 0, time.perf_counter()
        while (spent := time.perf_counter() - started) < seconds:
            for first in range(0, len(asked), IN_FLIGHT):
                batch = asked[first : first + IN_FLIGHT]
                await asyncio.gather(*(client.get(*item) for item in batch))
                done += len(batch)
        return done / spent
    finally:
        ray.shutdown()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--apis", type=int, default=200)
    parser.add_argument("--answers", type=int, default=50, help="of each API")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--floor", type=int, default=2000, help="answers a second")
    parser.add_argument("--actor", action="store_true", help="through a Ray actor, wall time")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as place:
        asked, plain = fill(Path(place), options.apis, options.answers)
        if options.actor:
            found = asyncio.run(actor_rate(place, asked, options.seconds))
            print(f"through one actor: {found:,.0f} answers/s (floor {options.floor:,})")
            return 0 if found >= options.floor else 1
        owner = AnswerCache(place, "read")

        async def service(method: str, *values: Any) -> Any:
            return owner.call(method, *values)

        client = CacheClient(service, writes=False)
        texts = {id(item): json.dumps(item[1]) for item in asked}

        def get(item: Asked) -> object:
            return owner.call("get", api_key(item[0]), texts[id(item)], "")

        def look_up(item: Asked) -> object:
            return json.loads(plain[item[0].std_api, canonical_json(item[1])])

        assert all(map(get, asked))
        owned, whole, looked_up = [], [], []
        for _ in range(ROUNDS):
            owned.append(rate(get, asked, options.seconds / ROUNDS))
            whole.append(asyncio.run(client_rate(client, asked, options.seconds / ROUNDS)))
            looked_up.append(rate(look_up, asked, options.seconds / ROUNDS))
    owner_rate, whole_rate, plain_rate = median(owned), median(whole), median(looked_up)
    size = sum(map(len, plain.values())) // len(plain)
    print(f"{len(asked):,} answers of {options.apis} APIs, {size:,} characters each")
    print(f"owner: {owner_rate:,.0f} answers/s on one core (floor {options.floor:,})")
    print(
        f"owner and client: {whole_rate:,.0f} answers/s, {whole_rate / plain_rate:.2f} of a dict"
        f" lookup with json.loads ({plain_rate:,.0f}/s)"
    )
    return 0 if whole_rate >= options.floor else 1


if __name__ == "__main__":
    sys.exit(main())

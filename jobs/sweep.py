"""``ray job submit --working-dir . -- python jobs/sweep.py --config configs/sweep.yaml``

The same call as ``ace-ray sweep``; a resubmitted job goes on where the last one ended.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from ace_ray.cli import run_sweep
from ace_ray.errors import UserError


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", required=True)
    parser.add_argument("--output")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="A.B=C")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--plan", action="store_true")
    args = parser.parse_args()
    try:
        return run_sweep(
            args.config,
            output=args.output,
            overrides=tuple(args.overrides),
            limit=args.limit,
            only_plan=args.plan,
        )
    except UserError as error:
        print(f"ace-ray: {error}", file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    sys.exit(main())

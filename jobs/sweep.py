"""``ray job submit --working-dir . -- python jobs/sweep.py --config configs/sweep.yaml``

The same call as ``ace-ray sweep``; a resubmitted job goes on where the last one ended.
"""

import sys

from shared import config_parser, run

from ace_ray.cli.run import run_sweep


def main() -> int:
    parser = config_parser(__doc__)
    parser.add_argument("--plan", action="store_true")
    args = parser.parse_args()

    def sweep(config: str) -> int:
        return run_sweep(
            config,
            output=args.output,
            overrides=tuple(args.overrides),
            limit=args.limit,
            ids=tuple(args.ids),
            only_plan=args.plan,
        )

    return run(sweep, args)


if __name__ == "__main__":
    sys.exit(main())

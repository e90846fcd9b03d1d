"""``ray job submit --working-dir . -- python jobs/evaluate.py --config configs/acebench.yaml``

The same call as ``ace-ray evaluate``; resumes by default, so a resubmitted job continues.
"""

import argparse
import sys

from shared import config_parser, run

from ace_ray.cli.run import run_evaluate


def main() -> int:
    parser = config_parser(__doc__)
    parser.add_argument("--resume", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--fresh", dest="resume", action="store_false")
    args = parser.parse_args()

    def evaluate(config: str) -> int:
        return run_evaluate(
            config,
            output=args.output,
            overrides=tuple(args.overrides),
            limit=args.limit,
            ids=tuple(args.ids),
            resume=args.resume,
            own_process=True,
        )

    return run(evaluate, args)


if __name__ == "__main__":
    sys.exit(main())

"""``ray job submit --working-dir . -- python jobs/score.py s3://bucket/prefix/RUN``

The same call as ``ace-ray score``, with its arguments and options; needs no engine.
"""

import sys

import shared  # noqa: F401 - puts the checkout on the path

from ace_ray.cli.main import main

if __name__ == "__main__":
    main(["score", *sys.argv[1:]])

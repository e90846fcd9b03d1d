"""``ray job submit --working-dir . -- python jobs/report.py s3://bucket/prefix/RUN``

The same call as ``ace-ray report``, with its arguments and options; needs no engine. A job's own
folder is temporary: what it is to write needs an absolute path, or an s3:// URI.
"""

import sys

import shared  # noqa: F401 - puts the checkout on the path

from ace_ray.cli.main import main

if __name__ == "__main__":
    main(["report", *sys.argv[1:]])

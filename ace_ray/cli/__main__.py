"""``python -m ace_ray.cli``."""

from ace_ray.cli.main import main

if __name__ == "__main__":
    main()

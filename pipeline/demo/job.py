"""The job that the demo submits: a process that only sleeps and reports progress, as a training
would.

python job.py --model resnet50 --seconds 12 [--fail]
"""

import argparse
import sys
import time

EPOCHS = 5


def main() -> int:
    """Sleep through a few epochs and print their progress. Return 1 with --fail, else 0."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--fail", action="store_true")
    asked = parser.parse_args()
    for epoch in range(1, EPOCHS + 1):
        time.sleep(asked.seconds / EPOCHS)
        print(f"{asked.model}: epoch {epoch} of {EPOCHS}", flush=True)
        if asked.fail and epoch == EPOCHS - 1:
            print("loss is NaN", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

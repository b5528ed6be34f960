"""The entry of python -m benchmarks.worlds. What it plays is sent to workers, so it needs a module
with a name.
"""

from benchmarks.worlds.played import main

if __name__ == "__main__":
    main()

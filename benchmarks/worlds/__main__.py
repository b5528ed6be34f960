"""The entry point of `python -m benchmarks.worlds`. Objects that are sent to worker processes must
come from a module with an importable name, so the code is in `played`.
"""

from benchmarks.worlds.played import main

if __name__ == "__main__":
    main()

"""python -m benchmarks.worlds: what it plays is sent to workers, so it has a module with a name."""

from benchmarks.worlds.played import main

if __name__ == "__main__":
    main()

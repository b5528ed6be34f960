"""The decision core: events and a time go in, decisions come out."""

"""The command line, and the stages of the pipeline, each of which turns files into files."""

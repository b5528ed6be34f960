"""Stages that turn files into files, and the command line."""

"""Decisions in words and numbers for people: what runs, pages and reports have in common."""

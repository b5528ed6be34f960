"""Explanations of decisions for people, in words and numbers. Command lines, pages and reports
share them."""

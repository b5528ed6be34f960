"""Words and numbers for people about decisions: what command lines, pages and reports share."""

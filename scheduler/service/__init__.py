"""The service: the decision core on the wall clock, with event log, decider, API and pages
(docs/service.md).
"""

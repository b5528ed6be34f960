"""The HTTP API of the service; `create_app` is in `service.app`."""

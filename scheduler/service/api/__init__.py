"""The API; `create_app` is in `service.app`."""

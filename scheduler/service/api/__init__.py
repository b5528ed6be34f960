"""The API: `create_app` in `service.app`."""

"""The API: `create_app` in `service.api.app`."""

"""The sources of the dashboards: one module each, based on the helpers in `panels` and `queries`."""

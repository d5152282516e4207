"""The sources of the dashboards: one module each, on the helpers of `panels` and `queries`."""

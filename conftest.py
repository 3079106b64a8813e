"""Fixtures shared by the suites; verdicts and the gate come from `acceptance.pytest_plugin`."""

pytest_plugins = ["pytester"]

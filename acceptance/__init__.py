"""Acceptance of DeepSeek V4.1 Flash: protocol, service runner, client, verdicts, evidence."""

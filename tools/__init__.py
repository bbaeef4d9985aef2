"""Generators and measurement scripts that are not shipped."""

"""Processors that come with the agent."""

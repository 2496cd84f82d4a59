"""Delivery of events to webhooks: addresses that may be called, signatures, the loop that sends."""

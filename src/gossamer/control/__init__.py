"""What api, services and commands ask alike: info, stop, stats and domain policy."""

"""What the frontier and the workers hold at scale and through outages, as programs that anyone can run again."""

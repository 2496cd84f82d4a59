"""The hostile half of the fake web: hosts that do what some servers on the web do, and what attackers do."""

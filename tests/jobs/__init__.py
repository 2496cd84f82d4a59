"""Jobs under fire: managers, nodes, shims, networks and the database fail while jobs run; a judge reads what ran."""

"""Links between processes: ports (where), messages (what), channels (how)."""

// No code: the headers of others, compiled once for all checks.

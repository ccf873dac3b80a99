"""What people see: progress, tables, and where results go."""

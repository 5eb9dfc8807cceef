"""What a task is: its kind, its labels and its metrics."""

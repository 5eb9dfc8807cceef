"""The techniques: losses, schedules, weightings, aggregators and regularizers, a file each."""

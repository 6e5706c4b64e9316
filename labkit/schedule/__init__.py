"""Who does what when: pipeline schedules and the overlap of communication with backward, as event simulation."""

"""What teachers use and learners do not: `python -m teaching SUBCOMMAND`, one module a
subcommand.
"""

"""Figures of notebook 21, which 15 draws too."""

from exercises.nb15.figures import agreement as agreement, step_parts as step_parts

"""Who did what when: the intervals that `ranks` measures and schedules simulate."""

from ranks.spans import Span as Span

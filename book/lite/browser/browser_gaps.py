"""Fills what labkit imports and a browser's Python lacks; import it before labkit."""

import time

if not hasattr(time, "thread_time"):
    time.thread_time = time.process_time  # a browser's Python has one thread

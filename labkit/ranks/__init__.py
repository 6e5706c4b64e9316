"""One function on N processes: results and metrics back, failures explained. torch.distributed does the rest."""

from labkit.ranks.hosts import Hosts, hosts_missing, two_hosts
from labkit.ranks.inside import Report, report, span
from labkit.ranks.launching import Launched, launch
from labkit.ranks.measuring import all_reduce_seconds, backend
from labkit.ranks.script import as_script
from labkit.ranks.standin import StandIn

__all__ = [
    "Hosts",
    "Launched",
    "Report",
    "StandIn",
    "all_reduce_seconds",
    "as_script",
    "backend",
    "hosts_missing",
    "launch",
    "report",
    "span",
    "two_hosts",
]

"""What every backend must do, ours or yours, found out with real processes: `python -m quiesce.transport.conformance`.

`conformance(backend)` runs the checks and says which capabilities were *seen*; a backend that declares more than
was seen does not pass. See docs/backends.md for how to add a backend.
"""

from quiesce.transport.conformance.report import Report, conformance

__all__ = ["Report", "conformance"]

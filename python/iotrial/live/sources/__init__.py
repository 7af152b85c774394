"""Where the metric of a live trial comes from: ``source_of`` parses what ``--metric`` says, one module for each kind."""

from iotrial.live.sources.base import MetricLost, Source, WindowVoid
from iotrial.live.sources.spec import KINDS, reach_s, source_of

__all__ = ["KINDS", "MetricLost", "Source", "WindowVoid", "reach_s", "source_of"]

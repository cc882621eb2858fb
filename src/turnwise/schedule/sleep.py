"""The sensor of sleep hours: local times of a zone, which may cross midnight. The time is given, never read here."""

from dataclasses import dataclass
from datetime import datetime, time
from zoneinfo import ZoneInfo

from turnwise.schedule.window import SensorOpinion, SensorReading


@dataclass(frozen=True)
class SleepHours:
    """From `start` up to, not with, `end`, as the clock on the wall shows them in `zone`."""

    start: time
    end: time
    zone: ZoneInfo

    def read(self, now: datetime) -> SensorReading:
        """What `now` (with its zone; else ValueError) means. Compared as wall time, so gaps and folds need no care."""
        if now.tzinfo is None:
            raise ValueError("the time has no zone: give one, such as datetime.now(UTC)")
        local = now.astimezone(self.zone).time()
        inside = self.start <= local < self.end if self.start <= self.end else local >= self.start or local < self.end
        where = f"{self.start:%H:%M}-{self.end:%H:%M} ({self.zone.key})"
        opinion = SensorOpinion.OPENS if inside else SensorOpinion.NONE
        return SensorReading("sleep hours", opinion, f"{local:%H:%M} is {'within' if inside else 'outside'} {where}.")
